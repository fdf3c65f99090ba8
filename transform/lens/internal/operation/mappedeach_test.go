package operation_test

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// TestMappedConditionsOfEachOperation is TestMappedConditionsMeanTheSame without chance:
// all conditions near a field, on all kinds of values in it, through one operation.
func TestMappedConditionsOfEachOperation(t *testing.T) {
	t.Parallel()
	var docs []bson.Raw
	doc := func(d bson.D) {
		raw, err := bson.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, raw)
	}
	doc(bson.D{})
	plain := []any{nil, "x", "x:y", "x:y:z", "", ":", "y", int32(1), int64(1), 1.0, int32(2), true}
	for _, v := range plain {
		o := bson.D{{Key: "k", Value: v}}
		for _, w := range []any{v, bson.A{v}, bson.A{v, "x"}, bson.A{}, bson.A{bson.A{v}}, o, bson.D{{Key: "k", Value: o}}, bson.A{o}, bson.A{o, bson.D{}}, bson.A{bson.D{{Key: "k", Value: bson.A{v}}}}} {
			doc(bson.D{{Key: "a", Value: w}})
		}
		for _, w := range plain {
			doc(bson.D{{Key: "b", Value: v}, {Key: "c", Value: w}})
		}
		doc(bson.D{{Key: "b", Value: v}})
		doc(bson.D{{Key: "o", Value: o}})
		doc(bson.D{{Key: "a", Value: bson.A{bson.D{{Key: "b", Value: v}, {Key: "c", Value: "x"}}, bson.D{{Key: "b", Value: "x"}, {Key: "c", Value: v}}}}})
	}
	var conditions []transform.Condition
	literals := []any{nil, "x", "x:y", "x:", "y", "", int64(1), 1.5, true, time.Unix(1, 0)}
	for _, p := range []string{"a", "a.*", "a.*.*", "a.*.k", "a.k", "a.*.k.*", "b", "c", "a.*.b", "o", "o.k", "o.*"} {
		for _, o := range operators {
			switch o {
			case transform.OpHas:
				conditions = append(conditions, transform.Condition{Path: p, Op: o})
				continue
			case transform.OpIn:
				conditions = append(conditions, transform.Condition{Path: p, Op: o}, transform.Condition{Path: p, Op: o, Values: []any{"x", nil}}, transform.Condition{Path: p, Op: o, Values: []any{"x:y", int64(1), "x"}})
			}
			for _, l := range literals {
				conditions = append(conditions, transform.Condition{Path: p, Op: o, Values: []any{l}})
			}
		}
	}
	for _, op := range []string{
		"rename: {from: a, to: b}", "move: {from: a, to: o.a}", "move: {from: o.k, to: a}", "wrap: {field: a}", "unwrap: {field: a}", "copy: {from: a, to: b}",
		"convert: {field: a, from: int, to: string}", "convert: {field: a, table: {x: y, 1: x, true: 2}}", "convert: {field: a.k, from: int, to: string}", "add: {field: b, default: 1}", "remove: {field: b}",
		"split: {field: a, to: [b, c], separator: ':'}", "split: {field: a, to: [b, c], separator: ':', rest: true}", "split: {field: a, to: [a, c], separator: ':'}", "join: {fields: [b, c], to: o.s, separator: '::'}",
		"each: {field: a, operations: [convert: {field: ., from: int, to: string}]}", "each: {field: a, in: list, operations: [convert: {field: ., table: {x: y, 1: x}}]}",
		"each: {field: a, in: list, operations: [wrap: {field: .}]}", "each: {field: a, operations: [unwrap: {field: .}]}", "each: {field: a, operations: [wrap: {field: k}]}", "each: {field: a, in: map, operations: [rename: {from: k, to: j}]}",
		"each: {field: a, in: list, operations: [split: {field: k, to: [b, c], separator: ':'}]}", "each: {field: a, in: list, operations: [join: {fields: [b, c], to: k, separator: ':'}]}",
		"each: {field: a, operations: [move: {from: k, to: o.k}]}", "convert: {field: a, from: number, to: string}", "convert: {field: a, from: number, to: bool}",
		"normalize: {field: a, steps: [lower, emptyToAbsent]}", "splitList: {field: a, separator: ':'}", "each: {field: a, operations: [joinList: {field: ., separator: ':', tidy: true}]}", "compute: {from: [a], to: [b], up: {b: a}, down: {a: b}}",
	} {
		t.Run(strings.ReplaceAll(op, "/", "-"), func(t *testing.T) {
			t.Parallel()
			l := lenstest.Of(t, op)
			mapped := 0
			for _, way := range []struct {
				name    string
				run     func(doc, have bson.Raw) (bson.Raw, error)
				mapping transform.Mapping
			}{{"up", l.Up, l.UpMapping()}, {"down", l.Down, l.DownMapping()}} {
				var near, far []bson.D
				for _, x := range docs {
					y, err := way.run(x, nil)
					if err != nil {
						continue
					}
					near, far = append(near, decoded(t, x)), append(far, decoded(t, y))
				}
				for _, c := range conditions {
					cs, err := way.mapping.Compare(c)
					if err != nil {
						continue
					}
					mapped++
					for i := range near {
						if got, want := allHold(far[i], cs), allHold(near[i], []transform.Condition{c}); got != want {
							t.Fatalf("%s: %v is %t of %v\n%v is %t of %v", way.name, c, want, near[i], cs, got, far[i])
						}
					}
				}
			}
			if mapped == 0 {
				t.Error("no condition was mapped")
			}
		})
	}
}

func decoded(t *testing.T, doc bson.Raw) bson.D {
	t.Helper()
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func allHold(d bson.D, cs []transform.Condition) bool {
	for _, c := range cs {
		if !lenstest.Holds(d, true, strings.Split(c.Path, "."), c) {
			return false
		}
	}
	return true
}
