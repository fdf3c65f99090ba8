package operation_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/lenstest"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

var operators = []transform.Operator{transform.OpEqual, transform.OpLess, transform.OpLessEqual, transform.OpGreater, transform.OpGreaterEqual, transform.OpIn, transform.OpContains, transform.OpPrefix, transform.OpHas}

// drawCondition draws a condition that a record has some chance to meet.
func drawCondition(t *rapid.T, paths []string) transform.Condition {
	c := transform.Condition{Path: rapid.SampledFrom(paths).Draw(t, "path"), Op: rapid.SampledFrom(operators).Draw(t, "operator")}
	literal := rapid.SampledFrom([]any{
		nil, "x", "x:y", "y", "1", "2", "", "1.5", "true", "x:y:z", "a", "00000000000000000000000a", "1970-01-01T00:00:05Z", true, false,
		int64(0), int64(1), int64(2), int64(5), uint64(1), 1.0, 1.5, 0.0, 2.5, math.NaN(), int64(1) << 60,
		time.UnixMilli(5).UTC(), time.Unix(5, 0).UTC(), time.Unix(1, 5e8).UTC(), time.Unix(2, 1).UTC(),
	})
	switch c.Op {
	case transform.OpHas:
	case transform.OpIn:
		c.Values = rapid.SliceOfN(literal, 0, 3).Draw(t, "literals")
	default:
		c.Values = []any{literal.Draw(t, "literal")}
	}
	return c
}

// TestMappedConditionsMeanTheSame: on what a lens makes of a record, a mapped condition
// has the same result as the condition on the record, or it was refused. The lenses are
// drawn from all operations, over documents of all types.
func TestMappedConditionsMeanTheSame(t *testing.T) {
	t.Parallel()
	mapped, met := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		l, text := lenstest.DrawLens(t)
		var paths []string
		for range 4 {
			parts := rapid.SliceOfN(rapid.SampledFrom(append([]string{"*"}, lenstest.Names...)), 0, 2).Draw(t, "condition path")
			paths = append(paths, strings.Join(append([]string{rapid.SampledFrom(lenstest.Names).Draw(t, "first part")}, parts...), "."))
		}
		for _, way := range []struct {
			run     func(doc, have bson.Raw) (bson.Raw, error)
			mapping transform.Mapping
		}{{l.Up, l.UpMapping()}, {l.Down, l.DownMapping()}} {
			var docs []bson.Raw
			for range 5 {
				docs = append(docs, lenstest.DrawRecord(t))
			}
			for range 5 {
				cs := []transform.Condition{drawCondition(t, paths)}
				if rapid.IntRange(0, 4).Draw(t, "two") == 0 {
					cs = append(cs, drawCondition(t, paths))
				}
				far, err := transform.CompareAll(way.mapping, cs)
				if err != nil {
					var refused *transform.MappingError
					if !errors.As(err, &refused) || refused.Field == "" {
						t.Fatalf("%v: %T %v", cs, err, err)
					}
					continue
				}
				mapped++
				for _, x := range docs {
					y, err := way.run(x, nil)
					if err != nil {
						continue
					}
					got, want := lenstest.HoldsAll(t, y, far), lenstest.HoldsAll(t, x, cs)
					if got != want {
						t.Fatalf("%s\n%v is %t of %s\n%v is %t of %s", text, cs, want, x, far, got, y)
					}
					if want {
						met++
					}
				}
			}
		}
	})
	if (mapped == 0 || met == 0) && !raced.FewDrawn() {
		t.Errorf("of the drawn conditions %d were mapped and %d met", mapped, met)
	}
}

