package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/examples/packages"
)

// dataset is a set of collections in the source cluster. It stays from run to run, since a copy
// does not change it.
type dataset struct {
	name  string         // of its database
	sizes map[string]int // number of records by collection
	make  func(i int) any
	order func(i int) int // index of the i-th inserted record; nil: in order
	lens  string
}

// records returns the total number of records.
func (d dataset) records() (n int) {
	for _, size := range d.sizes {
		n += size
	}
	return n
}

func (d dataset) collections() (names []string) {
	for name := range d.sizes {
		names = append(names, name)
	}
	return names
}

const kindName = "documents"

// identity is a lens without changes.
const identity = "lens: 1\noperations: []\n"

func one(name string, records int, by func(int) any) dataset {
	return dataset{name: name, sizes: map[string]int{kindName: records}, make: by, lens: identity}
}

func (b *bench) small(name string, records int) dataset {
	return one(name, records, func(i int) any { return document(i, b.size) })
}

// wide returns records with 40 fields, of which its lens changes three.
func (b *bench) wide() dataset {
	d := one("wide", b.others, func(i int) any {
		doc := bson.D{{Key: "_id", Value: key(i)}}
		for f := range 36 {
			doc = append(doc, bson.E{Key: fmt.Sprintf("field%02d", f), Value: filler(i*40+f, 20)})
		}
		return append(doc, bson.E{Key: "section", Value: "net"}, bson.E{Key: "size", Value: int32(i)}, bson.E{Key: "homepage", Value: "https://example.com"})
	})
	d.lens = `lens: 1
operations:
  - rename: {from: section, to: category}
  - convert: {field: size, from: int, to: long}
  - move: {from: homepage, to: links.homepage}
`
	return d
}

// many returns 30 collections whose sizes grow from 10 to a third of all records.
func (b *bench) many() dataset {
	d := b.small("many", 0)
	d.sizes = map[string]int{}
	const collections = 30
	// A geometric series, because a few large and many small collections are common.
	size, growth := 10.0, 1.01
	for ; ; growth += 0.005 { // search the growth factor for the wanted total
		sum, s := 0.0, size
		for range collections {
			sum, s = sum+s, s*growth
		}
		if sum >= float64(b.others)/2 {
			break
		}
	}
	for i := range collections {
		d.sizes[fmt.Sprintf("collection%02d", i)] = int(size)
		size *= growth
	}
	return d
}

// shuffled returns records inserted in random order of their ids.
func (b *bench) shuffled() dataset {
	d := b.small("shuffled", b.others/2)
	order := rand.New(rand.NewPCG(1, 2)).Perm(d.records())
	d.order = func(i int) int { return order[i] }
	return d
}

// real returns the committed real data, repeated for several rounds.
func (b *bench) real() (dataset, error) {
	// At least one record, so that a small run still has a row.
	docs, err := packages.Load(max(min(b.others/2, 4*packages.Available), 1))
	if err != nil {
		return dataset{}, err
	}
	d := one("real", len(docs), func(i int) any { return docs[i] })
	d.lens = string(packages.Lens())
	return d, nil
}

func key(i int) string { return fmt.Sprintf("document-%09d", i) }

// text is the source of fillers. It is random because databases compress repetitions.
var text = func() string {
	rng := rand.New(rand.NewPCG(3, 4))
	var b strings.Builder
	for range 1 << 18 {
		b.WriteByte("abcdefghijklmnopqrstuvwxyz0123456789"[rng.IntN(36)])
	}
	return b.String()
}()

func filler(i, size int) string {
	if size <= 0 {
		return ""
	}
	// A prime step, so that neighbouring records get different texts.
	at := i * 7919 % (len(text) - size)
	return text[at : at+size]
}

// document returns a record of about size bytes.
func document(i, size int) bson.D {
	return bson.D{
		{Key: "_id", Value: key(i)}, {Key: "n", Value: int64(i)}, {Key: "at", Value: int64(0)},
		{Key: "owner", Value: bson.D{{Key: "name", Value: "somebody"}, {Key: "mail", Value: "somebody@example.com"}}},
		{Key: "tags", Value: bson.A{"a", "b", "c"}},
		{Key: "payload", Value: filler(i, size-170)},
	}
}

// fill creates a dataset in the source cluster unless it exists.
func (b *bench) fill(ctx context.Context, d dataset) error {
	b.filling.Lock()
	defer b.filling.Unlock()
	if b.filled[d.name] {
		return nil
	}
	if err := d.insert(ctx, b.from.client.Database(d.name)); err != nil {
		// A partial dataset would count as complete in the next run.
		b.from.drop(ctx, d.name)
		return fmt.Errorf("fill %s: %w", d.name, err)
	}
	b.filled[d.name] = true
	return nil
}

// insert writes all records. Sharded collections must already exist.
func (d dataset) insert(ctx context.Context, db *mongo.Database) error {
	for name, size := range d.sizes {
		if err := d.insertInto(ctx, db.Collection(name), size); err != nil {
			return err
		}
	}
	return nil
}

func (d dataset) insertInto(ctx context.Context, col *mongo.Collection, size int) error {
	col = collection(col, 1) // faster than w:majority, and the server has one member
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	const batch = 1000
	for from := 0; from < size; from += batch {
		g.Go(func() error {
			docs := make([]any, 0, batch)
			for i := from; i < min(size, from+batch); i++ {
				at := i
				if d.order != nil {
					at = d.order(i)
				}
				docs = append(docs, d.make(at))
			}
			_, err := col.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
			return err
		})
	}
	return g.Wait()
}
