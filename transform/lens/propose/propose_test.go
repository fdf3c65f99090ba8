package propose_test

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/propose"
)

func docs(t *testing.T, texts ...string) []bson.Raw {
	t.Helper()
	out := make([]bson.Raw, 0, len(texts))
	for _, text := range texts {
		var d bson.D
		if err := bson.UnmarshalExtJSON([]byte(text), false, &d); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		raw, err := bson.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, raw)
	}
	return out
}

// TestLens: what changed between samples is found, and the draft makes of the old ones the new
// ones.
func TestLens(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		old, now []string
		want     []string // lines of the draft
		explains bool
	}{
		"renamed": {
			[]string{`{"_id":1,"section":"a","n":1}`, `{"_id":2,"section":"b","n":1}`, `{"_id":3,"n":1}`},
			[]string{`{"_id":1,"category":"a","n":1}`, `{"_id":2,"category":"b","n":1}`, `{"_id":3,"n":1}`},
			[]string{"- rename: {from: section, to: category}"}, true},
		"moved": {
			[]string{`{"_id":1,"homepage":"a"}`, `{"_id":2,"homepage":"b"}`},
			[]string{`{"_id":1,"links":{"homepage":"a"}}`, `{"_id":2,"links":{"homepage":"b"}}`},
			[]string{"- move: {from: homepage, to: links.homepage}"}, true},
		"another type": {
			[]string{`{"_id":1,"size":5}`, `{"_id":2,"size":7}`}, []string{`{"_id":1,"size":"5"}`, `{"_id":2,"size":"7"}`},
			[]string{"- convert: {field: size, from: int, to: string}"}, true},
		"renamed, of another type": {
			[]string{`{"_id":1,"size":5}`, `{"_id":2,"size":7}`}, []string{`{"_id":1,"bytes":{"$numberLong":"5"}}`, `{"_id":2,"bytes":{"$numberLong":"7"}}`},
			[]string{"- rename: {from: size, to: bytes}", "- convert: {field: bytes, from: int, to: long}"}, true},
		"an epoch became a date": {
			[]string{`{"_id":1,"t":{"$numberLong":"1767225600"}}`, `{"_id":2,"t":null}`},
			[]string{`{"_id":1,"t":{"$date":"2026-01-01T00:00:00Z"}}`, `{"_id":2,"t":null}`},
			[]string{"- convert: {field: t, from: epoch, to: date}"}, true},
		"a time of JavaScript became a date, under another name": {
			[]string{`{"_id":1,"t":{"$numberDouble":"1767225600001"}}`, `{"_id":2,"t":0}`},
			[]string{`{"_id":1,"at":{"$date":"2026-01-01T00:00:00.001Z"}}`, `{"_id":2,"at":{"$date":"1970-01-01T00:00:00Z"}}`},
			[]string{"- rename: {from: t, to: at}", "- convert: {field: at, from: number, to: long}", "- convert: {field: at, from: epochMillis, to: date}"}, true},
		"a text became a date": {
			[]string{`{"_id":1,"t":"2026-01-01T00:00:00Z"}`}, []string{`{"_id":1,"t":{"$date":"2026-01-01T00:00:00Z"}}`},
			[]string{"- convert: {field: t, from: rfc3339, to: date}"}, true},
		"a date became an epoch": {
			[]string{`{"_id":1,"t":{"$date":"2026-01-01T00:00:00.001Z"}}`, `{"_id":2,"t":{"$date":"2026-01-01T00:00:01Z"}}`},
			[]string{`{"_id":1,"t":{"$numberLong":"1767225600"}}`, `{"_id":2,"t":{"$numberLong":"1767225601"}}`},
			[]string{"- convert: {field: t, from: date, to: epoch, rounding: seconds} # the dates have milliseconds, which an epoch cannot hold"}, true},
		"seconds became milliseconds": {
			[]string{`{"_id":1,"t":{"$numberLong":"5"}}`}, []string{`{"_id":1,"t":{"$numberLong":"5000"}}`},
			[]string{"- convert: {field: t, from: epoch, to: epochMillis}"}, true},
		"two meanings": {
			[]string{`{"_id":1,"t":{"$numberLong":"0"}}`}, []string{`{"_id":1,"t":{"$date":"1970-01-01T00:00:00Z"}}`},
			[]string{"- convert: {field: t, from: epoch, to: date} # the samples also fit from: epochMillis, to: date"}, true},
		"a number of several types became a text": {
			[]string{`{"_id":1,"size":5}`, `{"_id":2,"size":5.5}`}, []string{`{"_id":1,"size":"5"}`, `{"_id":2,"size":"5.5"}`},
			[]string{"- convert: {field: size, from: number, to: string}"}, true},
		"a text became a number": {
			[]string{`{"_id":1,"size":"5"}`, `{"_id":2,"size":"7"}`}, []string{`{"_id":1,"size":5}`, `{"_id":2,"size":7}`},
			[]string{"- convert: {field: size, from: string, to: int}"}, true},
		"a number of several types became one type, and some were that": {
			[]string{`{"_id":1,"size":5}`, `{"_id":2,"size":{"$numberLong":"6"}}`, `{"_id":3,"size":{"$numberDouble":"7.0"}}`},
			[]string{`{"_id":1,"size":{"$numberLong":"5"}}`, `{"_id":2,"size":{"$numberLong":"6"}}`, `{"_id":3,"size":{"$numberLong":"7"}}`},
			[]string{"- convert: {field: size, from: number, to: long}"}, true},
		"called otherwise": {
			[]string{`{"_id":1,"p":"opt"}`, `{"_id":2,"p":"req"}`, `{"_id":3,"p":"opt"}`, `{"_id":4,"p":"req"}`},
			[]string{`{"_id":1,"p":"normal"}`, `{"_id":2,"p":"req"}`, `{"_id":3,"p":"normal"}`, `{"_id":4,"p":"req"}`},
			[]string{`- convert: {field: p, table: {"opt": "normal", "req": "req"}} # the table has the values of the samples: do others exist?`}, true},
		"split": {
			[]string{`{"_id":1,"owner":"games/ann"}`, `{"_id":2,"owner":"web/bob"}`},
			[]string{`{"_id":1,"team":"games","person":"ann"}`, `{"_id":2,"team":"web","person":"bob"}`},
			[]string{`- split: {field: owner, to: [team, person], separator: "/"}`}, true},
		"joined": {
			[]string{`{"_id":1,"team":"games","person":"ann"}`, `{"_id":2,"team":"web","person":"bob"}`},
			[]string{`{"_id":1,"owner":"games/ann"}`, `{"_id":2,"owner":"web/bob"}`},
			[]string{`- join: {fields: [team, person], to: owner, separator: "/"}`}, true},
		"came and went": {
			[]string{`{"_id":1,"legacy":7}`, `{"_id":2,"legacy":8}`}, []string{`{"_id":1,"schema":2}`, `{"_id":2,"schema":2}`},
			[]string{"- add: {field: schema, value: 2}", "- remove: {field: legacy} # no field of the new sample has its values: was it removed?"}, true},
		"names and values that YAML would take for something else": {
			[]string{`{"_id":1}`, `{"_id":2}`}, []string{`{"_id":1,"on":"yes","a b":"# no: {}"}`, `{"_id":2,"on":"yes","a b":"# no: {}"}`},
			[]string{`- add: {field: "on", value: "yes"}`, `- add: {field: "a b", value: "# no: {}"}`}, true},
		"two that could be it": {
			[]string{`{"_id":1,"a":"x","b":"x"}`, `{"_id":2,"a":"y","b":"y"}`}, []string{`{"_id":1,"c":"x"}`, `{"_id":2,"c":"y"}`},
			[]string{"- rename: {from: a, to: c} # or from b, which has the same values"}, true},
		"not explained": {
			[]string{`{"_id":1,"n":1}`, `{"_id":2,"n":2}`}, []string{`{"_id":1,"n":7,"l":[1]}`, `{"_id":2,"n":9,"l":[]}`},
			[]string{"# n: its values differ, and no conversion explains them: try compute, normalize or a hook", "# Not explained: l, in 2 of them.", "# Not explained: n, in 2 of them."}, false},
		"nothing": {[]string{`{"_id":1,"n":1}`}, []string{`{"_id":1,"n":1}`}, []string{"operations: []"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, now := docs(t, tc.old...), docs(t, tc.now...)
			d, err := propose.Lens("packages", "packages", old, now)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(d.Text), want+"\n") {
					t.Errorf("%q is not in\n%s", want, d.Text)
				}
			}
			if d.Pairs != len(old) || (d.Explained == d.Pairs) != tc.explains {
				t.Errorf("%d of %d are explained:\n%s", d.Explained, d.Pairs, d.Text)
			}
			l, err := lens.Parse("draft.yaml", d.Text)
			if err != nil {
				t.Fatalf("%v:\n%s", err, d.Text)
			}
			for i := range old {
				made, err := l.Up(old[i], nil)
				if tc.explains && (err != nil || !transform.SameFields(made, now[i])) {
					t.Errorf("%s becomes %s, %v", old[i], made, err)
				}
			}
		})
	}
}

