package provision

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// Collections creates, describes, changes and drops collections and their indexes.
type Collections struct {
	*conn.Conn
	fences    *fences.Fences
	offending offending
}

// New returns the collections of a connection's database.
func New(c *conn.Conn, f *fences.Fences) *Collections { return &Collections{Conn: c, fences: f} }

// Provision creates or completes a kind's collection: its options if it is new, its indexes, and
// the side collection of guards for a fixed-name kind. It returns when the indexes are complete. It
// may be repeated.
//
// Provision refuses an existing collection under a managed or hidden name if it has documents and
// Provision did not create it. The documents would count as records of the kind, without guards to
// protect them. A fixed-name kind's collection under its own name belongs to the application and
// may hold anything.
//
// For a managed kind, Provision changes the validator so that tombstones pass. Unique indexes get
// the condition that their first field exists, because tombstones have no fields. Records without
// that field are then not compared with each other. The validator of a managed kind must allow the
// field "_dbc".
func (n *Collections) Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	tok, err := n.provision(ctx, kind, name)
	if err != nil {
		return record.Token{}, fmt.Errorf("provision %s.%s: %w", n.Name, name, conn.WithPrivilege(err))
	}
	return tok, nil
}

func (n *Collections) provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	if err := checkOptions(n.Name+"."+name, kind.Shape.Options); err != nil {
		return record.Token{}, err
	}
	specs, err := indexSpecs(kind)
	if err != nil {
		return record.Token{}, err
	}
	var tok record.Token
	// Each step is idempotent, so the whole sequence can be retried.
	err = n.UntilDone(ctx, "", func(ctx context.Context) error {
		c, err := n.ensureCollection(ctx, kind, name)
		if err != nil {
			return fences.Decided(err)
		}
		checks, err := n.fences.Checks.Ask(ctx, struct{}{})
		if err != nil {
			return err
		}
		tok = tokenOf(kind, c, checks)
		if kind.Fixed {
			n.ForgetSide(kind.Name) // it may have been dropped since
			if err := n.EnsureSide(ctx, kind.Name); err != nil {
				return err
			}
		}
		return n.ensureIndexes(ctx, tok, specs)
	})
	return tok, err
}

// ensureCollection returns the collection of a kind, and creates it if it is missing.
func (n *Collections) ensureCollection(ctx context.Context, kind record.KindSpec, name string) (*conn.Collection, error) {
	c, err := n.CollectionNamed(ctx, name)
	if err != nil {
		return nil, err
	}
	if c != nil {
		if err := n.refuse(ctx, c); err != nil {
			return nil, err
		}
		return c, n.adopt(ctx, kind, c)
	}
	cmd := bson.D{{Key: "create", Value: name}}
	elems, err := kind.Shape.Options.Elements()
	if len(kind.Shape.Options) > 0 && err != nil {
		return nil, conn.Permanent(fmt.Errorf("read options: %w", err))
	}
	for _, e := range elems {
		v := any(e.Value())
		if validator, ok := e.Value().DocumentOK(); ok && e.Key() == "validator" && !kind.Fixed {
			v = passTombstones(validator)
		}
		cmd = append(cmd, bson.E{Key: e.Key(), Value: v})
	}
	cmd = append(cmd, bson.E{Key: "writeConcern", Value: conn.MajorityWithin(conn.ConcernWait)})
	if err := n.DB.RunCommand(ctx, cmd).Err(); err != nil {
		return nil, err
	}
	// The reply has no UUID, so list the new collection.
	if c, err = n.CollectionNamed(ctx, name); err != nil {
		return nil, err
	}
	if c == nil {
		return nil, fmt.Errorf("collection is gone: %w", record.ErrBroken)
	}
	// The application's own collection needs no note.
	if kind.Fixed && c.Name == kind.Name {
		return c, nil
	}
	return c, n.noteOurs(ctx, kind, c) // we created it, so it holds no documents of others
}

// adopt records an existing collection as ours. It refuses one that has documents and that
// Provision did not create.
func (n *Collections) adopt(ctx context.Context, kind record.KindSpec, c *conn.Collection) error {
	if kind.Fixed && c.Name == kind.Name {
		return nil
	}
	note, err := n.Noted(ctx, conn.NoteProvisioned+c.ID())
	if err != nil || note != nil {
		return err
	}
	// Empty: nothing can be taken for a record, so take the collection over.
	raw, err := n.DB.RunCommand(ctx, bson.D{
		{Key: "find", Value: c.Name}, {Key: "limit", Value: 1}, {Key: "singleBatch", Value: true},
	}).Raw()
	if err != nil {
		return fmt.Errorf("look for documents: %w", err)
	}
	found, err := wire.First(raw)
	if err != nil {
		return fmt.Errorf("look for documents: %w", err)
	}
	if found != nil {
		return &record.UnsupportedError{
			What:   "collection " + n.Name + "." + c.Name,
			Reason: "it has documents and dbcontroller did not create it; drop or rename it, or give the version another database",
		}
	}
	return n.noteOurs(ctx, kind, c)
}

