package apiversion_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"dbcontroller.dev/apiversion"
)

// FuzzRenamed: a name is replaced where it stands between characters that belong to no name or path,
// as a regular expression finds it.
func FuzzRenamed(f *testing.F) {
	f.Add(`book "a.b" is not there, a.b`, "a.b", "c")
	f.Add("a a a", "a", "b")
	f.Add("xa ax a.a \xffa\xff", "a", "aa")
	f.Add("aaa", "aa", "")
	f.Fuzz(func(t *testing.T, text, from, to string) {
		got := apiversion.Renamed(text, from, to)
		if from == "" || len(from) > 1000 || !utf8.ValidString(from) {
			return // no regular expression for it
		}
		var want strings.Builder
		word, rest := regexp.MustCompile(`^`+regexp.QuoteMeta(from)+`($|[^\w.])`), text
		for before := byte(' '); rest != ""; {
			if !regexp.MustCompile(`[\w.]`).MatchString(string(rune(before))) && strings.HasPrefix(rest, from) && word.MatchString(rest) {
				want.WriteString(to)
				before, rest = from[len(from)-1], rest[len(from):]
				continue
			}
			want.WriteByte(rest[0])
			before, rest = rest[0], rest[1:]
		}
		if got != want.String() {
			t.Errorf("%q with %q for %q is %q, want %q", text, to, from, got, want.String())
		}
	})
}
