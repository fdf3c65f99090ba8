package vrunner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
)

// Adapter shows the records of a stored version as records of another version. Package
// transform/adapt has one.
type Adapter interface {
	// Get, List and Write work as those of Store, on the records shown.
	Get(ctx context.Context, kind, key string) (record.Record, error)
	List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error)
	Write(ctx context.Context, ms []record.Mutation) error
	// Follows returns the stored kinds whose changes may show in kinds.
	Follows(kinds ...string) []string
	// Affected returns the shown records that a change of a stored record may change. It returns
	// their names or, if it does not know the names, their prefixes.
	Affected(kind, name string) ([]record.Selector, error)
	// Several reports whether Affected returns prefixes for a kind.
	Several(kind string) bool
}

// Over returns the store of a version that is shown over a stored version. Its subscriptions follow
// the stored kinds in follow. If follow is empty, they follow all stored kinds that may show in the
// requested kinds.
//
// One stored record may show as several records of a kind. For such a kind the subscription
// remembers the names, so that it can report deleted ones. It lists them at the start and after
// each ErrLost. If there is no memory for the names, Changes and Next return an error with the
// reason refusal.Busy. After such an error of Next the caller must list again, as after ErrLost.
func Over(stored Store, shown Adapter, follow ...string) Store {
	o := over{shown, stored, follow}
	if in, ok := shown.(reads); ok {
		return overReads{o, in}
	}
	return o
}

// reads holds the optional abilities of a Store that an Adapter may have too.
type reads interface {
	Indexed(kind, field string) bool
	ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error)
	ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, more bool, err error)
	Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error)
}

type overReads struct {
	over
	reads
}

var (
	_ IndexStore   = overReads{}
	_ BoundedStore = overReads{}
	_ SelectStore  = overReads{}
)

type over struct {
	Adapter
	stored Store
	follow []string
}

// Region returns the region of the stored version (package resource/region), or "".
func (o over) Region() string {
	if s, ok := o.stored.(interface{ Region() string }); ok {
		return s.Region()
	}
	return ""
}

func (o over) Changes(ctx context.Context, kinds ...string) (Subscription, error) {
	follow := o.follow
	if len(follow) == 0 {
		follow = o.Follows(kinds...)
	}
	// Subscribe before the list, so that a change between the two is not missed.
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
	known map[string][]string // for kinds with Several: the existing names, sorted
	bytes int64               // approximate size of known
	began bool                // Changes has returned the subscription
	stale bool                // known lacks names, so Next must list them again
	held  *memory.Held        // counts bytes
}

// Close ends the subscription.
func (c *overChanges) Close() {
	c.Subscription.Close()
	c.known = nil
	c.held.Set(0)
}

// count updates the size of known and reports whether there is memory for it. Without memory it
// forgets all names: they must not stay uncounted.
func (c *overChanges) count(come, gone []string) bool {
	for _, name := range come {
		c.bytes += sizeOfName(name)
	}
	for _, name := range gone {
		c.bytes -= sizeOfName(name)
	}
	if c.held.SetSpare(c.bytes) {
		return true
	}
	c.known, c.bytes, c.stale = map[string][]string{}, 0, true
	c.held.Set(0)
	return false
}

// sizeOfName returns the approximate size of a name in a slice, in bytes.
func sizeOfName(name string) int64 {
	const each = 16 // next to the text
	return int64(len(name) + each)
}

// again makes Runner.Stream start the handler of a subscription in use again.
func (c *overChanges) again(ctx context.Context) {
	if req := requestOf(ctx); req != nil && c.began {
		req.lost.Store(true)
	}
}

// noRoom returns the error for missing memory. After it the handler starts again.
func (c *overChanges) noRoom(ctx context.Context) error {
	c.again(ctx)
	return refusal.New(refusal.Busy, memory.ErrNoRoom)
}

// list reads the known names again. It runs before the caller's own list, so that a name that
// disappears after that list is known.
func (c *overChanges) list(ctx context.Context) error {
	c.stale = true // until all names are known
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
	c.stale = false
	return nil
}

// namesBytes bounds the size of records that one list reads for their names.
const namesBytes = 8 << 20

// names returns the present names of a kind with a prefix, sorted. While it collects them it takes
// memory for them, in addition to the known names.
func (c *overChanges) names(ctx context.Context, kind, prefix string) (names []string, err error) {
	// Only the names are kept. The documents of each page are given back.
	ctx, read := memory.Read(ctx)
	defer func() {
		read.Drop()
		if err != nil {
			c.held.Set(c.bytes) // a smaller number always fits
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
			// The name shares memory with the document. Without the copy it would keep the whole
			// document.
			names, come = append(names, strings.Clone(after)), come+sizeOfName(after)
		}
		if !c.held.SetSpare(c.bytes + come) {
			return nil, c.noRoom(ctx)
		}
	}
	return names, nil
}

// page returns one page of a kind. It is bounded in bytes if the adapter supports that.
func (c *overChanges) page(ctx context.Context, kind, prefix, after string) (recs []record.Record, more bool, err error) {
	const page = 1000
	if bounded, ok := c.shown.(reads); ok {
		return bounded.ListBounded(ctx, kind, prefix, after, page, namesBytes)
	}
	recs, err = c.shown.List(ctx, kind, prefix, after, page)
	return recs, len(recs) == page, err
}

func (c *overChanges) Next(ctx context.Context) ([]Dirty, error) {
	// A name that the caller has and that is gone by now is in no list, so the caller lists again.
	if c.stale {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
		c.again(ctx)
		return nil, ErrLost
	}
	// After a loss the known names may be outdated as well.
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
	reported := map[record.Selector]bool{} // several stored records may affect the same shown record
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
			// The affected names are unknown: report every present and former name with this
			// prefix.
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

// Lister is an optional ability of a Subscription. Its caller reports the names that its own lists
// returned. Without this, the subscription cannot report a record that was created after it began
// and deleted before its first change.
type Lister interface {
	// Listed reports that a list has returned the record of a kind with this name.
	Listed(kind, name string)
}

var _ Lister = (*overChanges)(nil)

// Listed remembers a name that the caller's list returned.
func (c *overChanges) Listed(kind, name string) {
	if !c.shown.Several(kind) {
		return
	}
	names := c.known[kind]
	if at, there := slices.BinarySearch(names, name); !there {
		c.known[kind] = slices.Insert(names, at, name)
		c.count([]string{name}, nil) // without memory, the next call of Next fails
	}
}

// within returns the names that begin with a prefix, now or when last known, sorted.
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
	// A former name without a record was deleted, and the caller learns this when it reads it.
	both := slices.Concat(now, gone)
	slices.Sort(both)
	return slices.Compact(both), nil
}