func (n *Collections) noteOurs(ctx context.Context, kind record.KindSpec, c *conn.Collection) error {
	return n.Note(ctx, conn.NoteProvisioned+c.ID(), bson.D{{Key: "$set", Value: bson.D{{Key: "kind", Value: kind.Name}, {Key: "name", Value: c.Name}}}})
}

// passTombstones returns a validator that a managed kind's tombstones pass too.
func passTombstones(validator bson.Raw) bson.D {
	tombstone := bson.D{{Key: wire.GuardField + ".x", Value: true}}
	return bson.D{{Key: "$or", Value: bson.A{tombstone, validator}}}
}

// withoutTombstones returns the validator inside passTombstones, and any other validator unchanged.
// Copied to a fixed-name kind, the wrapper would let through application documents that look like
// tombstones.
func withoutTombstones(validator bson.Raw) bson.Raw {
	inner, ok := rawdoc.Lookup(validator, "$or", "1").DocumentOK()
	if !ok {
		return validator
	}
	if ours, err := bson.Marshal(passTombstones(inner)); err != nil || !bytes.Equal(ours, validator) {
		return validator
	}
	return inner
}

// indexSpecs returns the declared indexes in the form of createIndexes.
func indexSpecs(kind record.KindSpec) ([]bson.D, error) {
	var specs []bson.D
	for _, raw := range kind.Shape.Indexes {
		var spec bson.D
		if err := bson.Unmarshal(raw, &spec); err != nil {
			return nil, fmt.Errorf("read index: %w", err)
		}
		key, ok := lookup(spec, "key").(bson.D)
		if !ok || len(key) == 0 {
			return nil, fmt.Errorf("index %s has no key", raw)
		}
		if len(key) == 1 && key[0].Key == "_id" && key[0].Value != "hashed" && lookup(spec, "unique") == nil {
			continue // every collection has this one
		}
		// Fields of older servers' catalogs that createIndexes refuses.
		spec = slices.DeleteFunc(spec, func(e bson.E) bool { return e.Key == "ns" || e.Key == "background" })
		if lookup(spec, "name") == nil {
			spec = append(spec, bson.E{Key: "name", Value: record.DefaultIndexName(key)})
		}
		if unique, _ := lookup(spec, "unique").(bool); unique && !kind.Fixed {
			spec = skipTombstones(spec, key)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// skipTombstones keeps a managed kind's tombstones out of a unique index, where they would all
// collide on null.
func skipTombstones(spec, key bson.D) bson.D {
	if sparse, _ := lookup(spec, "sparse").(bool); sparse {
		return spec // sparse indexes skip documents without the fields
	}
	// A tombstone has an _id, so it cannot collide.
	for _, k := range key {
		if k.Key == "_id" {
			return spec
		}
	}
	present := bson.E{Key: key[0].Key, Value: bson.D{{Key: "$exists", Value: true}}}
	at := slices.IndexFunc(spec, func(e bson.E) bool { return e.Key == "partialFilterExpression" })
	if at < 0 {
		return append(spec, bson.E{Key: "partialFilterExpression", Value: bson.D{present}})
	}
	filter, _ := spec[at].Value.(bson.D)
	if requires(filter, present.Key) {
		return spec
	}
	if slices.ContainsFunc(filter, func(e bson.E) bool { return e.Key == present.Key }) {
		filter = bson.D{{Key: "$and", Value: bson.A{filter, bson.D{present}}}}
	} else {
		filter = append(slices.Clone(filter), present)
	}
	spec = slices.Clone(spec)
	spec[at].Value = filter
	return spec
}

// requires reports whether a filter demands that a field exists.
func requires(filter bson.D, field string) bool {
	for _, e := range filter {
		switch v := e.Value.(type) {
		case bson.D:
			if exists, _ := lookup(v, "$exists").(bool); e.Key == field && exists {
				return true
			}
		case bson.A:
			for _, part := range v {
				if d, ok := part.(bson.D); e.Key == "$and" && ok && requires(d, field) {
					return true
				}
			}
		}
	}
	return false
}

func lookup(d bson.D, key string) any {
	for _, e := range d {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}