// TestMappedConversions: the same for every pair of types, with values and literals that
// are close to each other.
func TestMappedConversions(t *testing.T) {
	t.Parallel()
	id := bson.ObjectID{1, 2}
	values := map[scalar.Type][]any{
		scalar.String: {"1", "-0", "0", "1.5", "true", id.Hex(), strings.ToUpper(id.Hex()), "NaN", "1e+23", "x"},
		scalar.Int:    {int32(0), int32(1), int32(-5), int32(math.MaxInt32)}, scalar.Long: {int64(0), int64(1), int64(5), int64(1)<<53 + 1, int64(1) << 40},
		scalar.Double:  {0.0, math.Copysign(0, -1), 1.0, 1.5, 0.1, 1e23, math.Inf(1), math.NaN(), float64(1 << 40)},
		scalar.Decimal: {decimal(t, "0"), decimal(t, "1"), decimal(t, "1.0"), decimal(t, "0.1"), decimal(t, "1.5"), decimal(t, "1E+23"), decimal(t, "-0")},
		scalar.Bool:    {true, false}, scalar.ObjectID: {id, bson.ObjectID{}}, scalar.UUID: {bson.Binary{Subtype: 4, Data: make([]byte, 16)}},
		scalar.Date: {bson.DateTime(0), bson.DateTime(1000), bson.DateTime(1500), bson.DateTime(-1000)}, scalar.Epoch: {int64(0), int64(1), int64(-1)},
		scalar.RFC3339: {"1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z", "1970-01-01T00:00:01.500Z", "1970-01-01T01:00:01+01:00"},
	}
	values[scalar.Number] = slices.Concat(values[scalar.Int], values[scalar.Long], values[scalar.Double], values[scalar.Decimal])
	literals := []any{nil, "1", "0", "-0", "1.5", "true", id.Hex(), strings.ToUpper(id.Hex()), "NaN", "1e+23", "1970-01-01T00:00:01Z", "1970-01-01T00:00:01.500Z", true, false,
		int64(0), int64(1), int64(5), int64(1) << 40, int64(1)<<53 + 1, uint64(1), 0.0, 1.0, 1.5, 0.1, 1e23, 0.5, -0.5, math.Inf(1), math.NaN(),
		time.Unix(0, 0), time.Unix(1, 0), time.Unix(1, 5e8), time.Unix(0, 1), time.Unix(-1, 1)}
	mapped := map[string]int{}
	for _, from := range scalar.Types {
		for _, to := range from.Targets() {
			l := lenstest.Of(t, fmt.Sprintf("convert: {field: a, from: %s, to: %s}", from, to))
			for _, v := range append(values[from], nil) {
				x, err := bson.Marshal(bson.D{{Key: "a", Value: v}})
				if err != nil {
					t.Fatal(err)
				}
				y, err := l.Up(x, nil)
				if err != nil {
					continue
				}
				for _, o := range operators {
					for _, literal := range literals {
						c := transform.Condition{Path: "a", Op: o, Values: []any{literal}}
						far, err := l.UpMapping().Compare(c)
						if err != nil {
							continue
						}
						mapped[fmt.Sprint(from, to, o)]++
						var dx, dy bson.D
						if bson.Unmarshal(x, &dx) != nil || bson.Unmarshal(y, &dy) != nil {
							t.Fatal("unmarshal")
						}
						if got, want := lenstest.Holds(dy, true, []string{"a"}, far[0]), lenstest.Holds(dx, true, []string{"a"}, c); len(far) != 1 || got != want {
							t.Errorf("%s to %s: %v is %t of %s, %v is %t of %s", from, to, c, want, bson.Raw(x), far, got, y)
						}
					}
				}
			}
		}
	}
	for _, pair := range []string{"intlong<", "doubledecimal==", "dateepoch<=", "epochdate>", "stringint==", "objectIdstringin", "boolint=="} {
		if mapped[pair] == 0 {
			t.Errorf("%s was never mapped", pair)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	type cs = []transform.Condition
	eq := func(path string, v any) transform.Condition {
		return transform.Condition{Path: path, Op: transform.OpEqual, Values: []any{v}}
	}
	cond := func(path string, o transform.Operator, vs ...any) transform.Condition {
		return transform.Condition{Path: path, Op: o, Values: vs}
	}
	const split = "split: {field: at, to: [host, port], separator: ':'}"
	for _, tc := range []struct {
		name  string
		ops   []string
		down  bool
		given cs
		want  cs
		err   string
	}{
		{"untouched", nil, false, cs{eq("x", 1)}, cs{eq("x", 1)}, ""},
		{"renamed object", []string{"rename: {from: o, to: p}"}, false, cs{cond("o.a", transform.OpPrefix, "x")}, cs{cond("p.a", transform.OpPrefix, "x")}, ""},
		{"table", []string{"convert: {field: a, table: {x: 1, y: 2}}"}, false, cs{cond("a", transform.OpIn, "x", "z", "y")}, cs{cond("a", transform.OpIn, int64(1), int64(2))}, ""},
		{"not in the table", []string{"convert: {field: a, table: {x: 1, y: 2}}"}, false, cs{eq("a", "z")}, cs{cond("a", transform.OpIn)}, ""},
		{"order by a table", []string{"convert: {field: a, table: {x: 1, y: 2}}"}, false, cs{cond("a", transform.OpLess, "z")}, nil, "a: only == and in can be mapped (convert a by table)"},
		{"wrapped", []string{"wrap: {field: a}"}, false, cs{cond("a", transform.OpLess, int64(5))}, cs{cond("a.*", transform.OpLess, int64(5))}, ""},
		{"unwrapped", []string{"wrap: {field: a}"}, true, cs{cond("a", transform.OpContains, "x")}, cs{eq("a", "x")}, ""},
		{"split", []string{split}, false, cs{eq("at", "h:80")}, cs{eq("host", "h"), eq("port", "80")}, ""},
		{"split of what has no parts", []string{split}, false, cs{eq("at", "h")}, cs{cond("host", transform.OpIn)}, ""},
		{"beginning of the first part", []string{split}, false, cs{cond("at", transform.OpPrefix, "h")}, cs{cond("host", transform.OpPrefix, "h")}, ""},
		{"first part and a beginning", []string{split}, false, cs{cond("at", transform.OpPrefix, "h:8")}, cs{eq("host", "h"), cond("port", transform.OpPrefix, "8")}, ""},
		{"first part whole", []string{split}, false, cs{cond("at", transform.OpPrefix, "h:")}, cs{eq("host", "h")}, ""},
		{"beginning of more parts", []string{split}, false, cs{cond("at", transform.OpPrefix, "h:8:")}, cs{cond("host", transform.OpIn)}, ""},
		{"beginning in a separator", []string{"split: {field: at, to: [host, port], separator: ', '}"}, false, cs{cond("at", transform.OpPrefix, "h,")}, nil, "may end within a separator"},
		{"split by what it holds", []string{split}, false, cs{cond("at", transform.OpContains, "h")}, nil, "only ==, in and has"},
		{"joined", []string{split}, true, cs{eq("port", "80"), eq("x", 1), eq("host", "h")}, cs{eq("x", 1), eq("at", "h:80")}, ""},
		{"first part", []string{split}, true, cs{eq("host", "h")}, cs{cond("at", transform.OpPrefix, "h:")}, ""},
		{"last part alone", []string{split}, true, cs{eq("port", "80")}, nil, "only together with host"},
		{"part with a separator", []string{split}, true, cs{eq("host", "h:1")}, cs{cond("at", transform.OpIn)}, ""},
		{"items", []string{"each: {field: l, operations: [rename: {from: n, to: m}, convert: {field: m, from: int, to: string}]}"}, false, cs{eq("l.*.n", int64(5))}, cs{eq("l.*.m", "5")}, ""},
		{"contains", []string{"each: {field: l, in: list, operations: [convert: {field: ., from: int, to: string}]}"}, false, cs{cond("l", transform.OpContains, int64(5))}, cs{cond("l", transform.OpContains, "5")}, ""},
		{"split items", []string{"each: {field: l, operations: [" + split + "]}"}, false, cs{eq("l.*.at", "h:80")}, nil, "the same item would have to meet"},
		{"entry of a map", []string{"each: {field: m, in: map, operations: [" + split + "]}"}, false, cs{eq("m.k.at", "h:80")}, cs{eq("m.k.host", "h"), eq("m.k.port", "80")}, ""},
		{"any entry where one is another", []string{"convert: {field: m.k, from: int, to: string}"}, false, cs{eq("m.*", int64(5))}, nil, "it means any entry"},
		{"removed", []string{"remove: {field: a}"}, false, cs{eq("a", 1)}, nil, "a: the other version does not have it (remove a)"},
		{"added", []string{"add: {field: a, default: 1}"}, true, cs{eq("a", 1)}, nil, "a: the other version does not have it (add a)"},
		{"copied", []string{"copy: {from: a, to: b}"}, true, cs{eq("b", 1)}, nil, "b: the other version does not have it (copy a to b)"},
		{"the other version's", []string{"rename: {from: a, to: b}"}, false, cs{eq("b", 1)}, nil, "only the other version has a field of that name (rename a to b)"},
		{"computed", []string{"compute: {from: [a], to: [b], up: {b: a}, down: {a: b}}"}, false, cs{eq("a", 1)}, nil, "a: it is calculated from other fields"},
		{"object", []string{"move: {from: o.a, to: a}"}, false, cs{cond("o", transform.OpHas)}, nil, "o: it is an object whose fields"},
		{"no path", nil, false, cs{eq("a..b", 1)}, nil, "empty part"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := lenstest.Of(t, tc.ops...)
			m := l.UpMapping()
			if tc.down {
				m = l.DownMapping()
			}
			got, err := transform.CompareAll(m, tc.given)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, error %v, want %q", got, err, tc.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%v, %v\nwant %v", got, err, tc.want)
			}
		})
	}
}

