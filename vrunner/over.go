package vrunner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
)

// Adapter shows the records of a stored version as those of another, as package
// transform/adapt does.
type Adapter interface {
	Get(ctx context.Context, kind, key string) (record.Record, error)
	List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error)
	Write(ctx context.Context, ms []record.Mutation) error
	// Follows returns the stored kinds whose changes may show in kinds.
	Follows(kinds ...string) []string
	// Affected returns what a change of a stored record may change in the version shown: records
	// by their names or, where the names are not known, by what these begin with.
	Affected(kind, name string) ([]record.Selector, error)
	// Several reports whether Affected returns beginnings of names for a kind.
	Several(kind string) bool
}

// Over is the store of a version that is shown over another one's. Its changes are those of the
// stored kinds that follow names; with none, of all that may show in what is asked for.
//
// A subscription remembers the names of kinds of which a stored record shows several, to
// report those that are gone, and lists them when it begins and after each ErrLost. Without room
// for them it is refused as busy, and likewise its Next: list again, as after ErrLost.
func Over(stored Store, shown Adapter, follow ...string) Store {
	o := over{shown, stored, follow}
	if in, ok := shown.(reads); ok {
		return overReads{o, in}
	}
	return o
}

// reads are abilities of a Store that an Adapter may have too.
type reads interface {
	Indexed(kind, field string) bool
	ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error)
	ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, more bool, err error)
}

type overReads struct {
	over
	reads
}

var (
	_ IndexStore   = overReads{}
	_ BoundedStore = overReads{}
)

type over struct {
	Adapter
	stored Store
	follow []string
}

func (o over) Changes(ctx context.Context, kinds ...string) (Subscription, error) {
	follow := o.follow
	if len(follow) == 0 {
		follow = o.Follows(kinds...)
	}
	s, err := o.stored.Changes(ctx, follow...)
	if err != nil {
		return nil, err
	}
	c := &overChanges{Subscription: s, shown: o.Adapter, kinds: kinds, known: map[string][]string{}, held: memory.Of(ctx).Hold()}
	if err := c.list(ctx); err != nil {
		c.Close()
		return nil, err
	}
	c.began = true
	return c, nil
}

type overChanges struct {
	Subscription
	shown Adapter
	kinds []string
	known map[string][]string // of kinds with several: the names that there are, in order
	bytes int64               // about what known takes
	began bool                // the caller has the subscription
	held  *memory.Held
}

// Close ends the subscription.
func (c *overChanges) Close() {
	c.Subscription.Close()
	c.known = nil
	c.held.Set(0)
}

// count notes that names have come to known and gone from it, and reports whether there is room for
// all that it has.
func (c *overChanges) count(come, gone []string) bool {
	for _, name := range come {
		c.bytes += sizeOfName(name)
	}
	for _, name := range gone {
		c.bytes -= sizeOfName(name)
	}
	return c.held.SetSpare(c.bytes)
}

// sizeOfName is about what a name takes in a slice.
func sizeOfName(name string) int64 {
	const each = 16 // next to the text
	return int64(len(name) + each)
}

// noRoom reports that known has no room. A stream that the caller has begun runs again.
func (c *overChanges) noRoom(ctx context.Context) error {
	if req := requestOf(ctx); req != nil && c.began {
		req.lost.Store(true)
	}
	return refusal.New(refusal.Busy, errNoRoom)
}

// list brings what is known up to date. It comes before what the caller lists, so that whatever
// is gone after that is known.
func (c *overChanges) list(ctx context.Context) error {
	for _, kind := range c.kinds {
		if !c.shown.Several(kind) {
			continue
		}
		names, err := c.names(ctx, kind, "")
		if err != nil {
			return fmt.Errorf("changes of %s: %w", kind, err)
		}
		before := c.known[kind]
		c.known[kind] = names
		if !c.count(names, before) {
			return c.noRoom(ctx)
		}
	}
	return nil
}

// namesBytes bounds the records that are read at once for their names.
const namesBytes = 8 << 20

// names are those of a kind with a prefix, now, in order. They find room while they are collected, next
// to those that are known.
func (c *overChanges) names(ctx context.Context, kind, prefix string) (names []string, err error) {
	ctx, read := memory.Read(ctx)
	defer func() {
		read.Drop()
		if err != nil {
			c.held.Set(c.bytes) // fewer than before always fit
		}
	}()
	var come int64
	for after, more := "", true; more; read.Drop() {
		var recs []record.Record
		if recs, more, err = c.page(ctx, kind, prefix, after); err != nil {
			return nil, err
		}
		for _, r := range recs {
			after, _ = r.Key.Name()
			// A part of the document's memory would keep all of it.
			names, come = append(names, strings.Clone(after)), come+sizeOfName(after)
		}
		if !c.held.SetSpare(c.bytes + come) {
			return nil, c.noRoom(ctx)
		}
	}
	return names, nil
}

// page is a page of a kind, bounded in bytes where the records can be listed so.
func (c *overChanges) page(ctx context.Context, kind, prefix, after string) (recs []record.Record, more bool, err error) {
	const page = 1000
	if bounded, ok := c.shown.(reads); ok {
		return bounded.ListBounded(ctx, kind, prefix, after, page, namesBytes)
	}
	recs, err = c.shown.List(ctx, kind, prefix, after, page)
	return recs, len(recs) == page, err
}

func (c *overChanges) Next(ctx context.Context) ([]Dirty, error) {
	stored, err := c.Subscription.Next(ctx)
	if errors.Is(err, ErrLost) {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	var out []Dirty
	reported := map[record.Selector]bool{} // several records may show in the same ones
	for _, d := range stored {
		sels, err := c.shown.Affected(d.Kind, d.Name)
		if err != nil {
			return nil, err
		}
		for _, sel := range sels {
			name, ok := sel.Key.Name()
			again := reported[sel]
			reported[sel] = true
			switch {
			case !ok || again || !slices.Contains(c.kinds, sel.Kind):
			case sel.Prefix:
				names, err := c.within(ctx, sel.Kind, name)
				if err != nil {
					return nil, err
				}
				for _, name := range names {
					out = append(out, Dirty{Kind: sel.Kind, Name: name})
				}
			default:
				out = append(out, Dirty{Kind: sel.Kind, Name: name})
			}
		}
	}
	return out, nil
}

// Lister is a Subscription whose caller says what it was shown by lists of its own: a record that
// came after the subscription and went before its first change is reported only so.
type Lister interface {
	Listed(kind, name string)
}

var _ Lister = (*overChanges)(nil)

// Listed notes a name that the caller has been shown.
func (c *overChanges) Listed(kind, name string) {
	if !c.shown.Several(kind) {
		return
	}
	names := c.known[kind]
	if at, there := slices.BinarySearch(names, name); !there {
		c.known[kind] = slices.Insert(names, at, name)
		c.count([]string{name}, nil) // without room for it the next change reports that
	}
}

// within are the names that begin so, or did until now.
func (c *overChanges) within(ctx context.Context, kind, prefix string) ([]string, error) {
	now, err := c.names(ctx, kind, prefix)
	if err != nil {
		return nil, err
	}
	known := c.known[kind]
	from, _ := slices.BinarySearch(known, prefix)
	to := from
	for to < len(known) && strings.HasPrefix(known[to], prefix) {
		to++
	}
	gone := slices.Clone(known[from:to])
	c.known[kind] = slices.Replace(known, from, to, now...)
	if !c.count(now, gone) {
		return nil, c.noRoom(ctx)
	}
	both := slices.Concat(now, gone)
	slices.Sort(both)
	return slices.Compact(both), nil
}
