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
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// Create creates the resource in a request and returns it. Its name consists of the parent and the
// id in the request, or is the name inside the resource. If the request has neither, Config.NewID
// makes the id. If the name exists, the error is record.ErrExists. If the resource has an Owner and
// its parent is missing, the error is record.ErrNotFound.
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
		// A collision of a generated id is no answer to the client's request, so another id is
		// tried.
		if !drawn || attempt == Attempts || !errors.Is(err, record.ErrExists) {
			return m, err
		}
	}
}

// Insert creates a resource that the service itself makes, under the name inside it, and returns
// it. If the name exists, the error is record.ErrExists.
func (t *Table[M]) Insert(ctx context.Context, m M) (M, error) {
	name := t.nameOf(m)
	if err := t.pattern.check(t.cfg.NameField, name); err != nil {
		return m, err
	}
	return t.create(ctx, name, m)
}

// newName returns the name of a new resource. drawn reports that NewID made its id.
func (t *Table[M]) newName(r request, in M) (name string, drawn bool, err error) {
	idField := t.pattern.id() + "_id"
	inside := r.roles.Resource + "." + t.cfg.NameField
	id, hasID := "", r.msg.Descriptor().Fields().ByName(protoreflect.Name(idField)) != nil
	if hasID {
		id = r.text(idField)
	}
	given := t.nameOf(in)
	if t.pattern.bare() {
		inside = t.cfg.NameField // as other methods of the service do
	}
	if !hasID && (given != "" || t.cfg.NewID == nil) {
		// A middleware may have checked access by the parent, so the name must be inside it.
		if in := r.text(r.roles.Parent); in != "" && t.pattern.hasParent() && !strings.HasPrefix(given, in+"/"+t.pattern.collection()+"/") {
			return "", false, listing.Invalid(inside, "is %q, not in %q", given, in)
		}
		return given, false, t.pattern.check(inside, given)
	}
	// From here on the name is made from the parent and the id.
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
	// To ignore a contradicting name would create a resource that the client does not expect.
	if given != "" && given != name {
		return "", false, listing.Invalid(inside, "is %q, but the request makes %q; leave it out", given, name)
	}
	return name, drawn, nil
}

func (t *Table[M]) create(ctx context.Context, name string, in M) (M, error) {
	m := proto.CloneOf(in)
	t.setName(m, name)
	// The client's revision has no meaning: First must set it.
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
	done, err := t.await(ctx, name, m, none)
	if err != nil {
		return in, err
	}
	defer done()
	// The write fails with ErrMismatch only if an owner or a target changes meanwhile. Only that is
	// retried.
	return m, again(ctx, name, func() error {
		owners, err := t.touchOwner(ctx, name)
		if err != nil {
			return err
		}
		targets, err := t.touchTargets(ctx, name, m, none)
		if err != nil {
			return err
		}
		return t.raced(apiversion.Known(t.store.Write(ctx, once(slices.Concat(ms, owners, targets)))))
	})
}

// Update sets the fields of a resource that the request's update mask names, and returns the
// resource. The name and the revision belong to the service: Update ignores the client's values for
// them. The errors are those of Change.
func (t *Table[M]) Update(ctx context.Context, req proto.Message) (M, error) {
	r := t.request(req)
	in, err := t.given(r)
	if err != nil {
		return in, err
	}
	mask := r.mask(r.roles.UpdateMask)
	r.roles.Name = "" // only the name inside the resource counts
	return t.change(ctx, r, func(m M) error { return listing.Update(m, in, mask) })
}

// Change changes the resource that a request names. If others change it meanwhile, Change reads it
// again and calls apply again, unless the request expects a revision. apply may only change the
// message. Fields of the record that M does not have stay in it. Change returns an error of apply.
//
// If there is no such resource, the error is record.ErrNotFound. If the resource has another
// revision than the request expects, the error is apiversion.ErrStale. If others changed it in each
// of the Attempts, the error is record.ErrMismatch.
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

