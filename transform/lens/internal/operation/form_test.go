package operation_test

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// TestForms: the new version gets the form of the lens, either side keeps its own as long as
// that means the same, and what one of them changes reaches the other.
func TestForms(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		ops      []string
		old, now string // now is what the old record becomes
		changed  string // by the new version's application; empty: as it is
		back     string // what that becomes over the old record; empty: the old record
	}{
		{"number", []string{"convert: {field: n, from: number, to: long}"}, `{"_id":1,"n":{"$numberDouble":"5.0"}}`, `{"_id":1,"n":{"$numberLong":"5"}}`, "", ""},
		{"another number", []string{"convert: {field: n, from: number, to: long}"}, `{"_id":1,"n":{"$numberDouble":"5.0"}}`, `{"_id":1,"n":{"$numberLong":"5"}}`,
			`{"_id":1,"n":{"$numberLong":"6"}}`, `{"_id":1,"n":6}`},
		{"a number that JavaScript writes as a double", []string{"convert: {field: n, from: number, to: long}"}, `{"_id":1,"n":1}`, `{"_id":1,"n":{"$numberLong":"1"}}`,
			`{"_id":1,"n":{"$numberLong":"3000000000"}}`, `{"_id":1,"n":{"$numberDouble":"3e9"}}`},
		{"a number that JavaScript has not", []string{"convert: {field: n, from: number, to: long}"}, `{"_id":1,"n":1}`, `{"_id":1,"n":{"$numberLong":"1"}}`,
			`{"_id":1,"n":{"$numberLong":"9007199254740993"}}`, `{"_id":1,"n":{"$numberLong":"9007199254740993"}}`},
		{"a date with milliseconds", []string{"convert: {field: d, from: epoch, to: date, rounding: seconds}"}, `{"_id":1,"d":{"$numberLong":"10"}}`, `{"_id":1,"d":{"$date":{"$numberLong":"10000"}}}`,
			`{"_id":1,"d":{"$date":{"$numberLong":"10250"}}}`, ""},
		{"a date of another second", []string{"convert: {field: d, from: epoch, to: date, rounding: seconds}"}, `{"_id":1,"d":{"$numberLong":"10"}}`, `{"_id":1,"d":{"$date":{"$numberLong":"10000"}}}`,
			`{"_id":1,"d":{"$date":{"$numberLong":"-1"}}}`, `{"_id":1,"d":{"$numberLong":"-1"}}`},
		{"dates with milliseconds of the old version", []string{"convert: {field: d, from: date, to: epoch, rounding: seconds}"}, `{"_id":1,"d":{"$date":{"$numberLong":"10250"}}}`, `{"_id":1,"d":{"$numberLong":"10"}}`, "", ""},
		{"milliseconds", []string{"convert: {field: d, from: epochMillis, to: date}"}, `{"_id":1,"d":{"$numberLong":"10250"}}`, `{"_id":1,"d":{"$date":{"$numberLong":"10250"}}}`,
			`{"_id":1,"d":{"$date":{"$numberLong":"10251"}}}`, `{"_id":1,"d":{"$numberLong":"10251"}}`},
		{"milliseconds of JavaScript", []string{"convert: {field: d, from: number, to: long}", "convert: {field: d, from: epochMillis, to: date}"}, `{"_id":1,"d":{"$numberDouble":"1795000000250"}}`, `{"_id":1,"d":{"$date":{"$numberLong":"1795000000250"}}}`, "", ""},
		{"minus zero", []string{"convert: {field: n, from: number, to: int}"}, `{"_id":1,"n":{"$numberDouble":"-0.0"}}`, `{"_id":1,"n":0}`, "", ""},
		{"number to a decimal, written otherwise there", []string{"convert: {field: n, from: number, to: decimal}"}, `{"_id":1,"n":19.9}`, `{"_id":1,"n":{"$numberDecimal":"19.9"}}`,
			`{"_id":1,"n":{"$numberDecimal":"19.90"}}`, ""},
		{"to a number", []string{"convert: {field: n, from: long, to: number}"}, `{"_id":1,"n":{"$numberLong":"5"}}`, `{"_id":1,"n":5}`, `{"_id":1,"n":{"$numberDouble":"5.0"}}`, ""},
		{"numbers in a list", []string{"each: {field: l, operations: [convert: {field: ., from: number, to: int}]}"}, `{"_id":1,"l":[1.0,2]}`, `{"_id":1,"l":[1,2]}`, "", ""},
		{"a list that has changed", []string{"each: {field: l, operations: [convert: {field: ., from: number, to: int}]}"}, `{"_id":1,"l":[1.0,2]}`, `{"_id":1,"l":[1,2]}`,
			`{"_id":1,"l":[1,2,3]}`, `{"_id":1,"l":[1,2,3]}`},
		{"items that are told apart", []string{"each: {field: l, match: k, operations: [convert: {field: n, from: number, to: int}]}"}, `{"_id":1,"l":[{"k":"a","n":1.0},{"k":"b","n":2.0}]}`,
			`{"_id":1,"l":[{"k":"a","n":1},{"k":"b","n":2}]}`, `{"_id":1,"l":[{"k":"c","n":7},{"k":"b","n":2},{"k":"a","n":3}]}`, `{"_id":1,"l":[{"k":"c","n":7},{"k":"b","n":2.0},{"k":"a","n":3}]}`},
		{"items that are told apart, in a list that is sorted", []string{"normalize: {field: l, steps: [sort]}", "each: {field: l, match: k, operations: [convert: {field: n, from: number, to: long}]}"},
			`{"_id":1,"l":[{"k":1,"n":{"$numberDouble":"5.0"}},{"k":2,"n":5}]}`, `{"_id":1,"l":[{"k":1,"n":{"$numberLong":"5"}},{"k":2,"n":{"$numberLong":"5"}}]}`,
			`{"_id":1,"l":[{"k":2,"n":{"$numberLong":"5"}},{"k":1,"n":{"$numberLong":"6"}}]}`, `{"_id":1,"l":[{"k":2,"n":5},{"k":1,"n":6}]}`},
		{"entries of a map", []string{"each: {field: m, in: map, operations: [convert: {field: ., from: number, to: int}]}"}, `{"_id":1,"m":{"a":1.0,"b":2.0}}`, `{"_id":1,"m":{"a":1,"b":2}}`,
			`{"_id":1,"m":{"a":1,"b":3}}`, `{"_id":1,"m":{"a":1.0,"b":3}}`},
		{"moved", []string{"normalize: {field: e, steps: [trim, lower]}", "move: {from: e, to: contact.mail}"}, `{"_id":1,"e":" A@x ","z":1}`, `{"_id":1,"z":1,"contact":{"mail":"a@x"}}`, "", ""},
		{"the other side's form", []string{"normalize: {field: e, steps: [trim, lower]}"}, `{"_id":1,"e":" A@x "}`, `{"_id":1,"e":"a@x"}`, `{"_id":1,"e":"A@X"}`, ""},
		{"another text", []string{"normalize: {field: e, steps: [trim, lower]}"}, `{"_id":1,"e":" A@x "}`, `{"_id":1,"e":"a@x"}`, `{"_id":1,"e":"B@x"}`, `{"_id":1,"e":"B@x"}`},
		{"upper", []string{"normalize: {field: e, steps: [upper]}"}, `{"_id":1,"e":"de"}`, `{"_id":1,"e":"DE"}`, "", ""},
		{"unicode", []string{"normalize: {field: e, steps: [nfc]}"}, `{"_id":1,"e":"e\u0301"}`, `{"_id":1,"e":"\u00e9"}`, "", ""},
		{"other types stay", []string{"normalize: {field: e, steps: [trim, lower, nfc, zero, sort]}"}, `{"_id":1,"e":7}`, `{"_id":1,"e":7}`, "", ""},
		{"zero", []string{"normalize: {field: n, steps: [zero]}"}, `{"_id":1,"n":{"$numberDouble":"-0.0"}}`, `{"_id":1,"n":{"$numberDouble":"0.0"}}`, "", ""},
		{"empty to absent", []string{"normalize: {field: a, steps: [trim, emptyToAbsent]}"}, `{"_id":1,"a":" ","b":1}`, `{"_id":1,"b":1}`, "", ""},
		{"empty to absent, and set there", []string{"normalize: {field: a, steps: [emptyToAbsent]}"}, `{"_id":1,"a":"","b":1}`, `{"_id":1,"b":1}`, `{"_id":1,"a":"x","b":1}`, `{"_id":1,"a":"x","b":1}`},
		{"null to absent", []string{"normalize: {field: o.a, steps: [nullToAbsent]}"}, `{"_id":1,"o":{"a":null,"b":1}}`, `{"_id":1,"o":{"b":1}}`, `{"_id":2,"o":{"b":2}}`, `{"_id":2,"o":{"a":null,"b":2}}`},
		{"sorted", []string{"normalize: {field: l, steps: [deduplicate, sort]}"}, `{"_id":1,"l":["b",2,"a","b"]}`, `{"_id":1,"l":[2,"a","b"]}`, `{"_id":1,"l":["b","a",2]}`, ""},
		{"sorted, with one more", []string{"normalize: {field: l, steps: [deduplicate, sort]}"}, `{"_id":1,"l":["b","a","b"]}`, `{"_id":1,"l":["a","b"]}`, `{"_id":1,"l":["a","b","c"]}`, `{"_id":1,"l":["a","b","c"]}`},
		{"string to a list", []string{"splitList: {field: t, separator: ','}"}, `{"_id":1,"t":"a,, b"}`, `{"_id":1,"t":["a",""," b"]}`, `{"_id":1,"t":["x"]}`, `{"_id":1,"t":"x"}`},
		{"empty string", []string{"splitList: {field: t, separator: ','}"}, `{"_id":1,"t":""}`, `{"_id":1,"t":[]}`, "", ""},
		{"tidy", []string{"splitList: {field: t, separator: ',', tidy: true}"}, `{"_id":1,"t":"a, b,,c "}`, `{"_id":1,"t":["a","b","c"]}`, "", ""},
		{"tidy, with one more", []string{"splitList: {field: t, separator: ',', tidy: true}"}, `{"_id":1,"t":"a, b"}`, `{"_id":1,"t":["a","b"]}`, `{"_id":1,"t":["a","b","c"]}`, `{"_id":1,"t":"a,b,c"}`},
		{"list to a string", []string{"joinList: {field: t, separator: ' '}"}, `{"_id":1,"t":["a","b"]}`, `{"_id":1,"t":"a b"}`, `{"_id":1,"t":"a b c"}`, `{"_id":1,"t":["a","b","c"]}`},
		{"tidy list to a string", []string{"joinList: {field: t, separator: ','  , tidy: true}"}, `{"_id":1,"t":[" a","","b"]}`, `{"_id":1,"t":"a,b"}`, `{"_id":1,"t":"a, b"}`, ""},
		{"null stays", []string{"splitList: {field: t, separator: ','}", "convert: {field: n, from: number, to: int}"}, `{"_id":1,"t":null,"n":null}`, `{"_id":1,"t":null,"n":null}`, "", ""},
		{"object in another order", []string{`compute: {from: [x, y], to: [p], up: {p: "{'y': y, 'x': x}"}, down: {x: p.x, y: p.y}}`}, `{"_id":1,"x":1,"y":2}`, `{"_id":1,"p":{"x":1,"y":2}}`,
			`{"_id":1,"p":{"y":2,"x":1}}`, ""},
		{"object of the old version in another order", []string{`compute: {from: [p], to: [x, y], up: {x: p.x, y: p.y}, down: {p: "{'x': x, 'y': y}"}}`}, `{"_id":1,"p":{"y":2,"x":1}}`, `{"_id":1,"x":1,"y":2}`,
			`{"_id":1,"x":1,"y":3}`, `{"_id":1,"p":{"x":1,"y":3}}`},
		{"a constant in another order", []string{"add: {field: c, value: {a: 1, b: {x: 1, y: 2}}}"}, `{"_id":1}`, `{"_id":1,"c":{"a":1,"b":{"x":1,"y":2}}}`, `{"_id":1,"c":{"b":{"y":2,"x":1},"a":1}}`, ""},
		{"objects are compared in any order", []string{`compute: {from: [x, y], to: [z], up: {z: "[x == y, x, y]"}, down: {x: "z[1]", y: "z[2]"}}`}, `{"_id":1,"x":{"a":1,"b":2},"y":{"b":2,"a":1}}`,
			`{"_id":1,"z":[true,{"a":1,"b":2},{"b":2,"a":1}]}`, "", ""},
		{"normalized, then taken apart", []string{"normalize: {field: a, steps: [lower]}", "split: {field: a, to: [h, p], separator: ':'}"}, `{"_id":1,"a":"HOST:80"}`, `{"_id":1,"h":"host","p":"80"}`,
			`{"_id":1,"h":"Host","p":"80"}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := lenstest.Of(t, tc.ops...)
			old, now := lenstest.JSON(t, tc.old), lenstest.JSON(t, tc.now)
			up, err := l.Up(old, nil)
			if err != nil || lenstest.Text(up) != lenstest.Text(now) {
				t.Fatalf("up %s, %v, want %s", lenstest.Text(up), err, lenstest.Text(now))
			}
			if tc.changed == "" {
				tc.changed = tc.now
			}
			if tc.back == "" {
				tc.back = tc.old
			}
			changed, back := lenstest.JSON(t, tc.changed), lenstest.JSON(t, tc.back)
			down, err := l.Down(changed, old)
			if err != nil || lenstest.Text(down) != lenstest.Text(back) {
				t.Fatalf("down %s, %v, want %s", lenstest.Text(down), err, lenstest.Text(back))
			}
			again, err := l.Up(down, changed)
			if err != nil || lenstest.Text(again) != lenstest.Text(changed) {
				t.Fatalf("over what the new side has it is %s, %v, want %s", lenstest.Text(again), err, lenstest.Text(changed))
			}
			upLost, downLost := l.Lost()
			if tc.back == tc.old && lenstest.Text(mustDown(t, l, changed)) != lenstest.Text(old) && len(upLost)+len(downLost) == 0 {
				t.Error("what it loses is not declared")
			}
		})
	}
}

func mustDown(t *testing.T, l *lens.Lens, doc bson.Raw) bson.Raw {
	t.Helper()
	down, err := l.Down(doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	return down
}

// TestFormsRefused: what cannot come back as what it means is refused, never guessed at.
func TestFormsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		op, doc string
		down    bool
		want    string
	}{
		{"convert: {field: n, from: number, to: int}", `{"n":5.5}`, false, "convert n from number to int: n is"},
		{"convert: {field: n, from: number, to: long}", `{"n":1e20}`, false, "n is"},
		{"convert: {field: n, from: number, to: int}", `{"n":{"$numberDecimal":"5E+30"}}`, false, "n is"},
		{"convert: {field: n, from: number, to: double}", `{"n":{"$numberLong":"9007199254740993"}}`, false, "n is"},
		{"convert: {field: n, from: number, to: int}", `{"n":{"$numberDouble":"NaN"}}`, false, "n is"},
		{"convert: {field: n, from: number, to: int}", `{"n":"5"}`, false, "n is of type string, not a number"},
		{"convert: {field: n, from: number, to: string}", `{"n":"5.0"}`, true, "n is"},
		{"convert: {field: n, from: number, to: string}", `{"n":"0x10"}`, true, "n is"},
		{"convert: {field: n, from: number, to: bool}", `{"n":2}`, false, "n is"},
		{"splitList: {field: t, separator: ','}", `{"t":5}`, false, "t is of type int, not string"},
		{"splitList: {field: t, separator: ','}", `{"t":["a,b"]}`, true, `t has item 0 with the separator "," in it`},
		{"splitList: {field: t, separator: ','}", `{"t":[""]}`, true, "t is a list of one empty string"},
		{"splitList: {field: t, separator: ','}", `{"t":["a",5]}`, true, "t has item 1 of type int, not string"},
		{"splitList: {field: t, separator: ','}", `{"t":"a"}`, true, "t is of type string, not a list"},
		{`compute: {from: [x, y], to: [p], up: {p: "{'y': y, 'x': x}"}, down: {x: p.x, y: p.y}, fieldOrder: exact}`, `{"p":{"y":2,"x":1}}`, true, "cannot be converted so that the reverse restores it"},
		{`compute: {from: [x, y], to: [p], up: {p: "{'y': y, 'x': x}"}, down: {x: p.x, y: p.y}}`, `{"p":{"y":2,"x":1,"z":0}}`, true, "cannot be converted so that the reverse restores it"},
	} {
		l := lenstest.Of(t, tc.op)
		run := l.Up
		if tc.down {
			run = l.Down
		}
		got, err := run(lenstest.JSON(t, tc.doc), nil)
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(tc.want)) {
			t.Errorf("%s of %s: %s, %v, want %q", tc.op, tc.doc, lenstest.Text(got), err, tc.want)
		}
	}
}

// TestNumbersAreTheSame: numbers of any type, near the bounds of all of them, come to each
// type as the same number or not at all, and back over themselves as the same bytes.
func TestNumbersAreTheSame(t *testing.T) {
	t.Parallel()
	lenses := map[scalar.Type][2]*lens.Lens{}
	for _, to := range scalar.Number.Targets() {
		lenses[to] = [2]*lens.Lens{lenstest.Of(t, fmt.Sprintf("convert: {field: n, from: number, to: %s}", to)), lenstest.Of(t, fmt.Sprintf("convert: {field: n, from: %s, to: number}", to))}
	}
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		v := drawNumber(t)
		doc := lenstest.Marshal(t, bson.D{{Key: "n", Value: v}})
		for to, ls := range lenses {
			up, err := ls[0].Up(doc, nil)
			if err != nil {
				continue
			}
			taken++
			if got := up.Lookup("n"); to != scalar.String && to != scalar.Bool && !sameNumber(t, got, doc.Lookup("n")) {
				t.Fatalf("%s became %s", doc, up)
			}
			if back, err := ls[0].Down(up, doc); err != nil || !bytes.Equal(back, doc) {
				t.Fatalf("%s became %s and came back over itself as %s (%v)", doc, up, back, err)
			}
			back, err := ls[0].Down(up, nil)
			if err != nil || !sameNumber(t, back.Lookup("n"), doc.Lookup("n")) {
				t.Fatalf("%s became %s and came back as %s (%v)", doc, up, back, err)
			}
			if again, err := ls[1].Down(back, up); err != nil || !bytes.Equal(again, up) {
				t.Fatalf("%s became %s over %s (%v)", back, again, up, err)
			}
		}
	})
	if taken == 0 && !raced.FewDrawn() {
		t.Error("no number was taken")
	}
}

func drawNumber(t *rapid.T) any {
	near := rapid.SampledFrom([]float64{0, 1, math.MaxInt32, math.MinInt32, 1 << 53, math.MaxInt64, math.MinInt64, 1e20}).Draw(t, "near") + float64(rapid.IntRange(-2, 2).Draw(t, "by"))
	switch rapid.IntRange(0, 5).Draw(t, "type") {
	case 0:
		return rapid.Int32().Draw(t, "int")
	case 1:
		return rapid.SampledFrom([]int64{0, 5, 1<<53 + 1, math.MaxInt64, math.MinInt64, 1 << 60}).Draw(t, "long") ^ int64(rapid.IntRange(0, 1).Draw(t, "odd"))
	case 2:
		return near
	case 3:
		return rapid.Float64().Draw(t, "double")
	case 4:
		d, err := bson.ParseDecimal128(rapid.SampledFrom([]string{"0", "-0", "0.00", "5", "5.00", "5E+2", "5E+30", "19.90", "0.1", "9007199254740993", "9223372036854775808", "1E-30", "123456789012345678901234567890.1234", "NaN", "Infinity", "-0E+5"}).Draw(t, "decimal"))
		if err != nil {
			t.Fatal(err)
		}
		return d
	default:
		return rapid.SampledFrom([]float64{math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 0.1, 1e300, 5e-324}).Draw(t, "special")
	}
}

// sameNumber compares by decimal text, another way than the code does. A double is the
// decimal that it is written as, or the one that it is exactly.
func sameNumber(t *rapid.T, a, b bson.RawValue) bool {
	text := func(v bson.RawValue) string {
		s, ok := scalar.TextOf(v.Value, scalar.TypeOf(v.Type))
		if f, isDouble := v.DoubleOK(); isDouble && math.Abs(f) >= 1<<53 && f >= -1<<63 && f < 1<<63 {
			s = strconv.FormatFloat(f, 'f', 0, 64)
		}
		if !ok {
			t.Fatalf("%s is no number", v)
		}
		d, err := bson.ParseDecimal128(s)
		if err != nil {
			t.Fatal(err)
		}
		n, exp, err := d.BigInt()
		if err != nil {
			return d.String()
		}
		if n.Sign() == 0 {
			return "0"
		}
		digits := n.String()
		for digits[len(digits)-1] == '0' {
			digits, exp = digits[:len(digits)-1], exp+1
		}
		return fmt.Sprint(digits, "E", exp)
	}
	return text(a) == text(b)
}

// TestItemsAreFoundByTheNumber: an item whose number was written as another type is the same
// item, and keeps what only this side has of it.
func TestItemsAreFoundByTheNumber(t *testing.T) {
	t.Parallel()
	l := lenstest.Of(t, "each: {field: l, match: id, operations: [remove: {field: x}]}")
	down, err := l.Down(lenstest.JSON(t, `{"l":[{"id":{"$numberDouble":"5.0"}}]}`), lenstest.JSON(t, `{"l":[{"id":5,"x":1}]}`))
	if want := lenstest.JSON(t, `{"l":[{"id":{"$numberDouble":"5.0"},"x":1}]}`); err != nil || lenstest.Text(down) != lenstest.Text(want) {
		t.Errorf("%s, %v", lenstest.Text(down), err)
	}
}

// TestInPlaceTakesTheForm: an update of the records where they are is for their form.
func TestInPlaceTakesTheForm(t *testing.T) {
	t.Parallel()
	change, _, err := lenstest.Of(t, "normalize: {field: e, steps: [trim]}", "splitList: {field: t, separator: ',', tidy: true}").InPlace("users")
	if err != nil {
		t.Fatal(err)
	}
	want := lenstest.JSON(t, `{"_id":1,"e":"a","t":["x","y"]}`)
	for _, doc := range []string{`{"_id":1,"e":" a","t":"x, y"}`, `{"_id":1,"e":"a","t":["x","y"]}`} {
		got, err := change(lenstest.JSON(t, doc))
		if err != nil || lenstest.Text(got) != lenstest.Text(want) {
			t.Errorf("%s became %s, %v", doc, lenstest.Text(got), err)
		}
	}
}
