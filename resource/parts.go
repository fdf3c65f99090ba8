package resource

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
)

// Parts describes additional records of a resource. The key of each is the resource's name, a slash
// and the id of the part. Parts suit data that is large or numerous and that most lists do not
// need. They change only together with the resource's own record and its revision. So a resource
// and its parts can be read and changed consistently.
type Parts[M proto.Message] struct {
	// Kind is the kind of the part records.
	Kind string
	// Field is the field of M that is made from the parts. The resource's own record does not have
	// it.
	Field string

	fresh func() proto.Message
	split func(M) map[string]proto.Message
	join  func(M, map[string]proto.Message) error
}

// PartsOf declares parts whose records are messages of type P. split returns the parts of a
// resource, by id. join puts such parts into the resource's field. Neither may change the parts.
func PartsOf[M, P proto.Message](kind, field string, split func(M) map[string]P, join func(M, map[string]P) error) *Parts[M] {
	return &Parts[M]{
		Kind: kind, Field: field,
		fresh: func() proto.Message {
			var none P
			return none.ProtoReflect().New().Interface()
		},
		split: func(m M) map[string]proto.Message {
			out := map[string]proto.Message{}
			// A map of P is no map of proto.Message, so it is copied.
			for id, p := range split(m) {
				out[id] = p
			}
			return out
		},
		join: func(m M, parts map[string]proto.Message) error {
			typed := make(map[string]P, len(parts))
			for id, p := range parts {
				typed[id] = p.(P) //nolint:forcetypeassert // fresh has made it
			}
			return join(m, typed)
		},
	}
}

// partsOf reads the records of a resource's parts.
func (t *Table[M]) partsOf(ctx context.Context, name string) ([]record.Record, error) {
	if t.cfg.Parts == nil {
		return nil, nil
	}
	const batch = 1000
	var out []record.Record
	for after := ""; ; {
		recs, more, err := t.list(ctx, t.cfg.Parts.Kind, name+"/", after, batch, fetchBytes)
		if err != nil {
			return nil, err
		}
		if out = append(out, recs...); !more || len(recs) == 0 {
			return out, nil
		}
		if after, err = nameOf(recs[len(recs)-1]); err != nil {
			return nil, err
		}
	}
}

// join builds the message from a record and its parts.
func (t *Table[M]) join(name string, head record.Record, recs []record.Record) (M, error) {
	m := t.fresh()
	// The stored data is at fault here, not the request.
	if err := protodoc.Unmarshal(head.Doc, m); err != nil {
		return m, fmt.Errorf("%w: %w", apiversion.ErrStored, err)
	}
	if t.cfg.Parts == nil {
		return m, nil
	}
	parts := make(map[string]proto.Message, len(recs))
	for _, rec := range recs {
		id, err := partID(name, rec)
		if err != nil {
			return m, err
		}
		p := t.cfg.Parts.fresh()
		if err := protodoc.Unmarshal(rec.Doc, p); err != nil {
			return m, fmt.Errorf("%s: %w: %w", id, apiversion.ErrStored, err)
		}
		parts[id] = p
	}
	if err := t.cfg.Parts.join(m, parts); err != nil {
		return m, fmt.Errorf("%w: %w", apiversion.ErrStored, err)
	}
	return m, nil
}

func partID(name string, rec record.Record) (string, error) {
	full, err := nameOf(rec)
	if err != nil {
		return "", err
	}
	id := strings.TrimPrefix(full, name+"/")
	if id == "" || strings.Contains(id, "/") {
		return "", fmt.Errorf("%w: the key of a part is <name>/<id>, not %q", apiversion.ErrStored, full)
	}
	return id, nil
}

// whole reads a resource and its parts consistently. Parts change only together with the revision
// in the resource's record. So if the record is the same before and after, the parts belong to it.
func (t *Table[M]) whole(ctx context.Context, name string, before record.Record) (M, error) {
	if t.cfg.Parts == nil {
		return t.join(name, before, nil)
	}
	for range Attempts {
		recs, err := t.partsOf(ctx, name)
		if err != nil {
			return t.fresh(), err
		}
		after, err := t.store.Get(ctx, t.cfg.Kind, name)
		if err != nil {
			return t.fresh(), err
		}
		// Equal documents have the same revision, so no part has changed between the two reads.
		if bytes.Equal(before.Doc, after.Doc) {
			return t.join(name, after, recs)
		}
		// The record read last is the first one of the next attempt.
		before = after
	}
	return t.fresh(), fmt.Errorf("it changes too fast to be read: %w", record.ErrMismatch)
}