// TestNothingInCommon is an error that says what to give.
func TestNothingInCommon(t *testing.T) {
	t.Parallel()
	_, err := propose.Lens("a", "a", docs(t, `{"_id":1}`), docs(t, `{"_id":2}`))
	if err == nil || !strings.Contains(err.Error(), "no record of 1 and 1 has the same _id") {
		t.Error(err)
	}
}

// TestDraftsAlwaysParse, whatever the samples are, and the count of those that are explained is
// what the draft does.
func TestDraftsAlwaysParse(t *testing.T) {
	t.Parallel()
	name := rapid.SampledFrom([]string{"a", "b", "c.d", "on", "x y", "é", "$x", "", "_id2", "l\nlens: 9\nm: n"})
	value := rapid.OneOf(rapid.Just[any](nil), rapid.Map(rapid.Int32Range(0, 3), func(i int32) any { return i }),
		rapid.Map(rapid.SampledFrom([]string{"x", "y/z", "a: b", "#", "\n"}), func(s string) any { return s }),
		rapid.Map(rapid.Int64Range(0, 2), func(i int64) any { return i }), rapid.Map(rapid.Int64Range(0, 2), func(i int64) any { return bson.DateTime(i * 1000) }),
		rapid.SampledFrom([]any{0.0, 1.0, 1.5, "1970-01-01T00:00:01Z", "1"}),
		rapid.Just[any](bson.A{int32(1)}), rapid.Just[any](bson.D{{Key: "k", Value: "v"}, {Key: "l", Value: int64(1)}}))
	rapid.Check(t, func(t *rapid.T) {
		sample := func(label string) (out []bson.Raw) {
			for i := range rapid.IntRange(1, 4).Draw(t, label) {
				doc := bson.D{{Key: "_id", Value: int32(i)}}
				for _, n := range rapid.SliceOfNDistinct(name, 0, 4, rapid.ID).Draw(t, fmt.Sprint(label, i)) {
					doc = append(doc, bson.E{Key: n, Value: value.Draw(t, n)})
				}
				raw, err := bson.Marshal(doc)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, raw)
			}
			return out
		}
		old, now := sample("old"), sample("new")
		d, err := propose.Lens("k", "k", old, now)
		if err != nil {
			t.Fatal(err)
		}
		l, err := lens.Parse("draft.yaml", d.Text)
		if err != nil {
			t.Fatalf("%v:\n%s", err, d.Text)
		}
		explained := 0
		for i := range min(len(old), len(now)) {
			if made, err := l.Up(old[i], nil); err == nil && transform.SameFields(made, now[i]) {
				explained++
			}
		}
		if explained != d.Explained {
			t.Fatalf("%d are explained, it says %d:\n%s", explained, d.Explained, d.Text)
		}
	})
}

