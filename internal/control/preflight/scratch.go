package preflight

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Name prefixes of scratch collections. A user of a prefix removes all collections with it, before
// and after its work.
const (
	proofPrefix = record.ProofKinds
	planPrefix  = record.PlanKinds
)

// Sweep removes the scratch collections of all plans and proofs from a database, including those of
// dead processes. No plan or proof may run there.
func Sweep(ctx context.Context, s Space) error {
	for _, prefix := range []string{proofPrefix, planPrefix} {
		if err := s.Sweep(ctx, prefix); err != nil {
			return err
		}
	}
	return nil
}

// scratchWorkers is the number of collections that are created, read or cleaned in parallel. They
// mostly wait for a majority of the servers.
const scratchWorkers = 32

// scratch is a set of own collections that stand for kinds and have their shape. Callers read and
// write them under the names of the kinds.
type scratch struct {
	ns     Space
	prefix string
	kinds  []scratchKind
	toks   record.Tokens // by kind, as callers name it
	inner  record.Tokens // by the scratch kind's own name

	mu      sync.Mutex
	written bool           // a write happened since the version was read
	least   record.Version // minimum version of reads, so that they show all writes here
}

// scratchKind is a kind and its scratch collection.
type scratchKind struct {
	kind   string
	spec   record.KindSpec // as the namespace knows it, with a scratch name
	class  record.FenceClass
	hidden bool // a fixed-name kind under a hidden name
	tok    record.Token
	fenced *record.Fence // present fence that left the name unchanged
}

// newPrefix returns an unused prefix.
func newPrefix(begins string) string { return begins + strings.ToLower(rand.Text()[:10]) + "." }

// describeKinds returns the shapes for the scratch collections of a version's kinds. An existing
// collection gives its present shape, because it may have changed since its declaration. Otherwise
// the declared shape counts.
func describeKinds(ctx context.Context, ns record.Namespace, d upgradestate.Deployment, version string, kinds []record.KindSpec) ([]scratchKind, error) {
	known, _ := d.Namespace(version)
	places := upgradestate.EnginePlaces(d, version)
	out := make([]scratchKind, len(kinds))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(scratchWorkers)
	for i, k := range kinds {
		// A fixed-name kind of a version that is not current has a hidden name until the flip.
		out[i] = scratchKind{kind: k.Name, spec: k, hidden: k.Fixed && version != d.CurrentVersion}
		at := places[k.Name]
		if len(at) == 0 {
			continue
		}
		is, _ := known.Kind(k.Name)
		out[i].class, out[i].hidden = record.FenceClass(is.Fence), is.Hidden || is.Physical != k.Name
		g.Go(func() error {
			info, err := ns.Describe(ctx, k, at[0].Name)
			if err != nil {
				return err
			}
			// A missing collection keeps the declared shape.
			if info.Exists {
				out[i].spec.Shape = info.Shape
			}
			return nil
		})
	}
	return out, g.Wait()
}

// makeScratch creates the collections. After an error some of them may exist, for a sweep to
// remove.
func makeScratch(ctx context.Context, ns Space, prefix string, kinds []scratchKind) (*scratch, error) {
	s := &scratch{ns: settled{ns}, prefix: prefix, kinds: slices.Clone(kinds), toks: record.Tokens{}, inner: record.Tokens{}}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(scratchWorkers)
	for i := range s.kinds {
		k := &s.kinds[i]
		k.spec.Name = prefix + k.kind
		k.spec.Shape, _ = record.Unexpiring(k.spec.Shape) // no record may expire during a check
		g.Go(func() error {
			// Only an open fixed-name kind has its plain name. All others have numbered ones.
			name := record.PhysicalName(k.spec.Name, 1)
			if k.spec.Fixed && !k.hidden {
				name = k.spec.Name
			}
			tok, err := s.ns.Provision(ctx, k.spec, name)
			if err != nil {
				return fmt.Errorf("make a scratch collection like %s: %w", k.kind, err)
			}
			mu.Lock()
			defer mu.Unlock()
			k.tok = tok
			s.inner[k.spec.Name] = tok
			// Callers use the real kind's name, the namespace the scratch kind's.
			tok.Kind = k.kind
			s.toks[k.kind] = tok
			return nil
		})
	}
	return s, g.Wait()
}

var _ record.Reader = (*scratch)(nil)

// Read reads the scratch collections of the selected kinds.
func (s *scratch) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	least, err := s.fresh(ctx, req.NotBefore)
	if err != nil {
		return record.Snapshot{}, err
	}
	req.NotBefore = least
	req.Tokens, req.Select = s.inner, slices.Clone(req.Select)
	for i := range req.Select {
		req.Select[i].Kind = s.prefix + req.Select[i].Kind
	}
	snap, err := s.ns.Read(ctx, req)
	s.rename(snap.Records)
	return snap, err
}

// Scan scans the scratch collection of the token's kind.
func (s *scratch) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	least, err := s.fresh(ctx, req.NotBefore)
	if err != nil {
		return record.Page{}, err
	}
	req.NotBefore, req.Token = least, s.inner[s.prefix+req.Token.Kind]
	page, err := s.ns.Scan(ctx, req)
	s.rename(page.Records)
	return page, err
}

// rename gives records the names of their kinds.
func (s *scratch) rename(rs []record.Record) {
	for i := range rs {
		rs[i].Kind = strings.TrimPrefix(rs[i].Kind, s.prefix)
	}
}

