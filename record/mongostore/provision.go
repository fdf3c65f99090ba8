package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller/record"
)

var _ record.Provisioner = (*Namespace)(nil)
var _ record.Namespace = (*Namespace)(nil)

// Provision makes a collection of a kind or completes it: its options if it is made,
// its indexes, and for fixed-name kinds the side collection of the guards.
//
// A collection that is there already, under a managed or hidden name, and holds
// documents without our having made it, is refused: its documents would be taken for
// records of the kind, and no guard protects them. Under its own name a fixed kind's
// collection is the application's and may hold anything.
//
// For managed kinds validators let tombstones pass, and unique indexes get the
// condition that their first field exists, since tombstones have no fields: records
// without that field are then not compared with each other. A validator of a managed
// kind must allow the field "_dbc".
func (n *Namespace) Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	tok, err := n.provision(ctx, kind, name)
	if err != nil {
		return record.Token{}, fmt.Errorf("provision %s.%s: %w", n.name, name, withPrivilege(err))
	}
	return tok, nil
}

func (n *Namespace) provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	if err := checkOptions(n.name+"."+name, kind.Shape.Options); err != nil {
		return record.Token{}, err
	}
	specs, err := indexSpecs(kind)
	if err != nil {
		return record.Token{}, err
	}
	var tok record.Token
	err = n.untilDone(ctx, "", func(ctx context.Context) error {
		c, err := n.ensureCollection(ctx, kind, name)
		if err != nil {
			return decided(err)
		}
		if tok, err = n.tokenOf(ctx, kind, c); err != nil {
			return err
		}
		if kind.Fixed {
			n.forgetSide(kind.Name) // it may have been dropped since
			if err := n.ensureSide(ctx, kind.Name); err != nil {
				return err
			}
		}
		return n.ensureIndexes(ctx, c, specs)
	})
	return tok, err
}

// ensureCollection returns the collection, made if it was missing.
func (n *Namespace) ensureCollection(ctx context.Context, kind record.KindSpec, name string) (*collection, error) {
	c, err := n.collectionNamed(ctx, name)
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
		return nil, permanent(fmt.Errorf("read options: %w", err))
	}
	for _, e := range elems {
		v := any(e.Value())
		if validator, ok := e.Value().DocumentOK(); ok && e.Key() == "validator" && !kind.Fixed {
			v = passTombstones(validator)
		}
		cmd = append(cmd, bson.E{Key: e.Key(), Value: v})
	}
	cmd = append(cmd, bson.E{Key: "writeConcern", Value: majorityWithin(concernWait)})
	if err := n.db.RunCommand(ctx, cmd).Err(); err != nil {
		return nil, err
	}
	if c, err = n.collectionNamed(ctx, name); err != nil {
		return nil, err
	}
	if c == nil {
		return nil, fmt.Errorf("collection is gone: %w", record.ErrBroken)
	}
	return c, n.adopt(ctx, kind, c)
}

// adopt notes a collection as ours, or refuses it if it is not and has documents.
func (n *Namespace) adopt(ctx context.Context, kind record.KindSpec, c *collection) error {
	if kind.Fixed && c.Name == kind.Name {
		return nil
	}
	note, err := n.noted(ctx, noteProvisioned+c.id())
	if err != nil || note != nil {
		return err
	}
	raw, err := n.db.RunCommand(ctx, bson.D{
		{Key: "find", Value: c.Name}, {Key: "limit", Value: 1}, {Key: "singleBatch", Value: true},
	}).Raw()
	if err != nil {
		return fmt.Errorf("look for documents: %w", err)
	}
	if _, found := raw.Lookup("cursor", "firstBatch", "0").DocumentOK(); found {
		return &record.UnsupportedError{
			What:   "collection " + n.name + "." + c.Name,
			Reason: "it has documents and was not made by dbcontroller; drop or rename it, or give the version another database",
		}
	}
	return n.note(ctx, noteProvisioned+c.id(), bson.D{{Key: "$set", Value: bson.D{{Key: "kind", Value: kind.Name}, {Key: "name", Value: c.Name}}}})
}