// TestDamagedText: the driver accepts a string that lacks its final zero, and panics when it reads it.
func TestDamagedText(t *testing.T) {
	t.Parallel()
	record := func(field string) bson.Raw {
		return bson.Raw("\x17\x00\x00\x00\x02_id\x00\x02\x00\x00\x00x\x00\x02" + field + "\x00\x00\x00\x00\x00\x00")
	}
	for _, field := range []string{"s", "t"} {
		doc := record(field)
		if err := doc.Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := propose.Lens("old", "new", []bson.Raw{record("s")}, []bson.Raw{doc}); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkLens compares as many fields as are allowed, all of different names.
func BenchmarkLens(b *testing.B) {
	sample := func(prefix string) (out []bson.Raw) {
		for i := range int32(50) {
			doc := bson.D{{Key: "_id", Value: i}}
			for f := range int64(400) {
				doc = append(doc, bson.E{Key: fmt.Sprint(prefix, f), Value: f + int64(i)})
			}
			raw, err := bson.Marshal(doc)
			if err != nil {
				b.Fatal(err)
			}
			out = append(out, raw)
		}
		return out
	}
	old, now := sample("a"), sample("b")
	for b.Loop() {
		if _, err := propose.Lens("k", "k", old, now); err != nil {
			b.Fatal(err)
		}
	}
}
