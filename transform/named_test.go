package transform

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// manyParts returns a direction that copies groups of many records, and the records of one group on
// both sides.
func manyParts(t testing.TB, n int) (d Direction, src, have []record.Record) {
	t.Helper()
	copied := func(to string) Func {
		return func(src, _ Group) ([]record.Record, error) {
			out := make([]record.Record, len(src.Records))
			for i, r := range src.Records {
				r.Kind = to
				out[i] = r
			}
			return out, nil
		}
	}
	grouped := func(kind string) Side {
		return Side{Kinds: []GroupedKind{{KindSpec: record.KindSpec{Name: kind}}, {
			KindSpec: record.KindSpec{Name: kind + "_parts"},
			GroupOf:  func(record.Key) (string, error) { return string(record.StringKey("g")), nil },
			Select:   func(string) record.Selector { return record.Selector{Key: record.StringKey("g/"), Prefix: true} },
		}}}
	}
	r := NewRegistry("test")
	err := r.Add("v1", "v2", Spec{Name: "parts", Revision: "1", Up: copied("new_parts"), Down: copied("old_parts"), Old: grouped("old"), New: grouped("new")})
	if err != nil {
		t.Fatal(err)
	}
	if d, err = r.Direction("v1", "v2"); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		key := fmt.Sprintf("g/%06d", i)
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: key}})
		if err != nil {
			t.Fatal(err)
		}
		old := record.Record{Kind: "old_parts", Key: record.StringKey(key), Doc: doc}
		src, old.Kind = append(src, old), "new_parts"
		have = append(have, old)
	}
	return d, src, have
}

// TestGroupsOfAnySize: a group is compared with what the target holds in the same way whether it has
// few or many records: equal ones are in sync, surplus ones are deleted, missing and other ones are
// written.
func TestGroupsOfAnySize(t *testing.T) {
	t.Parallel()
	id := GroupID{0, string(record.StringKey("g"))}
	for _, n := range []int{2, fewRecords, fewRecords + 1, 50} {
		d, src, have := manyParts(t, n)
		made := func(src, have []record.Record) Component {
			t.Helper()
			cs := Resolver{Direction: d}.Both([]GroupID{id}, record.Version{}, func(int) Group { return Group{Name: id.Name, Records: src} }, func(int) Group { return Group{Name: id.Name, Records: have} })
			if len(cs[0].Failed) > 0 {
				t.Fatal(cs[0].Failed[0].Err)
			}
			return cs[0]
		}
		if c := made(src, have); !c.InSync || len(c.Write.Writes) != n+1 {
			t.Errorf("%d equal records: in sync %v, %d writes", n, c.InSync, len(c.Write.Writes))
		}
		if c := made(src, have[1:]); c.InSync || len(c.Write.Writes) != n+1 {
			t.Errorf("%d records, one is missing: in sync %v, %d writes", n, c.InSync, len(c.Write.Writes))
		}
		c := made(src[:n-1], have)
		if last := c.Write.Writes[n-1]; c.InSync || len(c.Write.Writes) != n+1 || last.Key != have[n-1].Key || last.Doc != nil {
			t.Errorf("%d records, one is surplus: in sync %v, %+v", n, c.InSync, c.Write.Writes)
		}
		have[n-1].Doc = have[0].Doc
		if c := made(src, have); c.InSync {
			t.Errorf("%d records, one differs: in sync", n)
		}
	}
}

// BenchmarkLargeGroup compares one group with equal records of the target. The time for each record
// must not grow with the group: a switch waits for it.
func BenchmarkLargeGroup(b *testing.B) {
	id := GroupID{0, string(record.StringKey("g"))}
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, src, have := manyParts(b, n)
			r := Resolver{Direction: d}
			for b.Loop() {
				cs := r.Both([]GroupID{id}, record.Version{}, func(int) Group { return Group{Name: id.Name, Records: src} }, func(int) Group { return Group{Name: id.Name, Records: have} })
				if !cs[0].InSync {
					b.Fatal("not in sync")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/record")
		})
	}
}
