package cli

import (
	"dbcontroller.dev/internal/base/printable"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// FuzzContexts: a file has contexts that read the same after they were written again, or an error of
// one line that shows nothing of it.
func FuzzContexts(f *testing.F) {
	f.Setenv("XDG_CONFIG_HOME", f.TempDir())
	path, err := contextsPath()
	if err != nil {
		f.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("current: prod\ncontexts:\n  prod:\n    server: https://ctl.example.org:7090\n    tokenFile: /token\n    name: services/a/deployments/b\n"))
	f.Add([]byte("contexts: [s3cret"))
	f.Add([]byte("a: &a [*a, *a]\n"))
	f.Add([]byte("contexts: {\"\\x1b\": {server: s3cret}}\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := readContexts()
		if err != nil {
			if strings.Contains(err.Error(), "s3cret") || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("error %q", err)
			}
			return
		}
		if err := writeContexts(all); err != nil {
			t.Fatal(err)
		}
		again, err := readContexts()
		if err != nil || again.Current != all.Current || len(again.Contexts) != len(all.Contexts) {
			t.Fatalf("%+v is read again as %+v: %v", all, again, err)
		}
		for name, at := range all.Contexts {
			if again.Contexts[name] != at {
				t.Errorf("%q is %+v, and read again %+v", name, at, again.Contexts[name])
			}
		}
	})
}

// FuzzPrintable: nothing that is printed is a command of the terminal or another row, however it comes
// in pieces.
func FuzzPrintable(f *testing.F) {
	f.Add("größe 日本 \\x1b 'a'", 3)
	f.Add("id\x1b[2J\x1b]0;owned\a\nFORGED row\r\u202e\u009b31m\xff\uFFFD", 7)
	f.Add("\xe6\x97", 1)
	f.Fuzz(func(t *testing.T, text string, at int) {
		bad := func(r rune) bool { return !unicode.IsPrint(r) || r == '\uFFFD' }
		if out := printable.Line(text); strings.ContainsFunc(out, bad) || len(out) > 10*len(text) {
			t.Errorf("%q is printed as %q", text, out)
		}
		if at < 0 || at > len(text) {
			return
		}
		var b strings.Builder
		q := quoted{&b, new(string), false}
		for _, part := range []string{text[:at], text[at:], "\n"} {
			if n, err := q.Write([]byte(part)); n != len(part) || err != nil {
				t.Errorf("%d of %d bytes, %v", n, len(part), err)
			}
		}
		if out := b.String(); strings.ContainsFunc(out, func(r rune) bool { return r != '\n' && r != '\t' && bad(r) }) || !strings.HasSuffix(out, "\n") {
			t.Errorf("%q is printed as %q", text, out)
		}
	})
}
