package lens_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
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
		{"number to a time", "operations:\n  - convert: {field: a, from: number, to: date}\n", "2:43", []string{"number cannot be converted to date", "string, int, long, double, decimal, bool"}},
		{"a type behind a number", "operations:\n  - convert: {field: a, from: string, to: number}\n  - rename: {from: a, to: b}\n  - convert: {field: b, from: int, to: long}\n", "4:5", []string{"a number of any type", "one conversion"}},
		{"a number behind a type, in items", "operations:\n  - each: {field: l, operations: [convert: {field: ., from: int, to: long}]}\n  - each: {field: l, operations: [convert: {field: ., from: number, to: string}]}\n", "3:5", []string{"a number of any type"}},
		{"normalize without steps", "operations:\n  - normalize: {field: a, steps: []}\n", "2:34", []string{"trim, lower, upper, nfc"}},
		{"unknown step", "operations:\n  - normalize: {field: a, steps: [trim, small]}\n", "2:41", []string{`unknown step "small"`, "trim, lower, upper, nfc"}},
		{"step twice", "operations:\n  - normalize: {field: a, steps: [trim, trim]}\n", "2:41", []string{"trim twice"}},
		{"lower and upper", "operations:\n  - normalize: {field: a, steps: [lower, upper]}\n", "2:42", []string{"only the last one"}},
		{"item left out", "operations:\n  - each: {field: l, operations: [normalize: {field: ., steps: [emptyToAbsent]}]}\n", "2:65", []string{"drop an item"}},
		{"normalize what was computed", "operations:\n  - compute: {from: [a], to: [a], up: {a: \"[a]\"}, down: {a: \"a[0]\"}}\n  - rename: {from: a, to: b}\n  - normalize: {field: b, steps: [sort]}\n", "4:5", []string{"operation 1", "write normalize before it"}},
		{"normalize in an object that is made", "operations:\n  - move: {from: a, to: o.a}\n  - normalize: {field: o.b, steps: [nullToAbsent]}\n", "3:5", []string{"write it before operation 1"}},
		{"separator of a list", "operations:\n  - splitList: {field: a, separator: ''}\n", "2:38", []string{"not empty"}},
		{"blank separator", "operations:\n  - joinList: {field: a, separator: ' ', tidy: true}\n", "2:37", []string{"tidy removes blanks"}},
		{"tidy", "operations:\n  - splitList: {field: a, separator: ',', tidy: maybe}\n", "2:49", []string{"true or false"}},
		{"order of fields", "operations:\n  - compute: {from: [a], to: [b], up: {b: a}, down: {a: b}, fieldOrder: sorted}\n", "2:73", []string{`unknown order "sorted"`, "any, exact"}},
		{"same field", "operations:\n  - rename: {from: a, to: a}\n", "2:27", []string{"within each other"}},
		{"rename to elsewhere", "operations:\n  - rename: {from: a, to: o.a}\n", "2:13", []string{"use move"}},
		{"move in place", "operations:\n  - move: {from: o.a, to: o.b}\n", "2:11", []string{"use rename"}},
		{"_id", "operations:\n  - rename: {from: _id, to: id}\n", "2:20", []string{"_id"}},
		{"empty part", "operations:\n  - rename: {from: a..b, to: id}\n", "2:20", []string{"empty part"}},
		{"dollar", "operations:\n  - rename: {from: $a, to: id}\n", "2:20", []string{"begin with $"}},
		{"path is a list", "operations:\n  - rename: {from: [a], to: id}\n", "2:20", []string{"dotted path"}},
		{"type", "operations:\n  - convert: {field: a, from: integer, to: long}\n", "2:31", []string{`"integer"`, "string, int, long, double, decimal, number, bool, objectId, uuid, date, rfc3339, epoch"}},
		{"pair", "operations:\n  - convert: {field: a, from: bool, to: date}\n", "2:41", []string{"bool cannot be converted to date", "allowed: string, int, long"}},
		{"type and table", "operations:\n  - convert: {field: a, from: int, table: {a: b}}\n", "2:31", []string{"table"}},
		{"neither", "operations:\n  - convert: {field: a}\n", "2:14", []string{"or table"}},
		{"table not one to one", "operations:\n  - convert: {field: a, table: {x: 1, y: 1}}\n", "2:42", []string{"cannot be reversed"}},
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
		{"wrap what has an operation inside", "operations:\n  - rename: {from: o.a, to: o.b}\n  - wrap: {field: o}\n", "3:5", []string{"o.a cannot be in o"}},
		{"split into one", "operations:\n  - split: {field: a, to: [b], separator: x}\n", "2:27", []string{"to must be a list", "at least 2"}},
		{"split into itself and within", "operations:\n  - split: {field: a, to: [a, a.b], separator: x}\n", "2:31", []string{"a and a.b lie within each other"}},
		{"list joined by what begins as it ends", "operations:\n  - joinList: {field: a, separator: ' | '}\n", "2:37", []string{"same beginning and end"}},
		{"split by nothing", "operations:\n  - split: {field: a, to: [b, c], separator: ''}\n", "2:46", []string{"separator must be a string that is not empty"}},
		{"rest", "operations:\n  - split: {field: a, to: [b, c], separator: x, rest: perhaps}\n", "2:55", []string{"rest must be true or false"}},
		{"join of one", "operations:\n  - join: {fields: [a], to: b, separator: x}\n", "2:20", []string{"at least 2"}},
		{"copy within itself", "operations:\n  - copy: {from: a, to: a.b}\n", "2:25", []string{"within each other"}},
		{"change of what was copied", "operations:\n  - copy: {from: a, to: b}\n  - wrap: {field: b}\n", "3:5", []string{"b was made by operation 1"}},
		{"path through items", "operations:\n  - rename: {from: l.*.a, to: l.*.b}\n", "2:20", []string{"use each"}},
		{"operations that are none", "operations:\n  - each: {field: l, operations: {a: b}}\n", "2:34", []string{"list of operations"}},
		{"operation in each", "operations:\n  - each:\n      field: l\n      operations:\n        - rename: {from: a, to: b}\n        - convert: {field: b, from: int, to: date}\n", "6:46", []string{"int cannot be converted to date"}},
		{"sequence in each", "operations:\n  - each:\n      field: l\n      operations:\n        - rename: {from: a, to: b}\n        - wrap: {field: a}\n", "6:11", []string{"a is no longer there after operation 1"}},
		{"each in what", "operations:\n  - each: {field: l, in: set, operations: []}\n", "2:26", []string{`"set"`, "list, map"}},
		{"each without match", "operations:\n  - each: {field: l, operations: [add: {field: a, default: 1}]}\n", "2:11", []string{"add a needs match", "in: map"}},
		{"remove in each without match", "operations:\n  - each: {field: l, in: list, operations: [remove: {field: a}]}\n", "2:11", []string{"remove a needs match"}},
		{"match in a map", "operations:\n  - each: {field: l, in: map, match: id, operations: []}\n", "2:38", []string{"entries identify them"}},
		{"match that is removed", "operations:\n  - each: {field: l, match: id, operations: [remove: {field: id}]}\n", "2:29", []string{"match: the value of id changes (remove id)"}},
		{"each holds what is wrapped", "operations:\n  - each: {field: l, match: id, operations: [add: {field: a, default: 1}]}\n  - compute: {from: [l], to: [m], up: {m: l}, down: {l: m}}\n", "3:5", []string{"the value of l.*.id changes"}},
		{"rename of the item", "operations:\n  - each: {field: l, operations: [rename: {from: ., to: b}]}\n", "2:50", []string{`"." is the item itself`}},
		{"item outside of each", "operations:\n  - wrap: {field: .}\n", "2:19", []string{"empty part"}},
		{"compute without an expression", "operations:\n  - compute: {from: [a], to: [b], up: {b: a}, down: {}}\n", "2:53", []string{`down needs the key "a"`}},
		{"compute of another", "operations:\n  - compute: {from: [a], to: [b], up: {c: a}, down: {a: b}}\n", "2:40", []string{`up has no key "c"; allowed: b`}},
		{"expression", "operations:\n  - compute: {from: [a], to: [b], up: {b: a + c}, down: {a: b}}\n", "2:47", []string{"up.b: undeclared reference to 'c'"}},
		{"quoted expression", "operations:\n  - compute: {from: [a], to: [b], up: {b: 'a + c'}, down: {a: b}}\n", "2:48", []string{"undeclared reference to 'c'"}},
		{"expression of lines", "operations:\n  - compute:\n      from: [a]\n      to: [b]\n      up:\n        b: |\n          a +\n            now()\n      down: {a: b}\n", "8:16", []string{"undeclared reference to 'now'"}},
		{"expression that ends", "operations:\n  - compute: {from: [a], to: [b], up: {b: a +}, down: {a: b}}\n", "2:46", []string{"Syntax error"}},
		{"time zone", "operations:\n  - compute: {from: [a], to: [b], up: {b: 'a.getHours(\"Europe/Berlin\")'}, down: {a: b}}\n", "2:54", []string{"no matching overload for 'getHours'"}},
		{"name that CEL cannot read", "operations:\n  - compute: {from: [a-b], to: [b], up: {b: a}, down: {a-b: b}}\n", "2:21", []string{"a-b is not a name that CEL can read; rename the field"}},
		{"within each other", "operations:\n  - compute: {from: [a], to: [a.b], up: {a.b: a}, down: {a: a.b}}\n", "2:30", []string{"lie within each other"}},
		{"item made another field", "operations:\n  - each: {field: l, operations: [compute: {from: [.], to: [b], up: {b: item}, down: {.: b}}]}\n", "", []string{"within each other"}},
		{"hook", "operations:\n  - hook: {name: h, from: [a], to: [b]}\n", "2:18", []string{`unknown hook "h"; this program has none`}},
		{"convert, then remove", "operations:\n  - convert: {field: a, from: int, to: long}\n  - remove: {field: a}\n", "3:5", []string{"operation 1", "remove the field before it instead"}},
		{"move to an added field", "operations:\n  - add: {field: o.s, default: 1}\n  - move: {from: a, to: o.a}\n", "3:5", []string{"it makes o.a in an object to which operation 1 (add o.s) has added a field; write it before"}},
		{"make what is worked on", "operations:\n  - convert: {field: a, from: int, to: long}\n  - rename: {from: b, to: a}\n", "3:5", []string{"works on a"}},
		{"convert what was added", "operations:\n  - add: {field: a, value: 1}\n  - convert: {field: a, from: int, to: long}\n", "3:5", []string{"made by operation 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := lens.Parse("lenses/p.yaml", []byte(tc.text))
			var bad *lens.ParseError
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
			if byForm := lenstest.Validate(t, []byte(tc.text)) != nil; byForm == slices.Contains(beyondForm, tc.name) {
				t.Errorf("the schema refuses it: %t", byForm)
			}
		})
	}
}

