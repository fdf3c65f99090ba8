package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// More server error codes, for indexes.
const (
	codeIndexOptionsConflict  = 85
	codeIndexKeySpecsConflict = 86
)

// indexesOf returns the specifications of the complete indexes, except _id.
func (n *Collections) indexesOf(ctx context.Context, tok record.Token) ([]bson.Raw, error) {
	listed, err := n.Indexed.Ask(ctx, tok.Name)
	if err != nil {
		return nil, err
	}
	var specs []bson.Raw // listed is shared with other callers, so copy
	for _, ix := range listed {
		if ix.Name != "_id_" && !ix.Building {
			specs = append(specs, ix.Spec)
		}
	}
	return specs, nil
}

// BuildIndexes builds the missing indexes of a kind. It returns when they are complete, and may be
// repeated. The command carries the token's UUID. Otherwise, if a switch has taken the name away,
// the server would create a new collection.
func (n *Collections) BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	specs, err := indexSpecs(kind)
	if err == nil {
		err = n.UntilDone(ctx, "", func(ctx context.Context) error { return n.ensureIndexes(ctx, tok, specs) })
	}
	if err != nil {
		return fmt.Errorf("indexes of %s.%s: %w", n.Name, tok.Name, conn.WithPrivilege(err))
	}
	return nil
}

// ensureIndexes builds the missing indexes and returns when all are complete. The server decides
// whether an existing index is the declared one, because it knows the meaning of its defaults. Only
// the seconds of TTL indexes may differ; Expire changes those.
func (n *Collections) ensureIndexes(ctx context.Context, tok record.Token, specs []bson.D) error {
	if len(specs) == 0 {
		return nil
	}
	listed, err := n.ListIndexes(ctx, tok)
	if err != nil {
		return err
	}
	cmd, err := conn.WithUUID(bson.D{
		{Key: "createIndexes", Value: tok.Name},
		{Key: "indexes", Value: asListed(specs, listed)},
		// A majority must have built the index, or a failover could lose it.
		{Key: "commitQuorum", Value: "majority"},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}, tok)
	if err != nil {
		return conn.Permanent(err)
	}
	err = n.DB.RunCommand(ctx, cmd).Err()
	switch {
	case conn.HasCode(err, conn.CodeUUIDMismatch):
		return conn.Permanent(fmt.Errorf("%w: %w", record.ErrFenced, err))
	case conn.HasCode(err, conn.CodeDuplicateKey):
		// Drop the server's text: it contains the values, which may be personal data.
		return conn.Permanent(fmt.Errorf("build unique index: existing documents have equal values of %w", duplicateIndex(err)))
	case conn.HasCode(err, codeIndexOptionsConflict, codeIndexKeySpecsConflict):
		return conn.Permanent(n.differentIndex(ctx, tok, specs, listed, err))
	case isOfDocument(err):
		return conn.Permanent(fmt.Errorf("build indexes: %w", n.offenders(ctx, tok, specs, err)))
	case err != nil:
		return fmt.Errorf("build indexes: %w", conn.Concealed(err))
	}
	// A build by another process may still be running, and createIndexes does not wait for it.
	if listed, err = n.ListIndexes(ctx, tok); err != nil {
		return err
	}
	for _, spec := range specs {
		name, _ := lookup(spec, "name").(string)
		if !slices.ContainsFunc(listed, func(ix conn.ListedIndex) bool { return ix.Name == name && !ix.Building }) {
			return fmt.Errorf("index %s is not complete: %w", name, conn.ErrAgain)
		}
	}
	return nil
}

// asListed gives the specs the seconds of the existing TTL indexes, so that only other differences
// are an error.
func asListed(specs []bson.D, listed []conn.ListedIndex) []bson.D {
	out := slices.Clone(specs)
	for i, spec := range out {
		name, _ := lookup(spec, "name").(string)
		at := slices.IndexFunc(spec, func(e bson.E) bool { return e.Key == "expireAfterSeconds" })
		j := slices.IndexFunc(listed, func(ix conn.ListedIndex) bool { return ix.Name == name })
		if at < 0 || j < 0 {
			continue
		}
		if have := listed[j].Spec.Lookup("expireAfterSeconds"); !have.IsZero() {
			out[i] = slices.Clone(spec)
			out[i][at].Value = have
		}
	}
	return out
}

// differentIndex names the existing index that differs from a declared one, and the difference. The
// server names neither, so differentIndex tries each declared index alone.
func (n *Collections) differentIndex(ctx context.Context, tok record.Token, specs []bson.D, listed []conn.ListedIndex, err error) error {
	for _, spec := range asListed(specs, listed) {
		name, _ := lookup(spec, "name").(string)
		i := slices.IndexFunc(listed, func(ix conn.ListedIndex) bool { return ix.Name == name })
		if i < 0 {
			continue
		}
		// For an equal index this command does nothing.
		cmd, cmdErr := conn.WithUUID(bson.D{{Key: "createIndexes", Value: tok.Name}, {Key: "indexes", Value: bson.A{spec}}}, tok)
		if cmdErr != nil || !conn.HasCode(n.DB.RunCommand(ctx, cmd).Err(), codeIndexOptionsConflict, codeIndexKeySpecsConflict) {
			continue
		}
		want, marshalErr := bson.Marshal(spec)
		if marshalErr != nil {
			continue
		}
		what := record.DifferentIndex(listed[i].Spec, want)
		if what == "" {
			what = "the database treats it as another index"
		}
		return &record.IndexConflict{Index: name, Text: fmt.Sprintf("index %s exists and differs from the declared one: %s: drop it, and controllers build it as declared", name, what)}
	}
	// No index of that name differs, so one with another name must have the same key.
	sameKey := func(ix conn.ListedIndex, key any) bool {
		have, _ := ix.Spec.Lookup("key").DocumentOK()
		var d bson.D
		declared, _ := key.(bson.D)
		return bson.Unmarshal(have, &d) == nil && record.DefaultIndexName(d) == record.DefaultIndexName(declared)
	}
	// The server allows one index for each key and options, whatever its name.
	for _, spec := range specs {
		name, _ := lookup(spec, "name").(string)
		for _, ix := range listed {
			if ix.Name != name && ix.Name != "_id_" && sameKey(ix, lookup(spec, "key")) {
				return &record.IndexConflict{Index: ix.Name, Text: fmt.Sprintf("index %s has the key of the declared index %s: drop it, and controllers build the other", ix.Name, name)}
			}
		}
	}
	return fmt.Errorf("an index exists and differs from the declared one: drop it, and controllers build it as declared: %w", conn.Concealed(err))
}

// duplicateIndex names the index and the fields of a duplicate key error.
func duplicateIndex(err error) error {
	var command mongo.CommandError
	if !errors.As(err, &command) {
		return record.ErrConflict
	}
	d := conn.DuplicateOf(command.Raw, command.Message)
	pattern, _ := command.Raw.Lookup("keyPattern").DocumentOK()
	elems, _ := pattern.Elements()
	var fields []string
	for _, e := range elems {
		fields = append(fields, e.Key())
	}
	return fmt.Errorf("fields [%s] of %w", strings.Join(fields, " "), conn.ConflictError(d))
}