func TestFieldAndOrder(t *testing.T) {
	t.Parallel()
	l := lenstest.Of(t, "rename: {from: section, to: category}", "move: {from: o.home, to: links.home}", "split: {field: o.at, to: [host, port], separator: ':'}",
		"convert: {field: size, from: int, to: long}", "convert: {field: when, from: rfc3339, to: date}", "remove: {field: legacy}", "add: {field: state, default: new}",
		"wrap: {field: tag}", "each: {field: items, in: list, operations: [move: {from: x.y, to: z}]}")
	for _, tc := range []struct {
		path, want, order string
		down              bool
	}{
		{"a.b", "a.b", "a.b", false},
		{"_id", "_id", "_id", false},
		{"section", "category", "category", false},
		{"category", "section", "section", true},
		{"o.home.x", "links.home.x", "links.home.x", false},
		{"o", "o host port links.home", "", false},
		{"o.at", "host port", "", false},
		{"host", "o.at", "", true},
		{"size", "size", "size", false},
		{"when", "when", "", false},
		{"legacy", "", "", false},
		{"state", "", "", true},
		{"tag", "tag", "", false},
		{"tag.x", "tag.*.x", "", false},
		{"tag.*.x", "tag.x", "", true},
		{"items", "items", "", false},
		{"items.*.x.y.k", "items.*.z.k", "", false},
		{"items.*.x", "items.*.x items.*.z", "", false},
		{"items.3.z", "items.3.x.y", "items.3.x.y", true},
	} {
		m := l.UpMapping()
		if tc.down {
			m = l.DownMapping()
		}
		got, err := m.Field(tc.path)
		var refused *transform.MappingError
		if strings.Join(got, " ") != tc.want || (err != nil) != (tc.want == "") || err != nil && (!errors.As(err, &refused) || refused.Field != tc.path) {
			t.Errorf("%s: %v, %v", tc.path, got, err)
		}
		sorted, err := m.Order(tc.path)
		if sorted != tc.order || (err != nil) != (tc.order == "") {
			t.Errorf("order by %s: %s, %v", tc.path, sorted, err)
		}
	}
}

func decimal(t testing.TB, s string) bson.Decimal128 {
	t.Helper()
	d, err := bson.ParseDecimal128(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