// beyondForm are the mistakes that a schema cannot see.
var beyondForm = []string{"list joined by what begins as it ends",
	"number to a time", "a type behind a number", "a number behind a type, in items", "step twice", "lower and upper", "item left out",
	"normalize what was computed", "normalize in an object that is made", "blank separator",
	"two documents",
	"same field",
	"rename to elsewhere",
	"move in place",
	"_id",
	"pair",
	"table not one to one",
	"table of lists",
	"value",
	"alias",
	"gone",
	"made twice",
	"remove what was renamed",
	"remove around a move",
	"remove after a move",
	"within a value",
	"wrap what has an operation inside",
	"split into itself and within",
	"copy within itself",
	"change of what was copied",
	"path through items",
	"operation in each",
	"sequence in each",
	"each without match",
	"remove in each without match",
	"match in a map",
	"match that is removed",
	"each holds what is wrapped",
	"rename of the item",
	"item outside of each",
	"compute without an expression",
	"compute of another",
	"expression",
	"quoted expression",
	"expression of lines",
	"expression that ends",
	"time zone",
	"name that CEL cannot read",
	"within each other",
	"item made another field",
	"hook",
	"convert, then remove",
	"move to an added field",
	"make what is worked on",
	"convert what was added",
}

func TestParseAcceptsBlockStyleAndQuotes(t *testing.T) {
	t.Parallel()
	l, err := lens.Parse("p.yaml", []byte("lens: 1 # format\noperations:\n  # first\n  - rename:\n      from: 'a' # old\n      to: \"b\"\n  - add: {field: 2024, default: ~}\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Up(lenstest.JSON(t, `{"a":1}`), nil)
	if err != nil || lenstest.Text(got) != lenstest.Text(lenstest.JSON(t, `{"b":1,"2024":null}`)) {
		t.Errorf("%s, %v", lenstest.Text(got), err)
	}
}

func TestRevisionFollowsTheText(t *testing.T) {
	t.Parallel()
	a := lenstest.Of(t, "rename: {from: a, to: b}").Spec("k", "k")
	b := lenstest.Of(t, "rename: {from: a, to: c}").Spec("k", "k")
	if a.Revision == b.Revision || a.Revision != lenstest.Of(t, "rename: {from: a, to: b}").Spec("k", "k").Revision {
		t.Errorf("%s and %s", a.Revision, b.Revision)
	}
	if !a.Old.Kinds[0].Fixed || !a.New.Kinds[0].Fixed {
		t.Error("a lens is for fixed-name kinds")
	}
}
