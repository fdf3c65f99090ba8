package secrets

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// message is the Secret of either version.
type message interface {
	proto.Message
	GetName() string
	GetRevision() int64
}

// table is the secrets of one version, as messages of type M. The native handlers are
// this and nothing else.
type table[M message] struct {
	store   vrunner.Store
	pattern pattern
	fresh   func() M
	// identify sets what the service decides on.
	identify func(m M, name string, revision int64)
	// check refuses what clients must not set. It may bring a value into its one form.
	check func(m M) error
}

// attempts bounds how often a change is tried when others change the same secret.
const attempts = 10

// firstRevision is drawn at random: a change compares the revision that it has read, and
// a secret that was deleted and made anew in between must not look the same. Below 2^52,
// so that JavaScript can hold it, too.
func firstRevision() int64 { return rand.Int64N(1<<52) + 1 }

func (t table[M]) decode(doc bson.Raw) (M, error) {
	m := t.fresh()
	if err := protodoc.Unmarshal(doc, m); err != nil {
		return m, fmt.Errorf("%w: %w", apiversion.ErrStored, err)
	}
	return m, nil
}

func (t table[M]) create(ctx context.Context, parent, id string, in M) (M, error) {
	name, err := t.pattern.child(parent, id)
	if err != nil {
		return in, err
	}
	if !in.ProtoReflect().IsValid() {
		return in, listing.Invalid("secret", "is missing")
	}
	if in.GetName() != "" && in.GetName() != name {
		return in, listing.Invalid("secret.name", "is %q, but parent and secret_id make %q; leave it out", in.GetName(), name)
	}
	m := proto.CloneOf(in)
	t.identify(m, name, firstRevision())
	if err := t.check(m); err != nil {
		return in, err
	}
	doc, err := document(name, m)
	if err != nil {
		return in, err
	}
	return m, about(name, t.store.Write(ctx, []record.Mutation{{Kind: Kind, Key: record.StringKey(name), Doc: doc, Absent: true}}))
}

func (t table[M]) get(ctx context.Context, name string, mask *fieldmaskpb.FieldMask) (M, error) {
	m := t.fresh()
	if err := t.pattern.check("name", name); err != nil {
		return m, err
	}
	if err := listing.CheckMask(mask, m.ProtoReflect().Descriptor()); err != nil {
		return m, err
	}
	rec, err := t.store.Get(ctx, Kind, name)
	if err != nil {
		return m, about(name, err)
	}
	if m, err = t.decode(rec.Doc); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	return m, listing.ApplyMask(m, mask)
}

// listRequest is a list request of either version; listing finds its other fields.
type listRequest interface {
	proto.Message
	GetParent() string
}

func (t table[M]) list(ctx context.Context, req listRequest) (listing.Page[M], error) {
	in, err := t.pattern.scope(req.GetParent())
	if err != nil {
		return listing.Page[M]{}, err
	}
	return listing.List(ctx, req, listing.Source[record.Record, M]{
		Fetch: func(ctx context.Context, after string, limit int) ([]record.Record, error) {
			return t.fetch(ctx, in, after, limit)
		},
		Name: nameOf,
		Message: func(_ context.Context, rec record.Record) (M, error) {
			m, err := t.decode(rec.Doc)
			if err != nil {
				return m, fmt.Errorf("%s: %w", rec.Key, err)
			}
			return m, nil
		},
		NameField: "name",
	})
}

// fetch returns the first records of a scope after a name, fewer than limit only if there
// are no more. What lies between them is skipped, not read.
func (t table[M]) fetch(ctx context.Context, in scope, after string, limit int) ([]record.Record, error) {
	var out []record.Record
	for {
		recs, err := t.store.List(ctx, Kind, in.prefix, after, limit-len(out))
		if err != nil {
			return nil, err
		}
		done := len(recs) < limit-len(out)
		for _, rec := range recs {
			name, err := nameOf(rec)
			if err != nil {
				return nil, err
			}
			if to, skip := in.skip(name); skip {
				after, done = to, false
				break
			}
			after, out = name, append(out, rec)
		}
		if done || len(out) == limit {
			return out, nil
		}
	}
}

func nameOf(rec record.Record) (string, error) {
	name, ok := rec.Key.Name()
	if !ok {
		return "", fmt.Errorf("%w: the key %s is not a string", apiversion.ErrStored, rec.Key)
	}
	return name, nil
}

// each calls f for all secrets of a scope.
func (t table[M]) each(ctx context.Context, in scope, f func(name string, m M) error) error {
	const batch = 1000
	for after := ""; ; {
		recs, err := t.fetch(ctx, in, after, batch)
		if err != nil || len(recs) == 0 {
			return err
		}
		for _, rec := range recs {
			if after, err = nameOf(rec); err != nil {
				return err
			}
			m, err := t.decode(rec.Doc)
			if err != nil {
				return fmt.Errorf("%s: %w", after, err)
			}
			if err := f(after, m); err != nil {
				return err
			}
		}
	}
}

// update sets what a mask names to what in has there. Name and revision are the service's
// own, and stay as they are whatever a client sends.
func (t table[M]) update(ctx context.Context, in M, mask *fieldmaskpb.FieldMask, expected *int64) (M, error) {
	if !in.ProtoReflect().IsValid() {
		return in, listing.Invalid("secret", "is missing")
	}
	if err := t.pattern.check("secret.name", in.GetName()); err != nil {
		return in, err
	}
	return t.change(ctx, in.GetName(), expected, func(m M) error { return listing.Update(m, in, mask) })
}

// change makes a change of a secret, on top of those that others make meanwhile, unless
// the caller expects a revision. What a document holds beyond M stays in it.
func (t table[M]) change(ctx context.Context, name string, expected *int64, apply func(M) error) (M, error) {
	if err := t.pattern.check("name", name); err != nil {
		return t.fresh(), err
	}
	var m M
	var err error
	for range attempts {
		m, err = t.tryChange(ctx, name, expected, apply)
		if !errors.Is(err, record.ErrMismatch) {
			break
		}
	}
	return m, err
}

func (t table[M]) tryChange(ctx context.Context, name string, expected *int64, apply func(M) error) (M, error) {
	rec, err := t.store.Get(ctx, Kind, name)
	if err != nil {
		return t.fresh(), about(name, err)
	}
	m, err := t.decode(rec.Doc)
	if err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	if expected != nil && *expected != m.GetRevision() {
		return m, fmt.Errorf("%s: revision is %d, not %d: %w", name, m.GetRevision(), *expected, apiversion.ErrStale)
	}
	before, err := rec.Doc.LookupErr("revision")
	if err != nil {
		return m, fmt.Errorf("%s: %w: no revision", name, apiversion.ErrStored)
	}
	revision := m.GetRevision()
	if err := apply(m); err != nil {
		return m, err
	}
	t.identify(m, name, revision+1)
	if err := t.check(m); err != nil {
		return m, err
	}
	doc, err := merged(rec.Doc, m)
	if err != nil {
		return m, err
	}
	return m, about(name, t.store.Write(ctx, []record.Mutation{{
		Kind: Kind, Key: record.StringKey(name), Doc: doc, Match: &record.Match{Path: "revision", Value: before},
	}}))
}

func (t table[M]) remove(ctx context.Context, name string) error {
	if err := t.pattern.check("name", name); err != nil {
		return err
	}
	return about(name, t.store.Write(ctx, []record.Mutation{{Kind: Kind, Key: record.StringKey(name), Exists: true}}))
}

// about is what clients are told of a store's error about a secret. Its own text names
// kinds and places that no API has.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, apiversion.Known(err))
}
