// Package adapt shows the store of one version as that of another, read and write, so
// that handlers of the one API run over the data of the other, unchanged.
//
// A record shown is what the transformer makes of its group as stored. A write reads the
// stored groups of what it touches, checks its conditions against what they show, changes
// that, transforms it back into what is stored, so that fields which the version shown
// does not know survive, and writes the difference in one Store.Write whose conditions
// require that everything that was read is unchanged. Where it is not, the whole is done
// again.
//
// # Guarantees
//
//   - A write happens at one moment, or not at all, for any number of groups. It changes or
//     checks every record that it has read, so that of concurrent changes none is lost. A
//     record that joins a group meanwhile is noticed by what else its writer changes:
//     a handler of the stored version that adds a record to a group of several has to
//     change one that was there, as the bbs sample does with its modification tag.
//   - Errors are those of record, and name records as the caller did: ErrNotFound, ErrExists and
//     ErrMismatch speak of the record shown and the caller's own conditions. ErrMismatch also
//     means that a group changed too often to be read or written. What the stored version
//     cannot hold is a *LossError.
//   - Get shows one state of the group. List is no snapshot: each group is shown as it was
//     at some moment of the call.
//
// # Lists
//
// List returns names of the version shown in their order, which is that of the version's own
// store: a client that goes through pages while the active version changes, or changes back,
// is shown each record once. How depends on the kind:
//
//   - A prefix that lies within one group ("<guid>/" for the parts of a guid) reads that group.
//   - Where stored names sort the same, the list follows the stored kind that leads, page by
//     page. They do where one stored kind alone makes up the group and has the same names;
//     where Config.Leads declares which one leads, by the same names; and where a lens or
//     Config.Names maps names and it is certain (transform.KeepsOrder, which a lens knows of
//     its patterns), or Config.Ordered declares, that the order is kept.
//   - For all others a page is made of an index of the names, as the version shown has them, in
//     memory. It follows what is written as pages need it, and a page is made of it only once it
//     has all that there was when the page was asked for. Where there is none (a Store that is no
//     PagingStore, more names than it may hold) each page goes over the stored names within the
//     prefix, as far as it can be mapped, from the database's index alone. It remembers some
//     thousand names then, whatever there is, and takes one or two seconds for a million.
//
// ListIndexed reads by a field that the stored version declares, where a lens carries it unchanged and
// names sort the same.
//
// The groups of a page are read with one command for each kind where the Store is a BatchStore.
//
// Groups by content are refused: what their records show follows from lineage, which no
// Store has. The package does not know tokens, switches or which version is active.
package adapt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Store is one version's namespace, as handlers use it and as an Adapter shows it.
// record.ErrNotFound and its siblings report what happened.
type Store interface {
	Get(ctx context.Context, kind, key string) (record.Record, error)
	// List returns records in name order whose name begins with prefix and comes after
	// after. limit 0 means 1000.
	List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error)
	// Write makes all mutations or none.
	Write(ctx context.Context, ms []record.Mutation) error
}

// BatchStore is a Store that reads much with one command: an Adapter takes it where it is there.
type BatchStore interface {
	Store
	// Select returns the live records selected, in no particular order, all as they were at one
	// moment: as recent as Get or, as a list, as List.
	Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error)
	// ListNames returns the names of what List would return, without looking at the records:
	// some may be of records that were deleted. Fewer than limit mean that there are no more.
	ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error)
}

