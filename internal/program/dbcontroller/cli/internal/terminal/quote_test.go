package terminal

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"dbcontroller.dev/internal/base/printable"
)

// evil is what a user of the service chose as an id: it clears the screen, sets the title, forges a
// row, and turns the direction of the text behind it.
const evil = "id\x1b[2J\x1b]0;owned\x07\nFORGED row\r\u202e\u009b31m\xff"

// TestPrintable: text stays as it is, also where a character is written in two parts.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "größe 日本 \\x1b 'a'": "größe 日本 \\x1b 'a'", evil: `id\x1b[2J\x1b]0;owned\a\nFORGED row\r\u202e\u009b31m\xff`, "\uFFFD": `\ufffd`,
	} {
		if got := printable.Line(text); got != want {
			t.Errorf("%q is printed as %s, want %s", text, got, want)
		}
	}
	var j strings.Builder
	text := "a\u009b\u202e日\U000e0001\u007f\n"
	if _, err := (Quoted{&j, new(string), true}).Write([]byte(text)); err != nil || j.String() != `a\u009b\u202e日\udb40\udc01\u007f`+"\n" {
		t.Errorf("as JSON %q, %v", j.String(), err)
	}
	var b strings.Builder
	q := Quoted{&b, new(string), false}
	for i := range []byte("a\t日\x1b本\n") {
		if n, err := q.Write([]byte("a\t日\x1b本\n")[i : i+1]); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if b.String() != "a\t日\\x1b本\n" {
		t.Errorf("it is %q", b.String())
	}
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
		q := Quoted{&b, new(string), false}
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

// TestTextsForgeNoRow: a text among the arguments of a line ends neither the line nor a column.
func TestTextsForgeNoRow(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	Printf(&said, "%s\t%d\t%v\n%s", "a\nb", 7, errors.New("c\td"), time.Second)
	if want := "a\\nb\t7\tc\\td\n1s"; said.String() != want {
		t.Errorf("it is %q, want %q", &said, want)
	}
}
