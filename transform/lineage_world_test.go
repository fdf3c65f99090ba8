package transform_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// In the old version people and desks name their team in a field, and a team may have a
// record of its own, under its name. In the new one a team is one record of everybody in
// it, and each seat that its members have is a record under the seat's own name.

// loose is a team that has seats alone, so that its members have no record in common.
const loose = "blue"

var errNegative = errors.New("n is negative")

// fatal is what tests and rapid's share.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// teams is a source and a target, and what appliers of any number need to know.
type teams struct {
	t            fatal
	src, dst     *memstore.Store
	srcToks      record.Tokens
	dstToks      record.Tokens
	dir          transform.Direction
	parked       map[transform.GroupID]error
	applied      int
	epoch        uint64
	changed      int // answers that something was not as it was read
	linkedWrites int // components of several groups
	// between, if not nil, is run before each reading of a resolution. The source is read
	// no older than what it returns.
	between func() record.Version
}

// interrupted is a database whose readers are not alone.
type interrupted struct {
	record.Reader
	w      *teams
	source bool
}

func (r interrupted) Read(ctx ctx, req record.ReadRequest) (record.Snapshot, error) {
	if between := r.w.between; between != nil {
		r.w.between = nil
		if at := between(); r.source && at.Compare(req.NotBefore) > 0 {
			req.NotBefore = at
		}
		r.w.between = between
	}
	return r.Reader.Read(ctx, req)
}

func newTeams(c ctx, t fatal) *teams {
	t.Helper()
	reg, err := teamsRegistry()
	if err != nil {
		t.Fatalf("registry: %v", err)
	}
	w := &teams{
		t: t, epoch: 1, parked: map[transform.GroupID]error{},
		src:     memstore.NewCluster(memstore.Options{Lag: 4}).Open("old"),
		dst:     memstore.NewCluster(memstore.Options{Start: 1 << 20}).Open("new"),
		srcToks: record.Tokens{}, dstToks: record.Tokens{},
	}
	if w.dir, err = reg.Direction("v1", "v2"); err != nil {
		t.Fatalf("direction: %v", err)
	}
	for _, side := range []struct {
		s     *memstore.Store
		toks  record.Tokens
		kinds []record.KindSpec
	}{{w.src, w.srcToks, w.dir.SourceKinds()}, {w.dst, w.dstToks, w.dir.TargetKinds()}} {
		for _, k := range side.kinds {
			if side.toks[k.Name], err = side.s.Provision(c, k, record.PhysicalName(k.Name, 1)); err != nil {
				t.Fatalf("provision %s: %v", k.Name, err)
			}
		}
	}
	return w
}

// all reads a database.
func all(c ctx, t fatal, s *memstore.Store, toks record.Tokens) map[string]record.Record {
	t.Helper()
	out := map[string]record.Record{}
	now, err := s.Position(c)
	if err != nil {
		t.Fatalf("position: %v", err)
	}
	for _, kind := range slices.Sorted(maps.Keys(toks)) {
		page, err := s.Scan(c, record.ScanRequest{Token: toks[kind], Limit: 1 << 20, NotBefore: now.At})
		if err != nil || !page.Done {
			t.Fatalf("scan %s: %v", kind, err)
		}
		for _, r := range page.Records {
			r.Kind = kind
			out[kind+"/"+r.Key.String()] = r
		}
	}
	return out
}

// want is what the target must hold: the transformation of the whole source, grouped as
// its content determines, and the lineage of that.
func (w *teams) want(c ctx) (map[string]string, lineage) {
	w.t.Helper()
	records := map[string]string{}
	lin := newLineage()
	groups := map[string][]record.Record{}
	for _, r := range all(c, w.t, w.src, w.srcToks) {
		g, err := w.dir.ContentOf(r)
		if err != nil {
			w.t.Fatalf("%s %s: %v", r.Kind, r.Key, err)
		}
		groups[g] = append(groups[g], r)
		name, _ := record.Key(g).Name()
		lin.groupOf[r.Kind+"/"+r.Key.String()] = name
		lin.members[name] = append(lin.members[name], r.Kind+"/"+r.Key.String())
	}
	for g, rs := range groups {
		transform.SortRecords(rs)
		out, err := teamUp(transform.Group{Name: g, Records: rs}, transform.Group{})
		if err != nil {
			w.t.Fatalf("group %s: %v", transform.ShowGroup(g), err)
		}
		name, _ := record.Key(g).Name()
		for _, r := range out {
			key := r.Kind + "/" + r.Key.String()
			if _, twice := records[key]; twice {
				w.t.Fatalf("the test's source makes %s twice", key)
			}
			records[key] = string(r.Doc)
			lin.madeOf[key] = name
			lin.targets[name] = append(lin.targets[name], key)
		}
	}
	lin.sort()
	return records, lin
}

