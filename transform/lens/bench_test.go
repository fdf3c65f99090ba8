package lens

import (
	"bytes"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/record"
	"dbcontroller/sample/packages"
	"dbcontroller/transform"
)

// twentyFields is a flat document of about 500 bytes.
func twentyFields(b *testing.B) bson.Raw {
	d := bson.D{{Key: "_id", Value: "key-000001"}}
	for i := range 19 {
		d = append(d, bson.E{Key: "field" + string(rune('a'+i)), Value: "some text of 20 bytes"[:i+2]})
	}
	d[5].Value, d[10].Value = int32(5), int32(10)
	raw, err := bson.Marshal(d)
	if err != nil {
		b.Fatal(err)
	}
	return raw
}

var sink bson.Raw

func BenchmarkCopyBytes(b *testing.B) {
	d := twentyFields(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(d)))
	for b.Loop() {
		sink = bytes.Clone(d)
	}
}

func benchmarkUp(b *testing.B, l *Lens, d bson.Raw) {
	b.ReportAllocs()
	b.SetBytes(int64(len(d)))
	for b.Loop() {
		out, err := l.Up(d, nil)
		if err != nil {
			b.Fatal(err)
		}
		sink = out
	}
}

func BenchmarkNoOperations(b *testing.B) { benchmarkUp(b, parse(b), twentyFields(b)) }

func BenchmarkNothingToDo(b *testing.B) {
	benchmarkUp(b, parse(b, "rename: {from: x, to: y}"), twentyFields(b))
}

func BenchmarkThreeOfTwentyFields(b *testing.B) {
	benchmarkUp(b, parse(b, "rename: {from: fielda, to: alpha}", "convert: {field: fielde, from: int, to: long}", "move: {from: fieldj, to: o.fieldj}"), twentyFields(b))
}

// BenchmarkDecoded is what the same three changes cost through a decoded document.
func BenchmarkDecoded(b *testing.B) {
	raw := twentyFields(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		var d bson.D
		if err := bson.Unmarshal(raw, &d); err != nil {
			b.Fatal(err)
		}
		for i := range d {
			switch d[i].Key {
			case "fielda":
				d[i].Key = "alpha"
			case "fielde":
				d[i].Value = int64(d[i].Value.(int32))
			case "fieldj":
				d[i] = bson.E{Key: "o", Value: bson.D{{Key: "fieldj", Value: d[i].Value}}}
			}
		}
		out, err := bson.Marshal(d)
		if err != nil {
			b.Fatal(err)
		}
		sink = out
	}
}

// BenchmarkPackages is the sample's lens as the engine runs it.
func BenchmarkPackages(b *testing.B) {
	docs, err := packages.Load(1000)
	if err != nil {
		b.Fatal(err)
	}
	up, _ := directions(b, packagesLens(b).Spec("packages", "packages"))
	groups := make([]transform.Group, len(docs))
	total := 0
	for i, d := range docs {
		key, err := record.KeyOfDoc(d)
		if err != nil {
			b.Fatal(err)
		}
		groups[i] = transform.Group{Name: string(key), Records: []record.Record{{Kind: "packages", Key: key, Doc: d}}}
		total += len(d)
	}
	b.ReportAllocs()
	b.SetBytes(int64(total / len(docs)))
	i := 0
	for b.Loop() {
		g := groups[i%len(groups)]
		i++
		if _, err := up.Transform(transform.GroupID{Name: g.Name}, g, transform.Group{}); err != nil {
			b.Fatal(err)
		}
	}
}
