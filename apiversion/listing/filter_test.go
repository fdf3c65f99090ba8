package listing_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion/internal/prototest"
	"dbcontroller.dev/apiversion/listing"
)

func kinds(t testing.TB) protoreflect.MessageDescriptor {
	return prototest.Message(t, "kinds.proto", "Kinds")
}

func message(t testing.TB, d protoreflect.MessageDescriptor, text string) proto.Message {
	t.Helper()
	m := dynamicpb.NewMessage(d)
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFilterMatches(t *testing.T) {
	t.Parallel()
	d := kinds(t)
	m := message(t, d, `
		name: "web-1" flag: true i32: -5 u64: 18446744073709551615 db: 1.5 color: GREEN raw: "\xff\x00"
		opt_int: 0 texts: "a" texts: "b" labels { key: "tier" value: "web" } labels { key: "a.b" value: "dot" }
		items { key: "k1" count: 1 } items { key: "k2" count: 2 } item { key: "i" } by_number { key: -7 value { count: 3 } }
		at { seconds: 10 nanos: 1 } boxed_text { value: "boxed" } choice_int: 4`)
	for _, tc := range []struct {
		filter string
		want   bool
	}{
		{``, true},
		{`true`, true},
		{`false`, false},
		{`name == "web-1"`, true},
		{`"web-1" == name`, true},
		{`name != "web-1"`, false},
		{`name.startsWith("web")`, true},
		{`name.contains("b-")`, true},
		{`name in ["x", "web-1"]`, true},
		{`name in []`, false},
		{`name > "web" && name < "wec"`, true},
		{`flag`, true},
		{`!flag`, false},
		{`flag == false`, false},
		{`i32 < 0`, true},
		{`-5 == i32`, true},
		{`0 > i32`, true},
		{`i32 == -5.0`, true},
		{`u64 == 18446744073709551615u`, true},
		{`u64 > 5`, true},
		{`db >= 1`, true},
		{`db == 1.5`, true},
		{`color == "GREEN"`, true},
		{`color == 2`, true},
		{`color in ["RED", "COLOR_UNSPECIFIED"]`, false},
		{`raw == b"\xff\x00"`, true},
		{`has(opt_int)`, true},
		{`has(opt_text)`, false},
		{`has(i32) && !has(i64)`, true},
		{`has(item) && !has(child)`, true},
		{`has(texts) && !has(numbers)`, true},
		{`has(labels.tier) && !has(labels.none)`, true},
		{`opt_int == null`, false},
		{`opt_text == null`, true},
		{`opt_text != null`, false},
		{`null == child`, true},
		{`opt_text == ""`, false}, // absent is nothing, not even empty
		{`opt_text != ""`, true},
		{`child.name == ""`, false},
		{`texts.contains("b")`, true},
		{`"b" in texts`, true},
		{`"z" in texts`, false},
		{`labels.tier == "web"`, true},
		{`labels["tier"] == "web"`, true},
		{`labels["a.b"] == "dot"`, true},
		{"labels.`a.b` == \"dot\"", true},
		{`labels.none == ""`, false},
		{`labels.none != "x"`, true},
		{`"tier" in labels`, true},
		{`"a.b" in labels && !("x" in labels)`, true},
		{`items.key == "k2"`, true},
		{`items.count > 2`, false},
		{`by_number[-7].count == 3`, true},
		{`by_number["-7"].count == 3`, true},
		{`item.key == "i" && item.count == 0`, true},
		{`at > timestamp("1970-01-01T00:00:10Z")`, true},
		{`at == timestamp("1970-01-01T01:00:10.000000001+01:00")`, true},
		{`at < "1970-01-01T00:00:11Z"`, true},
		{`boxed_text == "boxed"`, true},
		{`boxed_number == 0`, false},
		{`choice_int == 4 && choice_text == null`, true},
		{`name == "x" || name == "y" || i32 < 0 && flag`, true},
		{`!(name == "x" || flag)`, false},
		{`this.name == "web-1"`, true},
	} {
		t.Run(tc.filter, func(t *testing.T) {
			t.Parallel()
			f, err := listing.ParseFilter(tc.filter, d)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Eval(m); got != tc.want {
				t.Errorf("got %t", got)
			}
			again, err := listing.ParseFilter(f.String(), d)
			if err != nil || again.String() != f.String() || again.Eval(m) != tc.want {
				t.Errorf("%s was read as %s: %v", f, again, err)
			}
		})
	}
}

func TestFilterRefuses(t *testing.T) {
	t.Parallel()
	d := kinds(t)
	for _, tc := range []struct{ filter, want string }{
		{`nme == "x"`, "prototest.Kinds has no field nme"},
		{`item.nme == "x"`, "prototest.Item has no field item.nme"},
		{`name.x == "x"`, "name is not a message: it has no x"},
		{`i32 == "5"`, "i32: is an integer and cannot be compared with a string"},
		{`i32 == 1.5`, "i32: is an integer and cannot be compared with a number"},
		{`u32 > -1`, "u32: is never negative"},
		{`name == web`, "name: web stands where a value is wanted: put text in quotes"},
		{`color == "MAUVE"`, `color: enum prototest.Color has no value "MAUVE"`},
		{`color < "RED"`, "color: is an enum and has no order"},
		{`flag > false`, "flag: is a bool and has no order"},
		{`texts == "a"`, "texts: is a list: use contains()"},
		{`labels == "a"`, "labels: is a map"},
		{`item == "a"`, "item: is a message of type prototest.Item"},
		{`name == null`, "name: is always set and never null"},
		{`i32.startsWith("1")`, "i32: is an integer: startsWith() is for strings"},
		{`i32.contains(1)`, "i32: is an integer: contains() is for strings and lists"},
		{`by_number.x.count == 1`, "by_number.x: the keys of by_number are of type int32"},
		{`at > timestamp("tomorrow")`, `at: timestamp("tomorrow") is not a time`},
		{`at > "tomorrow"`, `at: is a timestamp, and "tomorrow" is no time`},
		{`wait == "1s"`, "wait: is a message of type google.protobuf.Duration"},
		{"\"`a`\" in labels", "must not be empty or hold a backquote"},
		{`"" in labels`, "must not be empty or hold a backquote"},
		{`"*" in labels`, `labels: the key "*" stands for all entries: use has()`},
		{`name.matches("a.*")`, "matches is not supported"},
		{`size(name) > 1`, "a field is wanted, not an expression"},
		{`name == "a" + "b"`, "name: a value is wanted, not an expression"},
		{`"a"`, `"a" alone is no condition`},
		{`1 == 1`, "1 stands where a field is wanted"},
		{`name`, "name: is a string and cannot be compared with a bool"},
		{`name == i32`, "name: i32 stands where a value is wanted"},
		{`name ==`, "column 8: Syntax error"},
		{`namespace == "x"`, "write this.namespace"},
		{`items[0].key == "x"`, "items[0].key"},
		{`texts.all(t, t == "x")`, "is not"},
		{strings.Repeat("(", 500) + "true" + strings.Repeat(")", 500), "recursion"},
		{strings.Repeat("x", 10_001), "at most 10000 are allowed"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			t.Parallel()
			_, err := listing.ParseFilter(tc.filter, d)
			if tc.want == "items[0].key" {
				tc.want = "has no field items.0"
			}
			if err == nil || connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error is %v", err)
			}
			if got := violation(t, err); got != "filter" {
				t.Errorf("the detail names %q", got)
			}
		})
	}
}