// PagingStore is a BatchStore that can also tell what was read at one moment, and what has changed
// since: an Adapter makes long lists of it. A method that the database cannot serve returns an
// *record.UnsupportedError, and lists are made without.
type PagingStore interface {
	BatchStore
	// ListWith lists as List does, and returns with the records what also selects for them, of
	// kinds, all as they were at one moment.
	ListWith(ctx context.Context, kind, prefix, after string, limit int, kinds []string, also func(listed []record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error)
	// SelectAt is Select as a list, with the moment that it shows.
	SelectAt(ctx context.Context, sels []record.Selector) (record.Snapshot, error)
	// Since returns the changes of kinds after a position, waiting for none, and the place that
	// it came to; with no position the present place.
	Since(ctx context.Context, after record.Position, kinds ...string) ([]record.Change, record.Position, error)
}

// Config configures an Adapter. The zero value is enough for most kinds, and for those of a lens:
// it declares itself what leads and how names are mapped (transform.Spec).
type Config struct {
	// Leads names, for a kind shown, the stored kind whose records lead its lists: there is
	// one, under the same name (or that of Names), for each record shown. Records shown
	// without one are not listed.
	Leads map[string]string
	// Names maps, for a kind shown, its names to those of the stored kind that leads it.
	Names map[string]transform.Mapping
	// Ordered declares for kinds in Names that the names of both versions sort the same, where
	// the mapping cannot tell (that of a lens can). A list that finds it untrue fails.
	Ordered map[string]bool
	// AllowLoss lets writes pass whose result does not show what was written, because the
	// stored version has no place for some of it. Otherwise they fail with *LossError.
	AllowLoss bool
}

// Adapter is a Store. Its methods may be called concurrently.
type Adapter struct {
	stored     Store
	batch      BatchStore // stored, if it is one
	show, keep transform.Direction
	cfg        Config
	paging     PagingStore         // stored, if it is one
	indexed    IndexStore          // stored, if it is one
	alone      atomic.Bool         // stored cannot do what a PagingStore does
	leads      map[string]string   // of each kind shown the stored one that leads its lists, if any
	makers     map[string][]string // of each kind shown the stored ones whose records may show in it
	indexes    map[string]*index   // of each kind shown, for lists in another order
	remembered atomic.Int64        // bytes of all indexes
	most       bounds
	sizes      map[string]*atomic.Int64 // of each kind shown: bytes of a record, on average of the last list
}

// bounds are what lists in another order remember at most: fewer in a test.
type bounds struct {
	window int // names
	index  int // bytes
}

var _ Store = (*Adapter)(nil)

// New shows stored, which is of version show.From(), as version show.To(). keep is the
// direction back.
func New(stored Store, show, keep transform.Direction, cfg Config) (*Adapter, error) {
	if show.From() != keep.To() || show.To() != keep.From() {
		return nil, fmt.Errorf("adapt: %s to %s and %s to %s are no way there and back", show.From(), show.To(), keep.From(), keep.To())
	}
	cfg.Leads, cfg.Names, cfg.Ordered = cloned(cfg.Leads), cloned(cfg.Names), cloned(cfg.Ordered)
	for kind := range cfg.Names {
		if cfg.Leads[kind] == "" {
			return nil, fmt.Errorf("adapt: kind %s has Names but no Leads: declare which stored kind they are names of", kind)
		}
	}
	for kind := range cfg.Ordered {
		if cfg.Names[kind] == nil {
			return nil, fmt.Errorf("adapt: kind %s is Ordered but has no Names: declare how its names are mapped", kind)
		}
	}
	// What is written is checked here (loss), and what is shown is never stored.
	a := &Adapter{stored: stored, show: transform.Unchecked(show), keep: transform.Unchecked(keep), cfg: cfg, leads: map[string]string{}, makers: map[string][]string{}, indexes: map[string]*index{}, most: bounds{windowNames, indexBytes}}
	a.batch, _ = stored.(BatchStore)
	a.paging, _ = stored.(PagingStore)
	a.indexed, _ = stored.(IndexStore)
	a.sizes = map[string]*atomic.Int64{}
	for _, k := range show.TargetKinds() {
		a.sizes[k.Name] = &atomic.Int64{}
		if lead, names := transform.NamesOf(show, k.Name); names != nil && cfg.Leads[k.Name] == "" {
			a.cfg.Leads[k.Name], a.cfg.Names[k.Name] = lead, names
		}
		a.leads[k.Name] = a.lead(k.Name)
		a.makers[k.Name] = a.Follows(k.Name)
		if a.paging != nil {
			of, _ := a.sources(page{kind: k.Name})
			a.indexes[k.Name] = newIndex(k.Name, of, &a.remembered)
		}
	}
	return a, nil
}

// cloned is a copy that can be written to.
func cloned[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

// unsupported refuses a kind.
func (a *Adapter) unsupported(kind, reason string) error {
	return &record.UnsupportedError{What: fmt.Sprintf("kind %s of %s over %s", kind, a.show.To(), a.show.From()), Reason: reason}
}

// groupOf names the stored group that shows a record.
func (a *Adapter) groupOf(kind string, key record.Key) (transform.GroupID, error) {
	id, ok, err := a.show.GroupOfTarget(kind, key)
	switch {
	case !ok:
		return id, a.noSource(kind)
	case err != nil:
		return id, fmt.Errorf("%w: %s %s: %w", ErrTransform, kind, key, err)
	case a.show.LineageKind(id.Spec) != "":
		return id, a.byContent(kind)
	}
	return id, nil
}

func (a *Adapter) noSource(kind string) error {
	return a.unsupported(kind, "it has no counterpart there")
}

func (a *Adapter) byContent(kind string) error {
	return a.unsupported(kind, "its groups go by content, which only the copied data can show: read the version itself")
}

// Follows returns the stored kinds whose changes may show in kinds.
func (a *Adapter) Follows(kinds ...string) []string {
	var follow []string
	for _, stored := range a.show.SourceKinds() {
		if !transform.IsLineage(stored.Name) && slices.ContainsFunc(kinds, func(kind string) bool { return a.makes(stored.Name, kind) }) {
			follow = append(follow, stored.Name)
		}
	}
	return follow
}

// Several reports whether a stored record may show any number of records of a kind, whose names
// Affected knows only the beginning of.
func (a *Adapter) Several(kind string) bool {
	if !transform.Several(a.show, kind) {
		return false
	}
	for _, probe := range probes {
		id, ok, err := a.show.GroupOfTarget(kind, record.StringKey(probe))
		if ok && err == nil && a.show.LineageKind(id.Spec) == "" {
			return slices.ContainsFunc(a.show.TargetSelect(id), func(s record.Selector) bool { return s.Kind == kind && s.Prefix })
		}
	}
	return true // nothing is known of its names
}

// Affected returns what a change of a stored record may change in the version shown: what
// a follower of the stored changes has to read again.
func (a *Adapter) Affected(kind, name string) ([]record.Selector, error) {
	id, ok, err := a.show.GroupOf(kind, record.StringKey(name))
	if !ok || err != nil {
		return nil, nil //nolint:nilerr // what is in no group is not shown
	}
	if a.show.LineageKind(id.Spec) != "" {
		return nil, a.byContent(kind)
	}
	return a.show.TargetSelect(id), nil
}
