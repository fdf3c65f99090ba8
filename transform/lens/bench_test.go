package lens_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/packages"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// fortyFields is a record of about 1 KB: a name, 36 texts, two numbers and a list of two
// objects.
func fortyFields(b *testing.B) bson.D {
	d := bson.D{{Key: "_id", Value: "projects/p/secrets/secret-000001"}}
	for i := range 36 {
		d = append(d, bson.E{Key: fmt.Sprintf("field%02d", i), Value: strings.Repeat("x", i)})
	}
	item := func(id string) bson.D {
		return bson.D{{Key: "id", Value: id}, {Key: "image", Value: "registry.example.com/app:1"}, {Key: "memory", Value: 512}}
	}
	return append(d, bson.E{Key: "size", Value: int32(7)}, bson.E{Key: "at", Value: bson.DateTime(1e12)}, bson.E{Key: "parts", Value: bson.A{item("a"), item("b")}})
}

// BenchmarkTransform states, as the engine runs them, documents of the source a second,
// and how many times as long as copying their bytes each takes (x-copy), measured in the
// same run.
func BenchmarkTransform(b *testing.B) {
	const rekey = "key: {from: 'projects/{p}/secrets/{s}', to: 'projects/{p}/regions/{r}/secrets/{s}', with: {r: us-west2}}\n"
	const parts = "fanOut: {field: parts, as: list, kind: parts, key: '{_key}/parts/{id}', id: id, order: position}"
	three := lenstest.Orders("rename: {from: field10, to: alpha}", "convert: {field: size, from: int, to: long}", "move: {from: field20, to: o.field20}")
	for _, bm := range []struct {
		name, lens string
		down       bool
	}{
		{"raw copy", "", false},
		{"no-op", "operations: []", false},
		{"3 of 40", three, false},
		{"re-key", rekey + "operations: []", false},
		{"1 to 3", lenstest.Orders(parts), false},
		{"3 to 1", lenstest.Orders(parts), true},
	} {
		b.Run(bm.name, func(b *testing.B) {
			src := []record.Record{lenstest.Record(b, "old", fortyFields(b))}
			if bm.lens == "" {
				measure(b, src, func() error { copyRecords(src); return nil })
				return
			}
			up, down := lenstest.Ways(b, lenstest.Parse(b, bm.lens))
			id, _, err := up.GroupOf("old", src[0].Key)
			if err != nil {
				b.Fatal(err)
			}
			way := up
			if bm.down {
				if src, err = up.Transform(id, transform.Group{Name: id.Name, Records: src}, transform.Group{}); err != nil {
					b.Fatal(err)
				}
				way = down
			}
			g, have := transform.Group{Name: id.Name, Records: src}, transform.Group{Name: id.Name}
			measure(b, src, func() error {
				out, err := way.Transform(id, g, have)
				sink = out
				return err
			})
		})
	}
}

var (
	sink   []record.Record
	copied [][]byte
)

func copyRecords(rs []record.Record) {
	for i, r := range rs {
		copied[i] = bytes.Clone(r.Doc)
	}
}

// measure runs f, and by turns copies the same records as often, so that whatever else
// the machine does falls on both.
func measure(b *testing.B, src []record.Record, f func() error) {
	copied = make([][]byte, len(src))
	size := 0
	for _, r := range src {
		size += len(r.Doc)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	const turn = 128
	var copying time.Duration
	n, turns := 0, 0
	for b.Loop() {
		if n%turn == 0 {
			b.StopTimer()
			start := time.Now()
			for range turn {
				copyRecords(src)
			}
			copying += time.Since(start)
			turns++
			b.StartTimer()
		}
		if err := f(); err != nil {
			b.Fatal(err)
		}
		n++
	}
	took := b.Elapsed().Seconds()
	b.ReportMetric(float64(n*len(src))/took, "docs/s")
	b.ReportMetric(took/float64(n)/(copying.Seconds()/float64(turn*turns)), "x-copy")
}

// BenchmarkDecoded is what the three changes cost through a decoded document.
func BenchmarkDecoded(b *testing.B) {
	src := []record.Record{lenstest.Record(b, "old", fortyFields(b))}
	measure(b, src, func() error {
		var d bson.D
		if err := bson.Unmarshal(src[0].Doc, &d); err != nil {
			return err
		}
		for i := range d {
			switch d[i].Key {
			case "field10":
				d[i].Key = "alpha"
			case "size":
				d[i].Value = int64(d[i].Value.(int32))
			case "field20":
				d[i] = bson.E{Key: "o", Value: bson.D{d[i]}}
			}
		}
		_, err := bson.Marshal(d)
		return err
	})
}

// BenchmarkPackages is the sample's lens over real records.
func BenchmarkPackages(b *testing.B) {
	docs, err := packages.Load(1000)
	if err != nil {
		b.Fatal(err)
	}
	up, _ := lenstest.Ways(b, lenstest.Parse(b, string(packages.Lens())))
	groups := make([]transform.Group, len(docs))
	for i, d := range docs {
		key, err := record.KeyOfDoc(d)
		if err != nil {
			b.Fatal(err)
		}
		groups[i] = transform.Group{Name: string(key), Records: []record.Record{{Kind: "old", Key: key, Doc: d}}}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		g := groups[i%len(groups)]
		i++
		if _, err := up.Transform(transform.GroupID{Name: g.Name}, g, transform.Group{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(i)/b.Elapsed().Seconds(), "docs/s")
}