// violation returns the field that the BadRequest detail of an error names.
func violation(t *testing.T, err error) string {
	t.Helper()
	coded, ok := err.(*connect.Error)
	if !ok || len(coded.Details()) != 1 {
		t.Fatalf("no detail in %v", err)
	}
	v, detailErr := coded.Details()[0].Value()
	bad, ok := v.(*errdetails.BadRequest)
	if detailErr != nil || !ok || len(bad.FieldViolations) != 1 {
		t.Fatalf("detail %v, %v", v, detailErr)
	}
	return bad.FieldViolations[0].Field
}

// paths are those that random filters use.
var paths = []string{
	"name", "flag", "i32", "u32", "i64", "u64", "fl", "db", "raw", "color", "opt_text", "opt_int", "opt_color", "texts", "numbers", "colors",
	"items.key", "items.tags", "labels.a", "labels.`a.b`", "by_number.1.count", "by_flag.true", "item.count", "item.notes.b", "child.name", "choice_text", "at", "times", "boxed_text", "boxed_number",
}

func TestFilterStringIsTheFilter(t *testing.T) {
	t.Parallel()
	d := kinds(t)
	rapid.Check(t, func(t *rapid.T) {
		f, err := prototest.DrawFilter(t, d, paths, 3).Check(d)
		if err != nil {
			return // not every operator fits every type
		}
		again, err := listing.ParseFilter(f.String(), d)
		if err != nil || again.String() != f.String() {
			t.Fatalf("%s was read as %s: %v", f, again, err)
		}
		m := dynamicpb.NewMessage(d)
		prototest.Draw(t, m)
		if f.Eval(m) != again.Eval(m) || listing.Negate(f).Eval(m) == f.Eval(m) {
			t.Fatalf("%s is %t, read again %t, negated %t", f, f.Eval(m), again.Eval(m), listing.Negate(f).Eval(m))
		}
	})
}

func FuzzParseFilter(f *testing.F) {
	d := kinds(f)
	for _, seed := range []string{`name == "x" && !(i32 in [1, 2])`, `has(labels["a"]) || texts.contains("b")`, `at < timestamp("2026-01-01T00:00:00Z")`} {
		f.Add(seed)
	}
	m := message(f, d, `name: "x" i32: 1`)
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := listing.ParseFilter(text, d)
		if err != nil {
			return
		}
		again, err := listing.ParseFilter(parsed.String(), d)
		if err != nil || again.String() != parsed.String() || again.Eval(m) != parsed.Eval(m) {
			t.Errorf("%q was parsed as %s and then as %s: %v", text, parsed, again, err)
		}
	})
}