// fresh returns the minimum version of a read. Without it a database may answer from before the
// latest write, and a new record would seem missing or wrong.
func (s *scratch) fresh(ctx context.Context, least record.Version) (record.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock() // parallel readers wait for the version, too
	// One position after the last write serves all reads until the next write.
	if s.written {
		now, err := s.ns.Position(ctx)
		if err != nil {
			return least, err
		}
		s.written = false
		if now.At.Compare(s.least) > 0 {
			s.least = now.At
		}
	}
	if s.least.Compare(least) > 0 {
		least = s.least
	}
	return least, nil
}

// apply and load write groups.
func (s *scratch) apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return s.write(ctx, b, s.ns.Apply)
}

func (s *scratch) load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return s.write(ctx, b, s.ns.Load)
}

func (s *scratch) write(ctx context.Context, b record.Batch, do func(context.Context, record.Batch) ([]record.Result, error)) ([]record.Result, error) {
	results, err := do(ctx, s.within(b))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = true // also after an error: the outcome may be unknown
	return results, err
}

// within returns a copy of a batch for the scratch collections.
func (s *scratch) within(b record.Batch) record.Batch {
	// Copy what is changed: the caller may send the batch again.
	b.Tokens, b.Groups = s.inner, slices.Clone(b.Groups)
	for i := range b.Groups {
		b.Groups[i].Writes = slices.Clone(b.Groups[i].Writes)
		for j := range b.Groups[i].Writes {
			b.Groups[i].Writes[j].Kind = s.prefix + b.Groups[i].Writes[j].Kind
		}
	}
	return b
}

// all returns the live records of some kinds, kind by kind. A sample is small enough for memory.
func (s *scratch) all(ctx context.Context, kinds []record.KindSpec) ([]record.Record, error) {
	found := make([][]record.Record, len(kinds))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(scratchWorkers)
	for i, k := range kinds {
		g.Go(func() error {
			return s.each(ctx, []record.KindSpec{k}, func(r record.Record) { found[i] = append(found[i], r) })
		})
	}
	err := g.Wait()
	return slices.Concat(found...), err
}

// specs returns the kinds as the namespace knows them. No fence or rename changes that.
func (s *scratch) specs() []record.KindSpec {
	specs := make([]record.KindSpec, 0, len(s.kinds))
	for i := range s.kinds {
		specs = append(specs, s.kinds[i].spec)
	}
	return specs
}

// each calls do for each live record of some kinds, page by page.
func (s *scratch) each(ctx context.Context, kinds []record.KindSpec, do func(record.Record)) error {
	for _, k := range kinds {
		tok, ok := s.toks[k.Name]
		if !ok {
			continue
		}
		// Page by page, so that do decides how much to keep.
		err := record.ScanPages(ctx, s, tok, 0, func(page record.Page) error {
			for _, r := range page.Records {
				do(r)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// move fences a kind's collection under its seq-th name; 0 means its own name. A collection under
// an unexpected name stays where it is.
func (s *scratch) move(ctx context.Context, k *scratchKind, class record.FenceClass, seq uint64, restore string) error {
	to := k.spec.Name
	if seq > 0 {
		to = record.PhysicalName(k.spec.Name, seq)
	}
	f := record.Fence{Class: class, Token: k.tok, To: to, Restore: restore}
	if err := s.ns.Fence(ctx, f); err != nil {
		return fmt.Errorf("%s of a scratch collection like %s: %w", className(class), k.kind, err)
	}
	// Remember what a later unfence or rename needs.
	if f.Renames() {
		k.tok.Name = to
	} else {
		k.fenced = &f
	}
	return nil
}

// unfence removes the fence of a kind's collection, unless the fence was a rename.
func (s *scratch) unfence(ctx context.Context, k *scratchKind) error {
	if k.fenced == nil {
		return nil
	}
	if err := s.ns.Unfence(ctx, *k.fenced); err != nil {
		return fmt.Errorf("remove the %s of a scratch collection like %s: %w", className(k.fenced.Class), k.kind, err)
	}
	k.fenced = nil
	return nil
}

// className describes a fence class for messages.
func className(class record.FenceClass) string {
	if class == "" || class == record.FenceUUID {
		return "rename"
	}
	return "fence of class " + string(class)
}

// together calls do for all kinds in parallel, as the driver does, and returns the duration.
func (s *scratch) together(ctx context.Context, do func(ctx context.Context, k *scratchKind) error) (time.Duration, error) {
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i := range s.kinds {
		g.Go(func() error { return do(ctx, &s.kinds[i]) })
	}
	err := g.Wait()
	return time.Since(start), err
}

// told returns the text of an error without scratch names and without a stack.
func (s *scratch) told(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return strings.ReplaceAll(text, s.prefix, "")
}

// classes returns the fence classes of the kinds, each with one kind that has it.
func (s *scratch) classes() map[record.FenceClass]*scratchKind {
	out := map[record.FenceClass]*scratchKind{}
	for i := range s.kinds {
		// One kind of each class is enough: privileges do not depend on the kind.
		out[s.kinds[i].class] = &s.kinds[i]
	}
	return out
}

// sortedClasses returns the classes in the order of their names.
func sortedClasses(by map[record.FenceClass]*scratchKind) []record.FenceClass {
	return slices.Sorted(maps.Keys(by))
}

func kindNames(kinds []record.KindSpec) []string {
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names
}
