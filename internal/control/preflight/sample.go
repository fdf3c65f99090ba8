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

// Sizes of a proof's sample.
const (
	tripGroups  = 20   // groups of each spec
	tripTotal   = 2000 // groups of all specs; many kinds get fewer each
	tripLeast   = 2    // minimum of each spec
	tripRanges  = 4    // places in a kind to take groups from
	tripMembers = 400  // maximum number of records in groups by content
	// tripBytes bounds the records of a sample. A proof holds them in memory, more than once.
	// Groups beyond it are left out.
	tripBytes = 16 << 20
)

// frozen is a fixed set of records that acts as a source without changes.
type frozen struct {
	records []record.Record
	version record.Version
}

var _ record.Reader = (*frozen)(nil)

// Read returns the selected records.
func (f *frozen) Read(_ context.Context, req record.ReadRequest) (record.Snapshot, error) {
	out := record.Snapshot{Version: f.version}
	// Look selectors up by kind, because a sample may have thousands of both.
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

// Scan is not supported; a proof never scans a frozen source.
func (f *frozen) Scan(context.Context, record.ScanRequest) (record.Page, error) {
	return record.Page{}, errors.ErrUnsupported
}

// selects reports whether a selector matches a record.
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
	target     record.Reader // holds the lineage of the copy; nil: nothing was copied
	dir        transform.Direction
	src, dst   record.Tokens
	epoch      uint64
	perSpec    int
	shortRange bool // take the first records, without splitting kinds into ranges
}

// groupsEach returns the number of groups of each spec for a proof of so many kinds.
func groupsEach(kinds int) int {
	return max(tripLeast, min(tripGroups, tripTotal/max(kinds, 1)))
}

// sample reads some complete groups of each spec.
func (s sampler) sample(ctx context.Context) (*frozen, error) {
	// Skip kinds without a collection and kinds that are not migrated.
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
	// In the order of kinds, so that the same source gives the same sample.
	for _, rec := range slices.Concat(found...) {
		id, ok, err := s.dir.GroupOf(rec.Kind, rec.Key)
		if !ok || err != nil || seen[id] || taken[id.Spec] >= s.perSpec {
			continue // the copy parks a key without a group
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

// keys returns the keys of some records of a kind, from several places.
func (s sampler) keys(ctx context.Context, tok record.Token) (out []record.Record, err error) {
	ranges := []record.Range{{}}
	// From several places, because old and new records of a kind often differ in form.
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

// read reads groups by name, and all members of the groups that units belong to, within tripBytes.
// Groups of one spec do not displace those of another.
func (s sampler) read(ctx context.Context, groups, units []transform.GroupID) (*frozen, error) {
	room := tripBytes
	if len(groups) > 0 {
		// Leave half of the room to groups by name.
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
		// A group that is too large for one read is left out of the sample.
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
		// All reads together are as old as the newest of them.
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

// inTurns orders groups so that the first group of each spec precedes every second one. A full
// budget then cuts all specs equally.
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

// members returns the units of the groups that contain units, found through the lineage of the
// copy, up to room bytes.
func (s sampler) members(ctx context.Context, units []transform.GroupID, room int) ([]transform.GroupID, error) {
	// Without lineage the members are unknown, so each unit stands alone.
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
		// Take a group completely or not at all: a part of it would not transform.
		if of, size := cs[i].Members(), cs[i].Bytes(); len(out)+len(of) <= tripMembers && size <= room {
			out = append(out, of...)
			room -= size
		}
	}
	return out, nil
}

// groupsOf returns the groups of records, each once. groupOf belongs to the side of the records.
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