// split returns the message of a resource's own record, and its parts.
func (t *Table[M]) split(m M) (head M, parts map[string]proto.Message) {
	if t.cfg.Parts == nil {
		return m, nil
	}
	parts = map[string]proto.Message{}
	for id, p := range t.cfg.Parts.split(m) {
		parts[id] = proto.Clone(p)
	}
	// m belongs to the caller, so the field is cleared in a copy.
	head = proto.CloneOf(m)
	head.ProtoReflect().Clear(t.message.Fields().ByName(protoreflect.Name(t.cfg.Parts.Field)))
	return head, parts
}

// partWrites returns the writes that turn the parts before into the parts after. recs are the
// stored records of the parts. Unchanged parts are not written.
func (t *Table[M]) partWrites(name string, recs []record.Record, before, after map[string]proto.Message) ([]record.Mutation, error) {
	var ms []record.Mutation
	stored := map[string]record.Record{}
	for _, rec := range recs {
		id, err := partID(name, rec)
		if err != nil {
			return nil, err
		}
		// A part that is missing from after is deleted.
		stored[id] = rec
		if _, stays := after[id]; !stays {
			ms = append(ms, record.Mutation{Kind: t.cfg.Parts.Kind, Key: rec.Key})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(after)) {
		if id == "" || strings.Contains(id, "/") {
			return nil, listing.Invalid(t.cfg.Parts.Field, "the id %q must not be empty or contain '/'", id)
		}
		key := name + "/" + id
		m := record.Mutation{Kind: t.cfg.Parts.Kind, Key: record.StringKey(key)}
		var err error
		switch rec, there := stored[id]; {
		case !there:
			m.Absent = true
			m.Doc, err = protodoc.MarshalID(key, after[id])
		case proto.Equal(before[id], after[id]):
			continue
		default:
			// Merge keeps the fields of the stored record that this program does not know.
			m.Doc, err = protodoc.Merge(rec.Doc, after[id])
			m.Match = as(rec.Doc, m.Doc, nil)
			// Too large to compare as a whole. The condition on the resource's record still
			// protects it.
			m.Exists = m.Match == nil
		}
		if err != nil {
			return nil, apiversion.RequestError(err)
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// selection is the filter, order and mask of a request. The filter on the resource's own record
// runs first. The parts are read only if the request needs them.
type selection struct {
	head  listing.Filter // on the own record only
	rest  listing.Filter
	parts bool // the filter, the order or the mask needs the parts
	// read counts the parts that a list or watch has read and not shown yet. It is nil for a single
	// resource.
	read *memory.Reads
}

// reading returns the context in which to read the parts of another resource. The parts of the
// previous one have been shown, so they no longer count.
func (s selection) reading(ctx context.Context) context.Context {
	if s.read == nil {
		return ctx
	}
	s.read.Drop()
	return memory.Into(ctx, s.read)
}

// selection parses a request's filter, order and mask. Errors name the field of the request.
func (t *Table[M]) selection(filter, orderBy string, where listing.Filter, mask *fieldmaskpb.FieldMask) (selection, error) {
	f, err := listing.ParseFilter(filter, t.message)
	if err != nil {
		return selection{}, err
	}
	order, err := listing.ParseOrder(orderBy, t.message)
	if err != nil {
		return selection{}, err
	}
	if err := listing.CheckMask(mask, t.message); err != nil {
		return selection{}, err
	}
	if f, err = listing.All(f, where).Referring(t.message, t.cfg.References); err != nil {
		return selection{}, err
	}
	if t.cfg.Parts == nil {
		return selection{head: f}, nil
	}
	// Without a mask the response has all fields.
	s := selection{parts: len(mask.GetPaths()) == 0 || slices.ContainsFunc(mask.GetPaths(), t.ofParts)}
	for _, o := range order {
		s.parts = s.parts || t.ofParts(o.Path)
	}
	// Each condition of an And that needs no parts can exclude a resource before its parts are
	// read.
	conjuncts := f.And
	if len(conjuncts) == 0 {
		conjuncts = []listing.Filter{f}
	}
	for _, c := range conjuncts {
		if t.reaches(c) {
			s.rest, s.parts = listing.All(s.rest, c), true
		} else {
			s.head = listing.All(s.head, c)
		}
	}
	return s, nil
}

// ofParts reports whether a path leads into the field of the parts.
func (t *Table[M]) ofParts(path string) bool {
	return path == "*" || path == t.cfg.Parts.Field || strings.HasPrefix(path, t.cfg.Parts.Field+".")
}

// reaches reports whether a filter needs the parts.
func (t *Table[M]) reaches(f listing.Filter) bool {
	if f.Condition != nil {
		return t.ofParts(f.Condition.Path)
	}
	if f.Not != nil && t.reaches(*f.Not) {
		return true
	}
	return slices.ContainsFunc(f.And, t.reaches) || slices.ContainsFunc(f.Or, t.reaches)
}
