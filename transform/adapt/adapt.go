// Package adapt serves one API version from the stored data of another, for reads and writes.
// Handlers of either version can run over the data of the other without changes. The version shown
// is the version that callers see. The stored version is the version in the database.
//
// Package dbcontroller makes an Adapter from the transformers of a service by itself, and passes it
// dbcontroller.Version.Adapt as the Config. Call New in a service that composes its handlers itself.
//
// A transformer computes the records shown from the stored records of a group. A group is a set of
// records that transform together. A write has five steps. It reads the stored groups that it
// touches. It checks the caller's conditions against the records shown. It changes the records
// shown. It transforms them back over the stored ones, so that fields without a counterpart
// survive. Last, it writes the difference with one Store.Write, on the condition that everything it
// read is unchanged. If that condition fails, the adapter starts the write again.
//
// # Guarantees
//
//   - A write takes effect at one moment or not at all, for any number of groups. It changes or
//     checks every record that it read, so no concurrent change is lost. It notices a new record of
//     a group only if the record's writer also changes a record that the group had before. So a
//     handler of the stored version that adds a record to a group of several must also change an
//     existing record of the group. The bbs sample does this with its modification tag.
//   - Errors are the errors of package record, with the caller's record names. ErrNotFound,
//     ErrExists and ErrMismatch refer to the record shown and the caller's own conditions.
//     ErrMismatch also means that a group changed too often to be read or written. A *LossError
//     means that the stored version has no place for some written data.
//   - Get shows one state of the group. List is not a snapshot: it shows each group as it was at
//     some moment of the call.
//
// # Lists
//
// List returns the names of the version shown in their order. This is also the order of that
// version's own store. So a client that pages through a list sees each record once, even if the
// active version changes in between. The method depends on the kind:
//
//   - If the prefix is within one group ("<guid>/" for the parts of a guid), List reads that group.
//   - If the stored names sort in the same order, List follows the leading stored kind page by
//     page. The leading kind has one record for each record shown. It leads in three cases: one
//     stored kind alone makes up the group under the same names; Config.Leads declares it, under
//     the same names; or a lens or Config.Names maps the names, and they certainly keep their
//     order. A lens derives that from its patterns (transform.KeepsOrder), and Config.Ordered
//     declares it.
//   - In all other cases List uses an index of the names shown, in memory. The index reads changes
//     when a page needs them, and serves a page only once it contains all names from before the
//     request. Without an index, each page scans the stored names within the prefix, as far as the
//     prefix can be mapped, from the database's own index. That happens if the Store is not a
//     PagingStore, or if there are too many names. A scan remembers some thousand names at most,
//     and takes one or two seconds for a million names.
//
// ListIndexed reads by a field that the stored version declares, if a lens carries it unchanged and
// names sort the same.
//
// If the Store is a BatchStore, a page reads its groups with one command for each kind.
//
// The package refuses groups by content, because their records depend on lineage, which no Store
// provides. It does not know tokens, switches or the active version.
//
// Begin with Store, Config and New here. group.go reads groups, write.go writes them, and list.go
// chooses how to list.
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

// Store is the namespace of one version, as handlers use it and as an Adapter serves it. Its
// methods return errors of package record, such as record.ErrNotFound.
type Store interface {
	// Get returns the record of a kind with the name key, or record.ErrNotFound.
	Get(ctx context.Context, kind, key string) (record.Record, error)
	// List returns the records whose names begin with prefix and come after the name after, in name
	// order. A limit of 0 means 1000.
	List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error)
	// Write applies all mutations or none.
	Write(ctx context.Context, ms []record.Mutation) error
}

// BatchStore is a Store that reads many records with one command. An Adapter uses it if it is
// available.
type BatchStore interface {
	Store
	// Select returns the selected live records, in no particular order, all from one moment. They
	// are as recent as the results of Get, or with asList as recent as the results of List.
	Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error)
	// ListNames returns the names of the records that List would return, without reading the
	// records. Some may belong to deleted records. Fewer names than limit mean that there are no
	// more.
	ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error)
}

