package resource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
)

// place is a record.
type place struct {
	kind string
	key  record.Key
}

// removal collects all writes of one delete. They are made in one transaction, on the condition
// that nothing has changed that could add to them: each resource is read before the resources that
// refer to it, and a new reference changes the revision of what it names.
type removal struct {
	gone    map[place]record.Mutation
	cleared map[place]*clearing
	owners  []owned
	blocks  []*blocked
	next    []func(context.Context) error // referrers to be read
	held    int64                         // bytes of what is kept
}

// clearing is a referrer of which a field is cleared.
type clearing struct {
	m      proto.Message
	writes func(ctx context.Context) ([]record.Mutation, error)
}

// owned is an owner whose revision changes because a child is deleted or changed.
type owned struct {
	place
	touch func(ctx context.Context) ([]record.Mutation, error)
}

// blocked holds the resources that refer to deleted ones by one field with Block.
type blocked struct {
	what string // the collection and the field
	by   map[place]bool
}

// follower is a field that names resources, as the table of these resources sees it.
type follower interface {
	// release adds to a removal what becomes of the resources that name a deleted resource.
	release(ctx context.Context, r *removal, name string) error
}

func newRemoval(ctx context.Context) *removal {
	// The request may hold other reads already, which must stay counted.
	return &removal{gone: map[place]record.Mutation{}, cleared: map[place]*clearing{}, held: memory.ReadsOf(ctx).Held()}
}

// mutationBytes is the memory of a mutation, next to its key and document.
const mutationBytes = 128

// keep counts what the removal keeps, and gives back the other reads.
func (r *removal) keep(ctx context.Context, bytes int) error {
	r.held += int64(bytes + mutationBytes)
	memory.ReadsOf(ctx).Keep(r.held)
	if n := len(r.gone) + len(r.cleared); n > maxChildren {
		return tooMany()
	}
	return nil
}

// remove adds the deletion of a resource on a condition, with its parts, its children and everything
// that refers to them. The condition must come from a read before the call. Without parts, remove
// reads them.
func (t *Table[M]) remove(ctx context.Context, r *removal, name string, match *record.Match, parts []record.Record) error {
	p := place{t.cfg.Kind, record.StringKey(name)}
	if _, done := r.gone[p]; done {
		return nil // a cycle, or a second way to it
	}
	delete(r.cleared, p)
	r.gone[p] = record.Mutation{Kind: p.kind, Key: p.key, Match: match}
	if err := r.keep(ctx, len(name)); err != nil {
		return err
	}
	// Parts need no condition of their own: they change only together with the record.
	for _, rec := range parts {
		r.gone[place{rec.Kind, rec.Key}] = record.Mutation{Kind: rec.Kind, Key: rec.Key}
	}
	if t.cfg.Parts != nil && len(parts) == 0 {
		if _, err := t.deletions(ctx, r, t.cfg.Parts.Kind, name+"/"); err != nil {
			return err
		}
	}
	t.owner(r, name)
	return t.follow(ctx, r, name)
}

// follow adds the children of a deleted resource, and what refers to it.
func (t *Table[M]) follow(ctx context.Context, r *removal, name string) error {
	// The children are read after the record. To create a child changes the record, so a child that
	// is created meanwhile makes the condition on it fail.
	for _, c := range t.children {
		if err := c.below(ctx, r, name); err != nil {
			return err
		}
	}
	for _, f := range t.referrers {
		r.next = append(r.next, func(ctx context.Context) error { return f.release(ctx, r, name) })
	}
	return nil
}

// owner adds the change of a resource's owner.
func (t *Table[M]) owner(r *removal, name string) {
	if t.cfg.Owner.Table == nil {
		return
	}
	parent := t.parentOf(name)
	p := place{t.cfg.Owner.Table.owning(), record.StringKey(parent)}
	if !slices.ContainsFunc(r.owners, func(o owned) bool { return o.place == p }) {
		r.owners = append(r.owners, owned{p, func(ctx context.Context) ([]record.Mutation, error) { return t.cfg.Owner.Table.touch(ctx, parent) }})
	}
}

// mutations returns the writes of the removal.
func (r *removal) mutations(ctx context.Context) ([]record.Mutation, error) {
	for len(r.next) > 0 {
		release := r.next[0]
		r.next = r.next[1:]
		if err := release(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.blocking(); err != nil {
		return nil, err
	}
	var ms []record.Mutation
	for _, m := range r.gone {
		ms = append(ms, m)
	}
	for _, c := range r.cleared {
		writes, err := c.writes(ctx)
		if err != nil {
			return nil, err
		}
		ms = append(ms, writes...)
	}
	// Neighbours of one kind and one form share a command of the database.
	slices.SortFunc(ms, func(a, b record.Mutation) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), compareBool(a.Doc != nil, b.Doc != nil), compareBool(a.Match != nil, b.Match != nil), strings.Compare(string(a.Key), string(b.Key)))
	})
	for _, o := range r.owners {
		if _, gone := r.gone[o.place]; gone {
			continue
		}
		touched, err := o.touch(ctx)
		if err != nil && !errors.Is(err, record.ErrNotFound) { // an orphan can be deleted
			return nil, err
		}
		ms = append(ms, touched...)
	}
	return once(ms), nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// blocking refuses the removal if resources that stay refer to what it deletes.
func (r *removal) blocking() error {
	var what []string
	total, more := 0, ""
	for _, b := range r.blocks {
		n := 0
		for p := range b.by {
			if _, gone := r.gone[p]; !gone {
				n++
			}
		}
		if n == 0 {
			continue
		}
		count := fmt.Sprint(n)
		if n > maxChildren {
			count, more = fmt.Sprintf("more than %d", maxChildren), "+"
		}
		total += min(n, maxChildren)
		what = append(what, count+" "+b.what)
	}
	if total == 0 {
		return nil
	}
	return refusal.New(refusal.StillReferenced, fmt.Errorf("it, or what is deleted with it, is still referred to: %s: delete or change these first", strings.Join(what, ", ")),
		refusal.MetaReferrers, fmt.Sprint(total)+more)
}

// oversize says what to do about a removal that exceeds the database's limit for a transaction.
func oversize(err error, n int) error {
	if n > 1 && errors.Is(err, record.ErrOversize) {
		return refusal.New(refusal.TooLarge, fmt.Errorf("%d records would be deleted or changed with it, which is more than the database accepts in one transaction: delete some of them first: %w", n, err))
	}
	return err
}

func tooMany() error {
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("more than %d records would be deleted or changed with it, which is more than one transaction takes: delete some of them first", maxChildren))
}