// lineage is the hidden kind as a test reads it.
type lineage struct {
	groupOf, waits, madeOf    map[string]string
	members, waiting, targets map[string][]string
}

func newLineage() lineage {
	return lineage{
		groupOf: map[string]string{}, waits: map[string]string{}, madeOf: map[string]string{},
		members: map[string][]string{}, waiting: map[string][]string{}, targets: map[string][]string{},
	}
}

func (l lineage) sort() {
	for _, m := range []map[string][]string{l.members, l.waiting, l.targets} {
		for _, list := range m {
			slices.Sort(list)
		}
	}
}

type entryDoc struct {
	ID      string              `bson:"_id"`
	Group   string              `bson:"group"`
	Waits   string              `bson:"waits"`
	Members map[string][]string `bson:"members"`
	Waiting map[string][]string `bson:"waiting"`
	Targets map[string][]string `bson:"targets"`
}

// held is what the target holds: records, and lineage.
func (w *teams) held(c ctx) (map[string]string, lineage) {
	w.t.Helper()
	records, lin := map[string]string{}, newLineage()
	flat := func(m map[string][]string) (out []string) {
		for kind, keys := range m {
			for _, k := range keys {
				out = append(out, kind+"/"+k)
			}
		}
		return out
	}
	for key, r := range all(c, w.t, w.dst, w.dstToks) {
		if !transform.IsLineage(r.Kind) {
			records[key] = string(r.Doc)
			continue
		}
		e := decoded[entryDoc](r)
		what, rest, _ := strings.Cut(e.ID, "/")
		switch name := strings.Replace(rest, "/=", "/", 1); what {
		case "m":
			if e.Group != "" {
				lin.groupOf[name] = e.Group[1:]
			}
			if e.Waits != "" {
				lin.waits[name] = e.Waits[1:]
			}
		case "t":
			lin.madeOf[name] = e.Group[1:]
		case "g":
			for m, list := range map[*map[string][]string][]string{&lin.members: flat(e.Members), &lin.waiting: flat(e.Waiting), &lin.targets: flat(e.Targets)} {
				if len(list) > 0 {
					(*m)[name[1:]] = list
				}
			}
		default:
			w.t.Fatalf("lineage entry %s", e.ID)
		}
	}
	lin.sort()
	return records, lin
}

// consistent checks what holds at any time, whichever process was stopped where: each
// record of the target belongs to one group, which knows it, and each member likewise.
func (w *teams) consistent(c ctx) {
	w.t.Helper()
	records, lin := w.held(c)
	turned := func(of map[string]string) map[string][]string {
		out := map[string][]string{}
		for r, g := range of {
			out[g] = append(out[g], r)
		}
		for _, list := range out {
			slices.Sort(list)
		}
		return out
	}
	for what, pair := range map[string][2]map[string][]string{
		"members": {turned(lin.groupOf), lin.members}, "waiting": {turned(lin.waits), lin.waiting}, "targets": {turned(lin.madeOf), lin.targets},
	} {
		if fmt.Sprint(pair[0]) != fmt.Sprint(pair[1]) {
			w.t.Fatalf("%s by record: %v, by group: %v", what, pair[0], pair[1])
		}
	}
	for key := range records {
		if lin.madeOf[key] == "" {
			w.t.Fatalf("%s belongs to no group", key)
		}
	}
	for key := range lin.madeOf {
		if records[key] == "" {
			w.t.Fatalf("%s is gone, and belongs to group %s", key, lin.madeOf[key])
		}
	}
}

// exact checks the end: target and lineage are those of the whole source.
func (w *teams) exact(c ctx) {
	w.t.Helper()
	w.consistent(c)
	want, wantLineage := w.want(c)
	have, haveLineage := w.held(c)
	for key := range want {
		if have[key] != want[key] {
			w.t.Fatalf("%s is %s, want %s", key, bson.Raw(have[key]), bson.Raw(want[key]))
		}
	}
	for key := range have {
		if want[key] == "" {
			w.t.Fatalf("%s should not be there: %s", key, bson.Raw(have[key]))
		}
	}
	if a, b := fmt.Sprint(haveLineage), fmt.Sprint(wantLineage); a != b {
		w.t.Fatalf("lineage is\n%s, want\n%s", a, b)
	}
}

