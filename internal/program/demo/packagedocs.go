package app

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/examples/packages"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens"
)

// packagesKind is the application's collection, in both versions.
const packagesKind = "packages"

// shapes knows the shapes of an application's document in both versions. The application itself uses
// only fields that have the same place in both.
type shapes struct{ lens *lens.Lens }

// state returns the canonical form of a document in both versions.
func (s shapes) state(doc bson.Raw) (state, error) {
	up, err := s.lens.Up(doc, nil)
	if err != nil {
		return state{}, err
	}
	return state{v1: printDoc(doc), v2: printDoc(up)}, nil
}

// printDoc returns the canonical form of a document, with fields sorted by name. $set appends new
// fields, so their order differs from the lens's.
func printDoc(doc bson.Raw) string {
	var b bytes.Buffer
	appendDoc(&b, doc)
	return b.String()
}

func appendDoc(b *bytes.Buffer, doc bson.Raw) {
	elements, err := doc.Elements()
	if err != nil {
		fmt.Fprintf(b, "broken: %v", err)
		return
	}
	slices.SortFunc(elements, func(x, y bson.RawElement) int { return strings.Compare(x.Key(), y.Key()) })
	for _, e := range elements {
		v := e.Value()
		// Types are part of the form: an int that became a long is a difference.
		fmt.Fprintf(b, "%q:%d:", e.Key(), v.Type)
		if v.Type == bson.TypeEmbeddedDocument {
			b.WriteByte('{')
			appendDoc(b, v.Document())
			b.WriteByte('}')
		} else {
			b.WriteString(string(v.Value))
		}
		b.WriteByte(',')
	}
}

// newPackage returns a new document. Both versions have it in the same shape.
func newPackage(id any, name string, op int64) (bson.Raw, error) {
	return bson.Marshal(bson.D{
		{Key: "_id", Value: id}, {Key: "name", Value: name}, {Key: "version", Value: fmt.Sprintf("1.0-%d", op)},
		{Key: "architecture", Value: "amd64"}, {Key: "installed_size", Value: int32(op)},
		{Key: "maintainer", Value: bson.D{{Key: "name", Value: "Demo"}, {Key: "email", Value: "demo@example.com"}}},
		{Key: "depends", Value: bson.A{bson.A{bson.D{{Key: "name", Value: "libc6"}, {Key: "op", Value: ">="}, {Key: "version", Value: "2.36"}}}}},
		{Key: opField, Value: op},
	})
}

// opField holds the number of the operation that last wrote a document.
const opField = "demo_operation"

// changes returns the fields that an update sets, and the resulting document in the shape of v1.
func changes(doc bson.Raw, op int64) (set bson.D, next bson.Raw, err error) {
	set = bson.D{{Key: "version", Value: fmt.Sprintf("2.0-%d", op)}, {Key: "installed_size", Value: int32(op)}, {Key: opField, Value: op}}
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		return nil, nil, fmt.Errorf("decode document: %w", err)
	}
	for _, f := range set {
		if i := slices.IndexFunc(d, func(e bson.E) bool { return e.Key == f.Key }); i >= 0 {
			d[i].Value = f.Value
		} else {
			d = append(d, f)
		}
	}
	next, err = bson.Marshal(d)
	return set, next, err
}

// hotDocuments is the maximum number of loaded documents that clients write to. They stay in
// memory.
const hotDocuments = 20_000

// loadPackages creates the application's collection with real records and indexes, one of them
// unique. It returns the documents that clients may write to.
func loadPackages(ctx context.Context, db *mongo.Database, n int, l *ledger) (hot []bson.Raw, err error) {
	docs, err := packages.Load(n)
	if err != nil {
		return nil, err
	}
	c := db.Collection(packagesKind)
	_, err = c.Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: bson.D{{Key: "name", Value: 1}}, Options: options.Index().SetUnique(true)},
		{Keys: bson.D{{Key: "section", Value: 1}, {Key: "priority", Value: 1}}},
		{Keys: bson.D{{Key: "maintainer.email", Value: 1}}, Options: options.Index().SetSparse(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("index %s: %w", packagesKind, err)
	}
	const batch = 1000
	g, gctx := errgroup.WithContext(ctx)
	// Load in parallel: the demo should spend its time on the upgrade.
	g.SetLimit(4)
	for chunk := range slices.Chunk(docs, batch) {
		g.Go(func() error {
			_, err := c.InsertMany(gctx, chunk, options.InsertMany().SetOrdered(false))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("load %s: %w", packagesKind, err)
	}
	for _, doc := range docs {
		key, err := record.KeyOfDoc(doc)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", packagesKind, err)
		}
		// Loaded documents must survive as well, even if no client writes to them.
		l.Load(string(key))
	}
	return docs[:min(len(docs), hotDocuments)], nil
}
