package bbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// message is a process of either version.
type message interface {
	proto.Message
	identity
}

// table is the processes of one version, as messages of type M. A process is the head
// record of its guid, which carries the modification tag, and perhaps further records.
type table[M message] struct {
	store vrunner.Store
	kind  string // of the heads
	fresh func() M
	// parts are the further records of a process; nil if it has none.
	parts *parts[M]
	// tag returns the tag in a message, nil if there is none.
	tag func(M) tag
	// bump counts the tag up.
	bump func(M)
}

// tag is a ModificationTag of either version.
type tag interface {
	GetEpoch() string
	GetIndex() uint32
}

// given is the tag of a request, nil for none.
func given[T any, P interface {
	*T
	tag
}](t P) tag {
	if t == nil {
		return nil
	}
	return t
}

// parts says how the further records of a process stand in its message.
type parts[M message] struct {
	kind   string
	field  string // of M that they make up
	attach func(m M, recs []record.Record) error
	// detach returns the head's part of a message.
	detach func(M) M
}

// attempts bounds how often a process is read or changed anew when others change it.
const attempts = 10

// head reads the message of a head record, without what its parts hold.
func (t table[M]) head(rec record.Record) (M, error) {
	m := t.fresh()
	if err := protodoc.Unmarshal(rec.Doc, m); err != nil {
		return m, fmt.Errorf("%w: %w", apiversion.ErrStored, err)
	}
	return m, nil
}

func (t table[M]) partsOf(ctx context.Context, guid string) ([]record.Record, error) {
	if t.parts == nil {
		return nil, nil
	}
	return t.store.List(ctx, t.parts.kind, guid+"/", "", 0)
}

// join reads the message of a head and its parts.
func (t table[M]) join(head record.Record, recs []record.Record) (M, error) {
	m, err := t.head(head)
	if err == nil && t.parts != nil {
		err = t.parts.attach(m, recs)
	}
	return m, err
}

// whole reads a process consistently: parts change only together with the head's tag, so a
// head that is the same before and after has these parts.
func (t table[M]) whole(ctx context.Context, guid string, before record.Record) (M, error) {
	if t.parts == nil {
		return t.head(before)
	}
	for range attempts {
		recs, err := t.partsOf(ctx, guid)
		if err != nil {
			return t.fresh(), err
		}
		after, err := t.store.Get(ctx, t.kind, guid)
		if err != nil {
			return t.fresh(), err
		}
		if bytes.Equal(before.Doc, after.Doc) {
			return t.join(after, recs)
		}
		before = after
	}
	return t.fresh(), fmt.Errorf("the process changes too fast to be read: %w", record.ErrMismatch)
}

func (t table[M]) get(ctx context.Context, guid string, mask *fieldmaskpb.FieldMask) (M, error) {
	none := t.fresh()
	if err := checkName("process_guid", guid); err != nil {
		return none, err
	}
	selected, err := t.selection("", "", "", mask)
	if err != nil {
		return none, err
	}
	rec, err := t.store.Get(ctx, t.kind, guid)
	if err != nil {
		return none, fmt.Errorf("%s: %w", guid, apiversion.Known(err))
	}
	m, ok, err := t.show(ctx, selected, guid, rec)
	switch {
	case err != nil:
		return none, err
	case !ok:
		return none, fmt.Errorf("%s: %w", guid, record.ErrNotFound)
	}
	return m, listing.ApplyMask(m, mask)
}

// listRequest is a list request of either version; listing finds its other fields.
type listRequest interface {
	proto.Message
	GetDomain() string
	GetPrefix() string
	GetFilter() string
	GetOrderBy() string
	GetReadMask() *fieldmaskpb.FieldMask
}

// list is no snapshot: each process is shown as it was at some moment of the request.
func (t table[M]) list(ctx context.Context, req listRequest) (listing.Page[M], error) {
	selected, err := t.selection(req.GetDomain(), req.GetFilter(), req.GetOrderBy(), req.GetReadMask())
	if err != nil {
		return listing.Page[M]{}, err
	}
	return listing.List(ctx, req, listing.Source[record.Record, M]{
		Fetch: func(ctx context.Context, after string, limit int) ([]record.Record, error) {
			return t.store.List(ctx, t.kind, req.GetPrefix(), after, limit)
		},
		Name: nameOf,
		Message: func(ctx context.Context, rec record.Record) (M, error) {
			guid, err := nameOf(rec)
			if err != nil {
				return t.fresh(), err
			}
			m, ok, err := t.show(ctx, selected, guid, rec)
			if err == nil && !ok {
				err = listing.ErrGone
			}
			return m, err
		},
		NameField: "process_guid",
	})
}

func nameOf(rec record.Record) (string, error) {
	guid, ok := rec.Key.Name()
	if !ok {
		return "", fmt.Errorf("%w: the key %s is not a string", apiversion.ErrStored, rec.Key)
	}
	return guid, nil
}

// each calls f for all processes that are wanted.
func (t table[M]) each(ctx context.Context, s selection, f func(guid string, m M) error) error {
	for after := ""; ; {
		recs, err := t.store.List(ctx, t.kind, "", after, 0)
		if err != nil || len(recs) == 0 {
			return err
		}
		for _, rec := range recs {
			if after, err = nameOf(rec); err != nil {
				return err
			}
			m, ok, err := t.show(ctx, s, after, rec)
			if err != nil {
				return err
			}
			if ok {
				if err := f(after, m); err != nil {
					return err
				}
			}
		}
	}
}

// show returns the message of a head record with as much of its parts as is wanted. ok is
// false for one that is not wanted, or that was deleted meanwhile.
func (t table[M]) show(ctx context.Context, s selection, guid string, rec record.Record) (m M, ok bool, err error) {
	if m, err = t.head(rec); err == nil && !s.head.Eval(m) {
		return m, false, nil
	}
	if err == nil && s.parts {
		m, err = t.whole(ctx, guid, rec)
	}
	switch {
	case errors.Is(err, record.ErrNotFound):
		return m, false, nil
	case err != nil:
		return m, false, fmt.Errorf("%s: %w", guid, err)
	}
	return m, s.head.Eval(m) && s.rest.Eval(m), nil
}
