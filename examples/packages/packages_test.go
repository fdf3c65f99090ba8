package packages

import (
	"bytes"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestFurtherRoundsNeverCollide checks the rule for integers over many rounds;
// the suffixes of names cannot collide.
func TestFurtherRoundsNeverCollide(t *testing.T) {
	t.Parallel()
	seen := map[int64]bool{}
	for round := range 100 {
		for _, id := range []any{int32(1), int32(Available), int64(1)<<33 + 1, int64(1)<<33 + Available} {
			kind, data, err := bson.MarshalValue(id)
			if err != nil {
				t.Fatal(err)
			}
			got, err := idInRound(bson.RawValue{Type: kind, Value: data}, round, "")
			if err != nil {
				t.Fatal(err)
			}
			if seen[got.(int64)] {
				t.Fatalf("round %d gives _id %d a second time", round, got)
			}
			seen[got.(int64)] = true
		}
	}
}

func TestLoadCounts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ limit, want int }{
		{0, Available}, {1, 1}, {100, 100}, {Available, Available}, {Available + 1, Available + 1},
	} {
		t.Run(fmt.Sprint(tc.limit), func(t *testing.T) {
			t.Parallel()
			docs, err := Load(tc.limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(docs) != tc.want {
				t.Errorf("%d records, want %d", len(docs), tc.want)
			}
		})
	}
	if _, err := Load(-1); err == nil {
		t.Error("a negative limit was accepted")
	}
}

func TestRecordsAreValidAndUnique(t *testing.T) {
	t.Parallel()
	docs, err := Load(Available + 2000)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	numbers := map[int64]bool{} // equal numbers of different types are one key
	names := map[string]bool{}
	for i, d := range docs {
		if err := d.Validate(); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		elements, err := d.Elements()
		if err != nil || elements[0].Key() != "_id" {
			t.Fatalf("record %d does not start with _id: %v", i, err)
		}
		id, name := d.Lookup("_id"), d.Lookup("name").StringValue()
		if n, ok := id.AsInt64OK(); ok {
			if numbers[n] {
				t.Fatalf("record %d repeats _id %d", i, n)
			}
			numbers[n] = true
		}
		if ids[id.String()] || names[name] {
			t.Fatalf("record %d repeats _id %s or name %s", i, id, name)
		}
		ids[id.String()], names[name] = true, true
	}
}

// TestSampleIsIrregular keeps the traits that tests elsewhere count on.
func TestSampleIsIrregular(t *testing.T) {
	t.Parallel()
	docs, err := Load(0)
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]int{}
	for _, d := range docs {
		elements, err := d.Elements()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range elements {
			types[e.Key()+" "+e.Value().Type.String()]++
		}
	}
	for _, tc := range []struct {
		trait    string
		min, max int
	}{
		{"_id string", 24000, 24500},
		{"_id embedded document", 300, 450},
		{"_id 32-bit integer", 150, 350},
		{"_id 64-bit integer", 80, 200},
		{"_id array", 0, 0},
		{"name string", Available, Available},
		{"version string", Available, Available},
		{"maintainer embedded document", Available, Available},
		{"size 32-bit integer", Available, Available},
		{"installed_size 32-bit integer", 24000, Available - 1},
		{"source string", 10000, 20000},
		{"source embedded document", 1000, 10000},
		{"depends array", 20000, Available - 1},
		{"tags embedded document", 10000, 15000},
		{"homepage string", 20000, Available - 1},
		{"essential boolean", 1, 100},
	} {
		if n := types[tc.trait]; n < tc.min || n > tc.max {
			t.Errorf("%s: %d records, want %d to %d", tc.trait, n, tc.min, tc.max)
		}
	}
}

func TestLoadIsDeterministicAndOwnedByTheCaller(t *testing.T) {
	t.Parallel()
	first, err := Load(50)
	if err != nil {
		t.Fatal(err)
	}
	kept := bytes.Clone(first[0])
	clear(first[0])
	again, err := Load(60)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, again[0]) || !bytes.Equal(first[49], again[49]) {
		t.Error("a second Load gives other records")
	}
}

func TestFurtherRoundsChangeOnlyNames(t *testing.T) {
	t.Parallel()
	docs, err := Load(Available + 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		var was, is bson.M
		if err := bson.Unmarshal(docs[i], &was); err != nil {
			t.Fatal(err)
		}
		if err := bson.Unmarshal(docs[Available+i], &is); err != nil {
			t.Fatal(err)
		}
		if want := was["name"].(string) + "~1"; is["name"] != want {
			t.Fatalf("record %d has name %v in round 1, want %s", i, is["name"], want)
		}
		if was["sha256"] != is["sha256"] || len(was) != len(is) {
			t.Fatalf("record %d differs in more than its names", i)
		}
	}
}

func ExampleLoad() {
	docs, err := Load(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range docs {
		fmt.Println(d.Lookup("_id"), d.Lookup("version"), d.Lookup("tags"))
	}
	// Output:
	// "0ad-data" "0.0.26-1" {"role": "app-data"}
	// "0ad-data-common" "0.0.26-1" {"game": "strategy","role": ["app-data","program"],"use": "gameplaying"}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load(0); err != nil {
			b.Fatal(err)
		}
	}
}
