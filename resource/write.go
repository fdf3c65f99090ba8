package resource

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/record"
)

// Create makes the resource that a request holds, in its parent, under its id, or under the
// name that the resource has. It returns record.ErrExists where there is one.
func (t *Table[M]) Create(ctx context.Context, req proto.Message) (M, error) {
	r := t.request(req)
	in, err := t.given(r)
	if err != nil {
		return in, err
	}
	for attempt := 1; ; attempt++ {
		name, drawn, err := t.newName(r, in)
		if err != nil {
			return in, err
		}
		m, err := t.create(ctx, name, in)
		// An id that was drawn and is there already says nothing about what the client asked for.
		if !drawn || attempt == Attempts || !errors.Is(err, record.ErrExists) {
			return m, err
		}
	}
}

// Insert makes a resource of the service's own accord, under the name that it has. It returns
// record.ErrExists where there is one.
func (t *Table[M]) Insert(ctx context.Context, m M) (M, error) {
	name := t.nameOf(m)
	if err := t.pattern.check(t.cfg.NameField, name); err != nil {
		return m, err
	}
	return t.create(ctx, name, m)
}

// newName is the name of a new resource. drawn reports that its id was made here.
func (t *Table[M]) newName(r request, in M) (name string, drawn bool, err error) {
	idField := t.pattern.id() + "_id"
	inside := r.roles.Resource + "." + t.cfg.NameField
	id, hasID := "", r.msg.Descriptor().Fields().ByName(protoreflect.Name(idField)) != nil
	if hasID {
		id = r.text(idField)
	}
	given := t.nameOf(in)
	if t.pattern.bare() {
		inside = t.cfg.NameField // other methods of the service call it so, too
	}
	if !hasID && (given != "" || t.cfg.NewID == nil) {
		// Access may be checked by the parent.
		if in := r.text(r.roles.Parent); in != "" && t.pattern.hasParent() && !strings.HasPrefix(given, in+"/"+t.pattern.collection()+"/") {
			return "", false, listing.Invalid(inside, "is %q, not in %q", given, in)
		}
		return given, false, t.pattern.check(inside, given)
	}
	parent := r.text(r.roles.Parent)
	if t.pattern.hasParent() {
		field := r.roles.Parent
		if field == "" {
			return "", false, r.lacks("the parent of a " + string(t.message.Name()))
		}
		if err := t.pattern.parent().check(field, parent); err != nil {
			return "", false, err
		}
	}
	if id == "" && t.cfg.NewID != nil {
		id, drawn = t.cfg.NewID(), true
	}
	if err := t.pattern.checkNewID(idField, id); err != nil {
		return "", false, err
	}
	name = id
	if !t.pattern.bare() {
		name = t.pattern.collection() + "/" + id
	}
	if t.pattern.hasParent() {
		name = parent + "/" + name
	}
	if given != "" && given != name {
		return "", false, listing.Invalid(inside, "is %q, but the request makes %q; leave it out", given, name)
	}
	return name, drawn, nil
}

func (t *Table[M]) create(ctx context.Context, name string, in M) (M, error) {
	m := proto.CloneOf(in)
	t.setName(m, name)
	m.ProtoReflect().Clear(t.revision)
	t.cfg.Revision.First(m)
	var none M
	if err := t.cfg.Check(ctx, m, none); err != nil {
		return in, err
	}
	head, parts := t.split(m)
	doc, err := protodoc.MarshalID(name, head)
	if err != nil {
		return in, apiversion.RequestError(err)
	}
	if doc, err = t.formed(doc, true); err != nil {
		return in, err
	}
	more, err := t.partWrites(name, nil, nil, parts)
	if err != nil {
		return in, err
	}
	ms := append([]record.Mutation{{Kind: t.cfg.Kind, Key: record.StringKey(name), Doc: doc, Absent: true}}, more...)
	return m, again(ctx, name, func() error {
		owners, err := t.touchOwner(ctx, name)
		if err != nil {
			return err
		}
		return apiversion.Known(t.store.Write(ctx, slices.Concat(ms, owners)))
	})
}