func (w *teams) unit(kind, key string) transform.GroupID {
	w.t.Helper()
	id, ok, err := w.dir.GroupOf(kind, record.StringKey(key))
	if err != nil || !ok {
		w.t.Fatalf("unit of %s %s: %t, %v", kind, key, ok, err)
	}
	return id
}

// write changes the source and returns the units of the changes and a version at which
// they are there.
func (w *teams) write(c ctx, ms ...record.Mutation) ([]transform.GroupID, record.Version) {
	w.t.Helper()
	if err := w.src.Write(c, w.srcToks, ms); err != nil {
		w.t.Fatalf("write: %v", err)
	}
	var ids []transform.GroupID
	for _, m := range ms {
		ids = append(ids, w.unit(m.Kind, m.Key.String()))
	}
	pos, err := w.src.Position(c)
	if err != nil {
		w.t.Fatalf("position: %v", err)
	}
	return ids, pos.At
}

// resolve is the reading half of an applier's work.
func (w *teams) resolve(c ctx, ids []transform.GroupID, notBefore record.Version, apart map[transform.GroupID]bool) ([]transform.Component, []transform.GroupID) {
	w.t.Helper()
	r := transform.Resolver{
		Direction: w.dir, Source: interrupted{w.src, w, true}, Target: interrupted{w.dst, w, false},
		From: transform.View{Tokens: w.srcToks, NotBefore: notBefore}, To: transform.View{Tokens: w.dstToks}, Epoch: w.epoch, Apart: apart,
	}
	cs, left, err := r.Resolve(c, ids)
	if err != nil {
		w.t.Fatalf("resolve: %v", err)
	}
	w.disjoint(cs)
	return cs, left
}

// disjoint checks that no two components write one record: a batch is one transaction, in
// which neither would meet the other.
func (w *teams) disjoint(cs []transform.Component) {
	w.t.Helper()
	by := map[string]string{}
	for _, c := range cs {
		for _, wr := range c.Write.Writes {
			name := wr.Kind + "/" + wr.Key.String()
			if other, twice := by[name]; twice {
				w.t.Fatalf("%s is written by %s and by %s", name, other, c.Write.Group)
			}
			by[name] = c.Write.Group
		}
	}
}

// apply is the writing half. It returns the units to be resolved again and those that
// failed.
func (w *teams) apply(c ctx, cs []transform.Component) (again []transform.GroupID, failed []transform.Failure) {
	w.t.Helper()
	for i := range cs {
		comp := &cs[i]
		for _, wr := range comp.Write.Writes {
			if wr.Expect == nil {
				w.t.Fatalf("a write of %s %s expects nothing", wr.Kind, wr.Key)
			}
		}
		if len(comp.Write.Writes) > 0 {
			res, err := w.dst.Apply(c, record.Batch{Tokens: w.dstToks, Epoch: w.epoch, Groups: []record.GroupWrite{comp.Write}})
			if err != nil {
				w.t.Fatalf("apply: %v", err)
			}
			switch res[0].Outcome {
			case record.Applied:
				w.applied++
			case record.Stale, record.Changed:
				w.changed++
				again = append(again, comp.Units...)
				continue
			default:
				w.t.Fatalf("apply: %v, %v", res[0].Outcome, res[0].Err)
			}
		}
		if strings.Contains(comp.Write.Group, ", ") {
			w.linkedWrites++
		}
		for _, f := range comp.Failed {
			w.parked[f.Unit] = f.Err
			failed = append(failed, f)
		}
		again = append(again, comp.Rest()...)
		if len(comp.Failed) == 0 {
			for _, id := range append(comp.Members(), comp.Units...) {
				delete(w.parked, id)
			}
			again = again[:len(again)-len(comp.Rest())]
		}
	}
	return again, failed
}

// bring resolves and applies until nothing is left but what fails.
func (w *teams) bring(c ctx, ids []transform.GroupID, notBefore record.Version) {
	w.t.Helper()
	apart := map[transform.GroupID]bool{}
	for range 100 {
		if len(ids) == 0 {
			return
		}
		cs, left := w.resolve(c, ids, notBefore, apart)
		again, failed := w.apply(c, cs)
		ids = append(left, again...)
		for _, f := range failed {
			apart[f.Unit] = true
		}
		ids = slices.DeleteFunc(ids, func(id transform.GroupID) bool { return apart[id] })
	}
	w.t.Fatalf("%d units do not come to rest", len(ids))
}
