package resource

import (
	"strings"
	"testing"
)

// FuzzName: a name that is accepted has as many parts as its pattern, and a list of its parent, or of
// all parents, has it. Names come from clients.
func FuzzName(f *testing.F) {
	f.Add("shelves/1/books/2")
	f.Add("shelves/-/books/2")
	f.Add("shelves//books/\x00")
	f.Add("shelves/0/books/0")
	p, err := parsePattern("shelves/{shelf}/books/{book}", defaultMaxID)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		parent, parentErr := p.scope("parent", name)
		if parentErr == nil && name != "" && (strings.Contains(name, "\x00") || !strings.HasPrefix(name, "shelves/")) {
			t.Errorf("%q is taken for a parent: %+v", name, parent)
		}
		if p.check("name", name) != nil {
			return
		}
		parts := strings.Split(name, "/")
		if len(parts) != 4 || len(parts[1]) > defaultMaxID || len(parts[3]) > defaultMaxID {
			t.Fatalf("%q is taken for a name", name)
		}
		for _, parent := range []string{"", "shelves/" + parts[1], "shelves/-"} {
			s, err := p.scope("parent", parent)
			if err != nil || !s.holds(name) {
				t.Errorf("a list of %q lacks %q: %v", parent, name, err)
			}
			if n, ok := s.narrow(name); !ok || !n.holds(name) {
				t.Errorf("a list of %q from %q on lacks it", parent, name)
			}
		}
	})
}

// FuzzPattern: a pattern is one as it is written, or none.
func FuzzPattern(f *testing.F) {
	f.Add("shelves/{shelf}/books/{book}")
	f.Add("{key}")
	f.Add("{}/{/}")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePattern(text, defaultMaxID)
		if err == nil && p.String() != text {
			t.Errorf("%q is the pattern %q", text, p)
		}
	})
}
