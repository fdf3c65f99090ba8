package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// How much of the source a proof tries.
const (
	tripGroups  = 20   // of each spec
	tripTotal   = 2000 // of all, where kinds are so many that they get fewer each
	tripLeast   = 2    // of each spec, however many there are
	tripRanges  = 4    // places of a kind that they are taken from
	tripMembers = 400  // records at most that groups by content consist of
	// tripBytes bounds the records of a sample, which are held in memory, more than once, until
	// it was tried. Groups of which it is not enough for are left out.
	tripBytes = 16 << 20
)

// frozen is records that were read once, as a source that no longer changes.
type frozen struct {
	records []record.Record
	version record.Version
}

var _ record.Reader = (*frozen)(nil)

// Read returns those of the records that are selected.
func (f *frozen) Read(_ context.Context, req record.ReadRequest) (record.Snapshot, error) {
	out := record.Snapshot{Version: f.version}
	of := map[string][]record.Selector{} // by kind
	for _, s := range req.Select {
		of[s.Kind] = append(of[s.Kind], s)
	}
	for _, r := range f.records {
		if slices.ContainsFunc(of[r.Kind], func(s record.Selector) bool { return selects(s, r) }) {
			out.Records = append(out.Records, r)
		}
	}
	return out, nil
}

// Scan is what nobody needs of records that are at hand.
func (f *frozen) Scan(context.Context, record.ScanRequest) (record.Page, error) {
	return record.Page{}, errors.ErrUnsupported
}

func selects(s record.Selector, r record.Record) bool {
	if s.Kind != r.Kind || !s.Prefix {
		return s.Kind == r.Kind && s.Key == r.Key
	}
	prefix, ok := s.Key.Name()
	name, named := r.Key.Name()
	return ok && named && strings.HasPrefix(name, prefix)
}

// sampler picks groups of a direction's source.
type sampler struct {
	source     record.Namespace
	target     record.Reader // holds the lineage of what was copied; nil: nothing was
	dir        transform.Direction
	src, dst   record.Tokens
	epoch      uint64
	perSpec    int
	shortRange bool // take what comes first, without cutting kinds into ranges
}

// groupsEach is how many groups of each spec a proof of so many kinds tries.
func groupsEach(kinds int) int {
	return max(tripLeast, min(tripGroups, tripTotal/max(kinds, 1)))
}

// sample reads whole groups, some of each spec.
func (s sampler) sample(ctx context.Context) (*frozen, error) {
	kinds := slices.DeleteFunc(s.dir.SourceKinds(), func(k record.KindSpec) bool {
		_, ok := s.src[k.Name]
		return !ok || !transform.SyncsFrom(s.dir, k.Name)
	})
	found := make([][]record.Record, len(kinds))
	g, asking := errgroup.WithContext(ctx)
	g.SetLimit(scratchWorkers)
	for i, k := range kinds {
		g.Go(func() (err error) {
			found[i], err = s.keys(asking, s.src[k.Name])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	taken := map[int]int{}
	seen := map[transform.GroupID]bool{}
	var groups, units []transform.GroupID
	for _, rec := range slices.Concat(found...) {
		id, ok, err := s.dir.GroupOf(rec.Kind, rec.Key)
		if !ok || err != nil || seen[id] || taken[id.Spec] >= s.perSpec {
			continue // a key without a group is parked where it is copied
		}
		seen[id] = true
		taken[id.Spec]++
		if s.dir.LineageKind(id.Spec) != "" {
			units = append(units, id)
		} else {
			groups = append(groups, id)
		}
	}
	return s.read(ctx, groups, units)
}

// keys are those of some records of a kind, from several places of it.
func (s sampler) keys(ctx context.Context, tok record.Token) (out []record.Record, err error) {
	ranges := []record.Range{{}}
	if !s.shortRange {
		if ranges, err = s.source.Split(ctx, tok, min(tripRanges, s.perSpec)); err != nil {
			return nil, err
		}
	}
	for _, r := range ranges {
		page, err := s.source.Scan(ctx, record.ScanRequest{Token: tok, Range: r, Limit: max(1, s.perSpec/len(ranges)), KeysOnly: true})
		if err != nil {
			return nil, fmt.Errorf("read a sample of %s: %w", tok.Kind, err)
		}
		out = append(out, page.Records...)
	}
	return out, nil
}

// read reads groups by name, and all members of the groups that units belong to, as far as
// tripBytes goes. Groups of one spec do not push out those of the others.
func (s sampler) read(ctx context.Context, groups, units []transform.GroupID) (*frozen, error) {
	room := tripBytes
	if len(groups) > 0 {
		room /= 2
	}
	members, err := s.members(ctx, units, room)
	if err != nil {
		return nil, err
	}
	f := &frozen{}
	left := tripBytes
	err = transform.Each(&transform.Sizer{}, append(members, inTurns(groups)...), func(run []transform.GroupID, bytes int) error {
		if left <= 0 {
			return nil
		}
		req := record.ReadRequest{Tokens: s.src, Bytes: min(bytes, left)}
		for _, id := range run {
			req.Select = append(req.Select, s.dir.SourceSelect(id)...)
		}
		snap, err := s.source.Read(ctx, req)
		if errors.Is(err, record.ErrTooLarge) && bytes == transform.GroupBytes {
			return nil
		}
		if err != nil {
			return err
		}
		for _, r := range snap.Records {
			left -= len(r.Doc)
		}
		f.records = append(f.records, snap.Records...)
		if snap.Version.Compare(f.version) > 0 {
			f.version = snap.Version
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read a sample: %w", err)
	}
	return f, nil
}

// inTurns orders groups so that each spec's first comes before any spec's second.
func inTurns(groups []transform.GroupID) []transform.GroupID {
	turn := map[transform.GroupID]int{}
	next := map[int]int{}
	for _, id := range groups {
		turn[id] = next[id.Spec]
		next[id.Spec]++
	}
	groups = slices.Clone(groups)
	slices.SortStableFunc(groups, func(a, b transform.GroupID) int { return turn[a] - turn[b] })
	return groups
}

// members are the units that the groups of units consist of, by the lineage of the copy, up to
// so many bytes.
func (s sampler) members(ctx context.Context, units []transform.GroupID, room int) ([]transform.GroupID, error) {
	if len(units) == 0 || s.target == nil {
		return units, nil
	}
	bounded := func(toks record.Tokens) transform.View {
		return transform.View{Tokens: toks}.Within(transform.ReadBytes)
	}
	r := transform.Resolver{
		Direction: s.dir, Source: s.source, Target: s.target, From: bounded(s.src), To: bounded(s.dst),
		Epoch: s.epoch, Apart: map[transform.GroupID]bool{},
	}
	cs, _, err := r.Resolve(ctx, units)
	if err != nil {
		return nil, err
	}
	var out []transform.GroupID
	for i := range cs {
		if of, size := cs[i].Members(), cs[i].Bytes(); len(out)+len(of) <= tripMembers && size <= room {
			out = append(out, of...)
			room -= size
		}
	}
	return out, nil
}

// groupsOf names the groups of records, each once; groupOf is that of the side they are on.
func groupsOf(records []record.Record, groupOf func(string, record.Key) (transform.GroupID, bool, error)) []transform.GroupID {
	seen := map[transform.GroupID]bool{}
	var ids []transform.GroupID
	for _, r := range records {
		if id, ok, err := groupOf(r.Kind, r.Key); ok && err == nil && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}
