package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/record"
)

// TargetDelete is the effect of a delete on the resources that refer to the deleted one. It happens
// in the transaction of the delete.
type TargetDelete int

const (
	// Block refuses the delete with refusal.StillReferenced. A resource that the same delete removes
	// does not block it.
	Block TargetDelete = iota + 1
	// Cascade deletes the referring resources too, with their parts, their children and the
	// resources that refer to them.
	Cascade
	// Unset removes the name from the field. Config.Check sees the change and can refuse it, which
	// refuses the delete.
	Unset
)

func (d TargetDelete) String() string {
	switch d {
	case Block:
		return "block"
	case Cascade:
		return "cascade"
	case Unset:
		return "unset"
	}
	return fmt.Sprintf("TargetDelete(%d)", int(d))
}

// Target declares that a field holds names of resources of the same service. The database then
// never has a name in this field whose resource was deleted.
//
// A write that puts a new name into the field changes the revision of the named resource, in the
// same transaction. So a delete that has not seen this write fails and reads again. If there is no
// such resource, the write is refused as an invalid field.
type Target struct {
	// Field is the path of the field, in filter syntax. It is a string or a list of strings, outside
	// of maps and Parts. Indexes of the Version must have it, or each delete would read all records.
	Field string
	// Table is the table of the named resources, over the same store. It may be the same table.
	Table Targeted
	// TargetDelete is required.
	TargetDelete TargetDelete
}

// Targeted is a Table whose resources other resources can name.
type Targeted interface {
	// target registers a reference, and returns the kind of the table.
	target(by follower) (kind string)
	// touchTarget returns the writes that change the revision of a resource that a field names.
	touchTarget(ctx context.Context, field, name string) ([]record.Mutation, error)
	// turn is where writes that name a resource wait for each other.
	turn(name string) turn
}

// DeclaredTargets is a Store that checks the targets of a program when it starts.
type DeclaredTargets interface {
	// DeclareTarget returns an error if a field of a kind cannot be a Target.
	DeclareTarget(kind, field string, d TargetDelete) error
}

// Refer declares fields that hold names of resources of this service. Call it after New and before
// the first request, so that tables can refer to themselves and to each other. It panics if a
// declaration does not fit, as New does.
//
// Each version of an API declares the same targets, since its clients write the same records.
// Package dbcontroller refuses versions that differ in a kind of the same name.
func (t *Table[M]) Refer(targets ...Target) {
	for _, to := range targets {
		if err := t.refer(to); err != nil {
			panic(fmt.Sprintf("resource: table of %s: Refer: %s: %v", t.cfg.Kind, to.Field, err))
		}
	}
}

func (t *Table[M]) refer(to Target) error {
	path, err := t.referring(to.Field)
	if err != nil {
		return err
	}
	switch {
	case to.Table == nil:
		return errors.New("no Table")
	case to.TargetDelete != Block && to.TargetDelete != Cascade && to.TargetDelete != Unset:
		return errors.New("set TargetDelete to Block, Cascade or Unset")
	case to.TargetDelete == Unset && required(path[len(path)-1]):
		return errors.New("it is a required or immutable field: Unset cannot clear it")
	}
	if d, ok := t.store.(DeclaredTargets); ok {
		if err := d.DeclareTarget(t.cfg.Kind, to.Field, to.TargetDelete); err != nil {
			return err
		}
	}
	ref := &reference[M]{Target: to, table: t, path: path}
	ref.kind = to.Table.target(ref)
	t.targets = append(t.targets, ref)
	return nil
}

// referring returns the fields along the path of a reference.
func (t *Table[M]) referring(field string) (path []protoreflect.FieldDescriptor, err error) {
	parts, err := listing.SplitPath(field)
	if err != nil {
		return nil, err
	}
	for here, i := t.message, 0; i < len(parts); i++ {
		if here == nil {
			return nil, fmt.Errorf("%s is not a message", parts[i-1])
		}
		fd := here.Fields().ByName(protoreflect.Name(parts[i]))
		switch {
		case fd == nil:
			return nil, fmt.Errorf("%s has no field %s", here.FullName(), parts[i])
		case fd.IsMap():
			return nil, fmt.Errorf("%s is a map, which no index covers", parts[i])
		case protodoc.Aliased(fd):
			return nil, fmt.Errorf("%s has an alias: an index covers only one name of a field", parts[i])
		}
		path, here = append(path, fd), fd.Message()
	}
	switch first, last := path[0], path[len(path)-1]; {
	case last.Kind() != protoreflect.StringKind:
		return nil, errors.New("it is no string and no list of strings")
	case first == t.name:
		return nil, errors.New("it is the name of the resource itself")
	case t.cfg.Parts != nil && string(first.Name()) == t.cfg.Parts.Field:
		return nil, errors.New("it is in the field of Parts, whose records have no index")
	}
	return path, nil
}

