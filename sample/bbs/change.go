package bbs

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/record"
)

// create makes a process of its head's document, and of more.
func (t table[M]) create(ctx context.Context, guid string, doc bson.Raw, more ...record.Mutation) error {
	ms := append([]record.Mutation{{Kind: t.kind, Key: record.StringKey(guid), Doc: doc, Absent: true}}, more...)
	if err := t.store.Write(ctx, ms); err != nil {
		return fmt.Errorf("%s: %w", guid, apiversion.Known(err))
	}
	return nil
}

// withoutParts is what the head holds of a message.
func (t table[M]) withoutParts(m M) M {
	if t.parts == nil {
		return m
	}
	return t.parts.detach(m)
}

// change makes a change of a process, on top of those that others make meanwhile, unless
// the caller expects a tag. What a document holds beyond M stays in it.
//
// apply changes the message and returns what else is to be written. One comparison of the
// whole tag guards all of it: parts change only together with it, and an index alone could
// be that of a process which was deleted and made anew.
func (t table[M]) change(ctx context.Context, guid string, expected tag, apply func(M) ([]record.Mutation, error)) (M, error) {
	if err := checkName("process_guid", guid); err != nil {
		return t.fresh(), err
	}
	var m M
	var err error
	for range attempts {
		m, err = t.tryChange(ctx, guid, expected, apply)
		if !errors.Is(err, record.ErrMismatch) {
			break
		}
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", guid, err)
	}
	return m, nil
}

func (t table[M]) tryChange(ctx context.Context, guid string, expected tag, apply func(M) ([]record.Mutation, error)) (M, error) {
	rec, recs, match, err := t.forChange(ctx, guid)
	if err != nil {
		return t.fresh(), err
	}
	m, err := t.join(rec, recs)
	if err != nil {
		return m, err
	}
	if now := t.tag(m); expected != nil && (now.GetEpoch() != expected.GetEpoch() || now.GetIndex() != expected.GetIndex()) {
		return m, fmt.Errorf("its tag is %s/%d: %w", now.GetEpoch(), now.GetIndex(), apiversion.ErrStale)
	}
	more, err := apply(m)
	if err != nil {
		return m, err
	}
	t.bump(m)
	doc, err := protodoc.Merge(rec.Doc, t.withoutParts(m))
	if err != nil {
		return m, apiversion.RequestError(err)
	}
	return m, apiversion.Known(t.store.Write(ctx, append([]record.Mutation{{Kind: t.kind, Key: rec.Key, Doc: doc, Match: match}}, more...)))
}

// forChange reads the records of a process, and what a change of it compares.
func (t table[M]) forChange(ctx context.Context, guid string) (head record.Record, recs []record.Record, match *record.Match, err error) {
	if head, err = t.store.Get(ctx, t.kind, guid); err != nil {
		return head, nil, nil, apiversion.Known(err)
	}
	value := head.Doc.Lookup(fieldTag)
	if value.Type != bson.TypeEmbeddedDocument {
		return head, nil, nil, fmt.Errorf("%w: no %s", apiversion.ErrStored, fieldTag)
	}
	recs, err = t.partsOf(ctx, guid)
	return head, recs, &record.Match{Path: fieldTag, Value: value}, err
}

// remove deletes a process with all its records.
func (t table[M]) remove(ctx context.Context, guid string) error {
	if err := checkName("process_guid", guid); err != nil {
		return err
	}
	var err error
	for range attempts {
		if err = t.tryRemove(ctx, guid); !errors.Is(err, record.ErrMismatch) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", guid, err)
	}
	return nil
}

func (t table[M]) tryRemove(ctx context.Context, guid string) error {
	if t.parts == nil {
		return apiversion.Known(t.store.Write(ctx, []record.Mutation{{Kind: t.kind, Key: record.StringKey(guid), Exists: true}}))
	}
	head, recs, match, err := t.forChange(ctx, guid)
	if err != nil {
		return err
	}
	ms := []record.Mutation{{Kind: t.kind, Key: head.Key, Match: match}}
	for _, r := range recs {
		ms = append(ms, record.Mutation{Kind: r.Kind, Key: r.Key})
	}
	return apiversion.Known(t.store.Write(ctx, ms))
}
