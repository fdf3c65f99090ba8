package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
