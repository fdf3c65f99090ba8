package lens

import (
	"errors"
	"strings"
	"testing"
)

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text, at string
		want           []string
	}{
		{"empty", "", "0:0", []string{"operations: []"}},
		{"only a comment", "# nothing\n", "0:0", []string{"is empty"}},
		{"syntax", "operations:\n  - rename: {from: a\n", "", nil},
		{"two documents", "operations: []\n---\noperations: []\n", "3:1", []string{"second"}},
		{"not a mapping", "- a\n", "1:1", []string{"mapping", "operations"}},
		{"unknown key", "operations: []\nops: []\n", "2:1", []string{`"ops"`, "operations, lens"}},
		{"twice", "operations: []\noperations: []\n", "2:1", nil},
		{"format", "lens: 2\noperations: []\n", "1:7", []string{"format 2", "format 1"}},
		{"no operations", "lens: 1\n", "1:1", []string{`needs the key "operations"`}},
		{"no list", "operations: {a: b}\n", "1:13", []string{"list", "rename, move, convert, add, remove"}},
		{"unknown operation", "operations:\n  - renam: {from: a, to: b}\n", "2:5", []string{`unknown operation "renam"`, "rename, move, convert, add, remove"}},
		{"two in one", "operations:\n  - rename: {from: a, to: b}\n    move: {from: c, to: d.c}\n", "2:5", []string{"one key"}},
		{"key of operation", "operations:\n  - rename: {from: a, too: b}\n", "2:23", []string{`no key "too"`, "from, to"}},
		{"missing key", "operations:\n  - rename: {from: a}\n", "2:13", []string{`needs the key "to"`}},
		{"same field", "operations:\n  - rename: {from: a, to: a}\n", "2:27", []string{"within each other"}},
		{"rename to elsewhere", "operations:\n  - rename: {from: a, to: o.a}\n", "2:13", []string{"use move"}},
		{"move in place", "operations:\n  - move: {from: o.a, to: o.b}\n", "2:11", []string{"use rename"}},
		{"_id", "operations:\n  - rename: {from: _id, to: id}\n", "2:20", []string{"_id"}},
		{"empty part", "operations:\n  - rename: {from: a..b, to: id}\n", "2:20", []string{"empty part"}},
		{"dollar", "operations:\n  - rename: {from: $a, to: id}\n", "2:20", []string{"begin with $"}},
		{"path is a list", "operations:\n  - rename: {from: [a], to: id}\n", "2:20", []string{"dotted path"}},
		{"type", "operations:\n  - convert: {field: a, from: integer, to: long}\n", "2:31", []string{`"integer"`, "string, int, long, double, decimal, bool, objectId, date, rfc3339, epoch"}},
		{"pair", "operations:\n  - convert: {field: a, from: bool, to: date}\n", "2:41", []string{"bool cannot be converted to date", "allowed: string, int, long"}},
		{"type and table", "operations:\n  - convert: {field: a, from: int, table: {a: b}}\n", "2:31", []string{"table"}},
		{"neither", "operations:\n  - convert: {field: a}\n", "2:14", []string{"or table"}},
		{"table not one to one", "operations:\n  - convert: {field: a, table: {x: 1, y: 1}}\n", "2:42", []string{"could not go back"}},
		{"table of lists", "operations:\n  - convert: {field: a, table: {x: [1]}}\n", "2:36", []string{"single values"}},
		{"add without value", "operations:\n  - add: {field: a}\n", "2:10", []string{"default", "value"}},
		{"add with both", "operations:\n  - add: {field: a, value: 1, default: 2}\n", "2:10", []string{"either"}},
		{"value", "operations:\n  - add: {field: a, value: {$date: x}}\n", "", []string{"the value"}},
		{"alias", "operations:\n  - add: {field: a, value: &x 1}\n", "2:28", []string{"anchors"}},
		{"gone", "operations:\n  - rename: {from: a, to: b}\n  - convert: {field: a, from: int, to: long}\n", "3:5", []string{"no longer there after operation 1"}},
		{"made twice", "operations:\n  - rename: {from: a, to: b}\n  - rename: {from: c, to: b}\n", "3:5", []string{"operation 1", "has made b"}},
		{"remove what was renamed", "operations:\n  - rename: {from: a, to: b}\n  - remove: {field: b}\n", "3:5", []string{"where it was before"}},
		{"remove around a move", "operations:\n  - move: {from: o.a, to: a}\n  - remove: {field: o}\n", "3:5", []string{"works within o"}},
		{"remove after a move", "operations:\n  - move: {from: o.a, to: a}\n  - remove: {field: o.b}\n", "3:5", []string{"write it before operation 1"}},
		{"within a value", "operations:\n  - convert: {field: o, from: int, to: long}\n  - rename: {from: o.a, to: o.b}\n", "3:5", []string{"o.a cannot be in o"}},
		{"convert what was added", "operations:\n  - add: {field: a, value: 1}\n  - convert: {field: a, from: int, to: long}\n", "3:5", []string{"made by operation 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("lenses/p.yaml", []byte(tc.text))
			var bad *ParseError
			if !errors.As(err, &bad) {
				t.Fatalf("error is %v", err)
			}
			if !strings.HasPrefix(err.Error(), "lenses/p.yaml:"+tc.at) {
				t.Errorf("error %q, want it at %s", err, tc.at)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
		})
	}
}

func TestParseAcceptsBlockStyleAndQuotes(t *testing.T) {
	t.Parallel()
	l, err := Parse("p.yaml", []byte("lens: 1 # format\noperations:\n  # first\n  - rename:\n      from: 'a' # old\n      to: \"b\"\n  - add: {field: 2024, default: ~}\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Up(js(t, `{"a":1}`), nil)
	if err != nil || text(got) != text(js(t, `{"b":1,"2024":null}`)) {
		t.Errorf("%s, %v", text(got), err)
	}
}

func TestRevisionFollowsTheText(t *testing.T) {
	t.Parallel()
	a := parse(t, "rename: {from: a, to: b}").Spec("k", "k")
	b := parse(t, "rename: {from: a, to: c}").Spec("k", "k")
	if a.Revision == b.Revision || a.Revision != parse(t, "rename: {from: a, to: b}").Spec("k", "k").Revision {
		t.Errorf("%s and %s", a.Revision, b.Revision)
	}
	if !a.Old.Kinds[0].Fixed || !a.New.Kinds[0].Fixed {
		t.Error("a lens is for fixed-name kinds")
	}
}