// PagingStore is a BatchStore that can also report the moment of a read and the changes since then.
// An Adapter uses it for long lists. A method returns a *record.UnsupportedError if the database
// cannot serve it; the Adapter then lists without it.
type PagingStore interface {
	BatchStore
	// ListWith lists like List. With the records it returns the records that also selects for them,
	// of the given kinds, all from one moment.
	ListWith(ctx context.Context, kind, prefix, after string, limit int, kinds []string, also func(listed []record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error)
	// SelectAt is Select with asList, and returns the moment of the read.
	SelectAt(ctx context.Context, sels []record.Selector) (record.Snapshot, error)
	// Since returns the changes of kinds after a position, and the position that it reached. It
	// does not wait for changes. For a zero position it returns only the present position.
	Since(ctx context.Context, after record.Position, kinds ...string) ([]record.Change, record.Position, error)
}

// Config configures an Adapter. The zero value suffices for most kinds. It also suffices for kinds
// of a lens, which declares the leading kind and the mapping of names itself (transform.Spec).
type Config struct {
	// Leads maps a kind shown to the stored kind that leads its lists. The leading kind must have
	// one record for each record shown, under the same name or the name that Names maps it to. List
	// omits records shown without a leading record.
	Leads map[string]string
	// Names maps the names of a kind shown to names of its leading stored kind.
	Names map[string]transform.Mapping
	// Ordered declares that the names of a kind in Names sort the same in both versions, if the
	// mapping does not know it. The mapping of a lens does. A list that finds names out of order
	// fails.
	Ordered map[string]bool
}

// Adapter is a Store that shows another Store's records in another version. Its methods are safe
// for concurrent use.
type Adapter struct {
	stored     Store
	batch      BatchStore // stored, if it is one
	show, keep transform.Direction
	cfg        Config
	paging     PagingStore         // stored, if it is one
	indexed    IndexStore          // stored, if it is one
	alone      atomic.Bool         // stored cannot serve as a PagingStore
	leads      map[string]string   // by kind shown: the leading stored kind, if any
	makers     map[string][]string // by kind shown: the stored kinds whose records may show in it
	indexes    map[string]*index   // by kind shown: for lists in another order
	remembered atomic.Int64        // total bytes of all indexes beyond their own
	most       bounds
	sizes      map[string]*atomic.Int64 // by kind shown: bytes of a record, the average of the last list
}

// bounds limit the memory of lists in another order. Tests use smaller ones.
type bounds struct {
	window int // in names
	index  int // in bytes
}

var _ Store = (*Adapter)(nil)

// New returns an Adapter that shows stored as version show.To(). stored must have version
// show.From(). keep is the direction back. New copies cfg.
func New(stored Store, show, keep transform.Direction, cfg Config) (*Adapter, error) {
	if show.From() != keep.To() || show.To() != keep.From() {
		return nil, fmt.Errorf("adapt: %s to %s and %s to %s are no way there and back", show.From(), show.To(), keep.From(), keep.To())
	}
	// New adds entries below, so it must not write to the caller's maps.
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
	// Skip the reversal check: loss checks writes, and the adapter never stores the records shown.
	a := &Adapter{stored: stored, show: transform.Unchecked(show), keep: transform.Unchecked(keep), cfg: cfg, leads: map[string]string{}, makers: map[string][]string{}, indexes: map[string]*index{}, most: bounds{windowNames, indexBytes}}
	// Optional abilities of the store. Without one, the adapter takes more commands.
	a.batch, _ = stored.(BatchStore)
	a.paging, _ = stored.(PagingStore)
	a.indexed, _ = stored.(IndexStore)
	a.sizes = map[string]*atomic.Int64{}
	for _, k := range show.TargetKinds() {
		a.sizes[k.Name] = &atomic.Int64{}
		// The configuration wins over the declarations of the transformer.
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
	a.share()
	return a, nil
}

// cloned returns a copy that the caller may modify.
func cloned[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

// unsupported returns an error that refuses a kind.
func (a *Adapter) unsupported(kind, reason string) error {
	return &record.UnsupportedError{What: fmt.Sprintf("kind %s of %s over %s", kind, a.show.To(), a.show.From()), Reason: reason}
}

// groupOf returns the stored group that shows a record.
func (a *Adapter) groupOf(kind string, key record.Key) (transform.GroupID, error) {
	id, ok, err := a.show.GroupOfTarget(kind, key)
	switch {
	// The kind exists only in the version shown.
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
		// Lineage has no records of the service.
		if !transform.IsLineage(stored.Name) && slices.ContainsFunc(kinds, func(kind string) bool { return a.makes(stored.Name, kind) }) {
			follow = append(follow, stored.Name)
		}
	}
	return follow
}

// Several reports whether a stored record may show any number of records of a kind. Affected then
// knows only a prefix of their names.
func (a *Adapter) Several(kind string) bool {
	if !transform.Several(a.show, kind) {
		return false
	}
	// A sample name suffices: the form of a selector does not depend on the name.
	for _, probe := range probes {
		id, ok, err := a.show.GroupOfTarget(kind, record.StringKey(probe))
		if ok && err == nil && a.show.LineageKind(id.Spec) == "" {
			return slices.ContainsFunc(a.show.TargetSelect(id), func(s record.Selector) bool { return s.Kind == kind && s.Prefix })
		}
	}
	return true // nothing is known about its names
}

// Affected returns selectors of the records shown that a change of a stored record may affect. A
// process that follows the stored changes must read them again.
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