// passTombstones is a validator that a managed kind's tombstones satisfy too.
func passTombstones(validator bson.Raw) bson.D {
	tombstone := bson.D{{Key: guardField + ".x", Value: true}}
	if first, err := validator.IndexErr(0); err == nil && first.Key() == "$or" {
		if v, ok := validator.Lookup("$or", "0", guardField+".x").BooleanOK(); ok && v {
			return bson.D{{Key: "$or", Value: first.Value()}} // described from a kind of ours
		}
	}
	return bson.D{{Key: "$or", Value: bson.A{tombstone, validator}}}
}

// ensureIndexes builds what is missing and returns when all is complete.
func (n *Namespace) ensureIndexes(ctx context.Context, c *collection, specs []bson.D) error {
	if len(specs) == 0 {
		return nil
	}
	err := n.db.RunCommand(ctx, bson.D{
		{Key: "createIndexes", Value: c.Name},
		{Key: "indexes", Value: specs},
		{Key: "commitQuorum", Value: "majority"},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}).Err()
	if hasCode(err, codeDuplicateKey) {
		// The server's text goes on with the values, which may be personal data.
		return permanent(fmt.Errorf("build unique index: documents that are there agree in %w", duplicateIndex(err)))
	}
	if err != nil {
		return fmt.Errorf("build indexes: %w", err)
	}
	raw, err := n.db.RunCommand(ctx, bson.D{{Key: "listIndexes", Value: c.Name}, {Key: "includeIndexBuildInfo", Value: true}}).Raw()
	if err != nil {
		return fmt.Errorf("list indexes: %w", err)
	}
	listed, _ := raw.Lookup("cursor", "firstBatch").ArrayOK()
	values, err := listed.Values()
	if err != nil {
		return fmt.Errorf("list indexes: %w", err)
	}
	var ready []string
	for _, v := range values {
		name, _ := v.Document().Lookup("spec", "name").StringValueOK()
		if _, err := v.Document().LookupErr("indexBuildInfo"); err != nil {
			ready = append(ready, name)
		}
	}
	for _, spec := range specs {
		if name, _ := lookup(spec, "name").(string); !slices.Contains(ready, name) {
			return fmt.Errorf("index %s is not complete: %w", name, errAgain)
		}
	}
	return nil
}

// duplicateIndex names index and fields of a duplicate key error.
func duplicateIndex(err error) error {
	var command mongo.CommandError
	if !errors.As(err, &command) {
		return record.ErrConflict
	}
	d := duplicateOf(command.Raw, command.Message)
	pattern, _ := command.Raw.Lookup("keyPattern").DocumentOK()
	elems, _ := pattern.Elements()
	var fields []string
	for _, e := range elems {
		fields = append(fields, e.Key())
	}
	return fmt.Errorf("fields [%s] of %w", strings.Join(fields, " "), conflictError(d))
}

// indexSpecs returns the declared indexes as createIndexes takes them.
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
		if len(key) == 1 && key[0].Key == "_id" && lookup(spec, "unique") == nil {
			continue // the one that every collection has
		}
		// Places of other versions' catalogs that createIndexes does not take.
		spec = slices.DeleteFunc(spec, func(e bson.E) bool { return e.Key == "ns" || e.Key == "background" })
		if lookup(spec, "name") == nil {
			spec = append(spec, bson.E{Key: "name", Value: indexName(key)})
		}
		if unique, _ := lookup(spec, "unique").(bool); unique && !kind.Fixed {
			spec = skipTombstones(spec, key)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// skipTombstones keeps the tombstones of a managed kind out of a unique index, where
// they would all collide on null.
func skipTombstones(spec, key bson.D) bson.D {
	if sparse, _ := lookup(spec, "sparse").(bool); sparse {
		return spec // has no entries for documents without its fields
	}
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

// requires reports whether a filter says that a field exists.
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

func indexName(key bson.D) string {
	name := ""
	for i, k := range key {
		if i > 0 {
			name += "_"
		}
		name += fmt.Sprintf("%s_%v", k.Key, k.Value)
	}
	return name
}

func lookup(d bson.D, key string) any {
	for _, e := range d {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}