// required reports whether a field always has a value, by its definition or by
// google.api.field_behavior.
func required(fd protoreflect.FieldDescriptor) bool {
	if fd.Cardinality() == protoreflect.Required {
		return true
	}
	behaviors, _ := proto.GetExtension(fd.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	return slices.ContainsFunc(behaviors, func(b annotations.FieldBehavior) bool {
		return b == annotations.FieldBehavior_REQUIRED || b == annotations.FieldBehavior_IMMUTABLE || b == annotations.FieldBehavior_IDENTIFIER
	})
}

// reference is a Target with the table that declares it.
type reference[M proto.Message] struct {
	Target
	table *Table[M]
	kind  string // of the named resources
	path  []protoreflect.FieldDescriptor
}

// names returns the names in the field of a message, sorted, each once.
func (f *reference[M]) names(m M) []string {
	var out []string
	if r := m.ProtoReflect(); r.IsValid() {
		each(r, f.path, func(name string) bool {
			if name != "" {
				out = append(out, name)
			}
			return true
		})
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// each calls keep for every name along a path, and removes the names for which it returns false.
func each(m protoreflect.Message, path []protoreflect.FieldDescriptor, keep func(name string) bool) {
	fd, rest := path[0], path[1:]
	if !m.Has(fd) {
		return
	}
	if !fd.IsList() {
		switch {
		case len(rest) > 0:
			each(m.Get(fd).Message(), rest, keep)
		case !keep(m.Get(fd).String()):
			m.Clear(fd)
		}
		return
	}
	list, kept := m.Get(fd).List(), 0
	for i := range list.Len() {
		v := list.Get(i)
		if len(rest) > 0 {
			each(v.Message(), rest, keep)
		} else if keep(v.String()) {
			list.Set(kept, v)
			kept++
		}
	}
	if len(rest) == 0 && kept < list.Len() {
		list.Truncate(kept)
	}
}

func (t *Table[M]) target(by follower) string {
	t.referrers = append(t.referrers, by)
	return t.cfg.Kind
}

func (t *Table[M]) touchTarget(ctx context.Context, field, name string) ([]record.Mutation, error) {
	if err := t.pattern.check(field, name); err != nil {
		return nil, err
	}
	own, err := t.touchOne(ctx, name)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return nil, listing.Invalid(field, "there is no %s", name)
	case err != nil:
		return nil, err
	}
	owners, err := t.touchOwner(ctx, name)
	if err != nil && !errors.Is(err, record.ErrNotFound) { // an orphan can be named
		return nil, err
	}
	return append([]record.Mutation{own}, owners...), nil
}

// touchTargets returns the writes that change the revision of each resource that m names and before
// does not. Names that stay need none: a delete that cascades, or clears the field, compares the
// record that has the name.
func (t *Table[M]) touchTargets(ctx context.Context, name string, m, before M) ([]record.Mutation, error) {
	var ms []record.Mutation
	err := t.eachNew(name, m, before, func(f *reference[M], to string) error {
		touched, err := f.Table.touchTarget(ctx, f.Field, to)
		ms = append(ms, touched...)
		return err
	})
	return ms, err
}

// once returns the mutations without those of a record that an earlier one writes already. Each
// record changes its revision once in a transaction, for whatever reasons.
func once(ms []record.Mutation) []record.Mutation {
	seen := map[place]bool{}
	return slices.DeleteFunc(ms, func(m record.Mutation) bool {
		p := place{m.Kind, m.Key}
		had := seen[p]
		seen[p] = true
		return had
	})
}

// raced turns the missing of a touched resource into a conflict. It was deleted between its read
// and the write, so the next attempt reports it.
func (t *Table[M]) raced(err error) error {
	if len(t.targets) > 0 && errors.Is(err, record.ErrNotFound) {
		return fmt.Errorf("%w: a resource was deleted meanwhile", record.ErrMismatch)
	}
	return err
}