// Update sets, of the resource that a request holds, what its update mask names. Name and
// revision are the service's own, and stay as they are whatever a client sends.
func (t *Table[M]) Update(ctx context.Context, req proto.Message) (M, error) {
	r := t.request(req)
	in, err := t.given(r)
	if err != nil {
		return in, err
	}
	mask := r.mask(r.roles.UpdateMask)
	r.roles.Name = "" // the name in the resource is the one that counts
	return t.change(ctx, r, func(m M) error { return listing.Update(m, in, mask) })
}

// Change makes a change of the resource that a request names, on top of those that others
// make meanwhile, unless the request expects a revision. apply may be called several times,
// and changes the message alone. What a record holds beyond M stays in it.
func (t *Table[M]) Change(ctx context.Context, req proto.Message, apply func(M) error) (M, error) {
	return t.change(ctx, t.request(req), apply)
}

func (t *Table[M]) change(ctx context.Context, r request, apply func(M) error) (M, error) {
	m := t.fresh()
	name, err := t.named(r)
	if err != nil {
		return m, err
	}
	err = again(ctx, name, func() error {
		m, err = t.tryChange(ctx, r, name, apply)
		return err
	})
	return m, err
}

// again tries what others may make fail, a bounded number of times. From the second failure on it
// waits for a random time that grows: many writers of one record, as of the children of one
// parent, would otherwise fail each other again and again.
func again(ctx context.Context, name string, try func() error) error {
	var err error
	for attempt := range Attempts {
		if err = try(); !errors.Is(err, record.ErrMismatch) {
			break
		}
		if attempt == 0 || attempt == Attempts-1 {
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", name, ctx.Err())
		case <-time.After(mathrand.N(time.Millisecond << min(attempt, 6))):
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (t *Table[M]) tryChange(ctx context.Context, r request, name string, apply func(M) error) (M, error) {
	ctx, read := memory.Read(ctx)
	defer read.Drop()
	m, now, err := t.read(ctx, name)
	if err != nil {
		return m, err
	}
	if err := t.stale(r, m); err != nil {
		return m, err
	}
	before := proto.CloneOf(m)
	_, partsBefore := t.split(before)
	if err := apply(m); err != nil {
		return m, err
	}
	t.setName(m, name)
	m.ProtoReflect().Set(t.revision, proto.CloneOf(before).ProtoReflect().Get(t.revision))
	t.cfg.Revision.Next(m)
	if err := t.cfg.Check(ctx, m, before); err != nil {
		return m, err
	}
	head, parts := t.split(m)
	doc, err := protodoc.Merge(now.head.Doc, head)
	if err != nil {
		return m, apiversion.RequestError(err)
	}
	if doc, err = t.formed(doc, false); err != nil {
		return m, err
	}
	more, err := t.partWrites(name, now.parts, partsBefore, parts)
	if err != nil {
		return m, err
	}
	owners, err := t.touchOwner(ctx, name)
	if err != nil {
		return m, err
	}
	own := record.Mutation{Kind: t.cfg.Kind, Key: now.head.Key, Doc: doc, Match: as(now.head.Doc, doc, now.match)}
	return m, apiversion.Known(t.store.Write(ctx, slices.Concat([]record.Mutation{own}, more, owners)))
}

// wholeBytes bounds what is compared as a whole: it is sent together with what is written, and a
// database takes no more than it does in one command.
const wholeBytes = 8 << 20

// as matches a record that is still what was read, or otherwise what is left of that where it is
// large together with what is written. A revision alone does not tell: data updates leave it as it
// is, and a change made of what was there before one would undo it.
func as(doc, next bson.Raw, otherwise *record.Match) *record.Match {
	if len(doc)+len(next) > wholeBytes {
		return otherwise
	}
	return record.MatchDoc(doc)
}

// stored are the records of a resource, and its revision, with which parts change together.
type stored struct {
	head  record.Record
	parts []record.Record
	match *record.Match
}

func (t *Table[M]) read(ctx context.Context, name string) (M, stored, error) {
	var now stored
	var err error
	if now.head, err = t.store.Get(ctx, t.cfg.Kind, name); err != nil {
		return t.fresh(), now, apiversion.Known(err)
	}
	if now.match, err = t.matching(now.head.Doc); err != nil {
		return t.fresh(), now, err
	}
	if now.parts, err = t.partsOf(ctx, name); err != nil {
		return t.fresh(), now, err
	}
	m, err := t.join(name, now.head, now.parts)
	return m, now, err
}

// matching compares the revision that a record has, under whichever of its names.
func (t *Table[M]) matching(doc bson.Raw) (*record.Match, error) {
	elements, err := doc.Elements()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", apiversion.ErrStored, err)
	}
	for _, e := range elements {
		if protodoc.Field(t.message, e.Key()) == t.revision && e.Value().Type != bson.TypeNull {
			return &record.Match{Path: e.Key(), Value: e.Value()}, nil
		}
	}
	return nil, fmt.Errorf("%w: no %s", apiversion.ErrStored, t.cfg.Revision.Field)
}

// Delete removes the resource that a request names, with all its parts and children (Owner).
func (t *Table[M]) Delete(ctx context.Context, req proto.Message) error {
	r := t.request(req)
	name, err := t.named(r)
	if err != nil {
		return err
	}
	return again(ctx, name, func() error { return t.tryDelete(ctx, r, name) })
}

func (t *Table[M]) tryDelete(ctx context.Context, r request, name string) error {
	ctx, read := memory.Read(ctx)
	defer read.Drop()
	owners, err := t.touchOwner(ctx, name)
	if err != nil && !errors.Is(err, record.ErrNotFound) { // an orphan can be deleted
		return err
	}
	if t.cfg.Parts == nil && len(t.children) == 0 && !t.expects(r) {
		return apiversion.Known(t.store.Write(ctx, append(owners, record.Mutation{Kind: t.cfg.Kind, Key: record.StringKey(name), Exists: true})))
	}
	m, now, err := t.read(ctx, name)
	if err != nil && !errors.Is(err, apiversion.ErrStored) || now.match == nil {
		return err
	}
	if t.expects(r) {
		if err != nil {
			return err
		}
		if err := t.stale(r, m); err != nil {
			return err
		}
	}
	// Read after the record: a child that is created later changes the record, which is compared.
	children, err := t.deleteChildren(ctx, name)
	if err != nil {
		return err
	}
	ms := append(slices.Concat(owners, children), record.Mutation{Kind: t.cfg.Kind, Key: now.head.Key, Match: now.match})
	for _, p := range now.parts {
		ms = append(ms, record.Mutation{Kind: p.Kind, Key: p.Key})
	}
	return apiversion.Known(t.store.Write(ctx, ms))
}

// formed leaves out of a document the sparse fields that say nothing and, of a new one, the
// field that its parts make up.
func (t *Table[M]) formed(doc bson.Raw, fresh bool) (bson.Raw, error) {
	if len(t.cfg.Sparse) == 0 && (!fresh || t.cfg.Parts == nil) {
		return doc, nil
	}
	elements, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	out := make(bson.D, 0, len(elements))
	for _, e := range elements {
		v := e.Value()
		text, isText := v.StringValueOK()
		number, isNumber := v.AsFloat64OK()
		empty := isText && text == "" || isNumber && number == 0
		field := e.Key()
		if fd := protodoc.Field(t.message, field); fd != nil {
			field = string(fd.Name())
		}
		ofParts := fresh && t.cfg.Parts != nil && field == t.cfg.Parts.Field
		if !ofParts && !(empty && slices.Contains(t.cfg.Sparse, field)) {
			out = append(out, bson.E{Key: e.Key(), Value: v})
		}
	}
	return bson.Marshal(out)
}