// again calls try until it returns no record.ErrMismatch, at most Attempts times. From the second
// failure on it pauses for a random time that grows. Without the pause, many writers of one record,
// such as the children of one parent, would make each other fail.
func again(ctx context.Context, name string, try func() error) error {
	var err error
	for attempt := range Attempts {
		if err = try(); !errors.Is(err, record.ErrMismatch) {
			break
		}
		// Most conflicts are between two writers, so the first retry is immediate.
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
	// Changing: a read-only copy of the resource may be outdated, so its owner must decide.
	m, now, err := t.read(vrunner.Changing(ctx), name)
	if err != nil {
		return m, err
	}
	// Before apply: a client with an outdated revision gets that error, whatever its change is.
	if err := t.stale(r, m); err != nil {
		return m, err
	}
	// apply changes m, but Check and the parts need the state before.
	before := proto.CloneOf(m)
	if err := apply(m); err != nil {
		return m, err
	}
	ms, err := t.rewrite(ctx, name, now, before, m)
	if err != nil {
		return m, err
	}
	// The owner changes in the same transaction, so a conditional update of it sees this change.
	owners, err := t.touchOwner(ctx, name)
	if err != nil {
		return m, err
	}
	done, err := t.await(ctx, name, m, before)
	if err != nil {
		return m, err
	}
	defer done()
	targets, err := t.touchTargets(ctx, name, m, before)
	if err != nil {
		return m, err
	}
	return m, t.raced(apiversion.Known(t.store.Write(ctx, once(slices.Concat(ms, owners, targets)))))
}

// rewrite returns the writes of a resource and its parts that turn before into m. It counts the
// revision of m and checks it.
func (t *Table[M]) rewrite(ctx context.Context, name string, now stored, before, m M) ([]record.Mutation, error) {
	_, partsBefore := t.split(before)
	t.setName(m, name)
	// The caller must not set the revision, so it is counted from the stored one.
	m.ProtoReflect().Set(t.revision, proto.CloneOf(before).ProtoReflect().Get(t.revision))
	t.cfg.Revision.Next(m)
	if err := t.cfg.Check(ctx, m, before); err != nil {
		return nil, err
	}
	head, parts := t.split(m)
	// Merge keeps the stored fields that this program does not know.
	doc, err := protodoc.Merge(now.head.Doc, head)
	if err != nil {
		return nil, apiversion.RequestError(err)
	}
	if doc, err = t.formed(doc, false); err != nil {
		return nil, err
	}
	more, err := t.partWrites(name, now.parts, partsBefore, parts)
	if err != nil {
		return nil, err
	}
	own := record.Mutation{Kind: t.cfg.Kind, Key: now.head.Key, Doc: doc, Match: as(now.head.Doc, doc, now.match)}
	return append([]record.Mutation{own}, more...), nil
}

// wholeBytes is the largest total size of a compared document and its replacement. A command
// contains both, and databases limit the size of a command.
const wholeBytes = 8 << 20

// as returns the condition that a record is still as it was read. It compares the whole document,
// or uses otherwise if that is too large. A revision alone is weaker: data updates do not change
// it, and a change based on the data before one would undo it.
func as(doc, next bson.Raw, otherwise *record.Match) *record.Match {
	if len(doc)+len(next) > wholeBytes {
		return otherwise
	}
	return record.MatchDoc(doc)
}

// stored holds the records of a resource and the condition on its revision. Parts change only
// together with the revision.
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

// matching returns the condition on the revision of a record. The record may have it under any of
// the field's names.
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

// Delete deletes the resource that a request names, with its parts and its children, in one
// transaction, and does to the resources that refer to these what Target.TargetDelete says. The
// errors are those of Change. It fails with FAILED_PRECONDITION if an Owner has Refuse and there are
// children, if a Target with Block is left (refusal.StillReferenced), or if more than 10,000 records
// would be deleted or changed with the resource.
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
	// Nothing depends on the record's content, so it need not be read.
	if t.cfg.Parts == nil && len(t.children) == 0 && len(t.referrers) == 0 && !t.expects(r) {
		owners, err := t.touchOwner(ctx, name)
		if err != nil && !errors.Is(err, record.ErrNotFound) { // an orphan can be deleted
			return err
		}
		return apiversion.Known(t.store.Write(ctx, append(owners, record.Mutation{Kind: t.cfg.Kind, Key: record.StringKey(name), Exists: true})))
	}
	m, now, err := t.read(vrunner.Changing(ctx), name)
	// A record that cannot be decoded can still be deleted if its revision is readable.
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
	plan := newRemoval(ctx)
	if err := t.remove(ctx, plan, name, now.match, now.parts); err != nil {
		return err
	}
	ms, err := plan.mutations(ctx)
	if err != nil {
		return err
	}
	err = oversize(apiversion.Known(t.store.Write(ctx, ms)), len(ms))
	if len(ms) > 1 && errors.Is(err, record.ErrNotFound) {
		// One of the other records was deleted meanwhile, or this one, which the next read shows.
		return fmt.Errorf("%w: a resource was deleted meanwhile", record.ErrMismatch)
	}
	return err
}

// formed removes from a document its empty sparse fields and, in a new one, the field of the parts.
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
		// The element may have an alias of the field's name.
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
