package simulation_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// crowd is writers of things. Records, and the names that may be taken once, belong to
// one writer each; groups are everybody's.
type crowd struct {
	t       *testing.T
	servers []*vrunner.Runner

	mu     sync.Mutex
	things map[string]oldThing // by "<kind>/<id>", as last acknowledged
	acked  int
	over   bool // v2 is active
	drives int
	// poison makes every so many records ones that cannot be transformed; 0: none.
	poison int
	// collide has records take names that other records of their writer may still have.
	collide bool
	// teams is how many groups a kind has; 0: 6.
	teams int
	// lenient: a write that was refused was not done, and is no failure.
	lenient bool
}

func newCrowd(t *testing.T, servers ...*vrunner.Runner) *crowd {
	return &crowd{t: t, servers: servers, things: map[string]oldThing{}}
}

var contentKinds = []string{"notes1", "docs1", "users1", "people1", "desks1"}

// mine are the things of a kind that belong to a writer.
func (c *crowd) mine(w int, kind string) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	prefix := fmt.Sprintf("%s/w%d-", kind, w)
	for key := range c.things {
		if len(key) > len(prefix) && key[:len(prefix)] == prefix {
			ids = append(ids, key[len(kind)+1:])
		}
	}
	slices.Sort(ids)
	return ids
}

func (c *crowd) get(kind, id string) oldThing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.things[kind+"/"+id]
}

// writersRest is how many times as long as a write took its writer then rests at least.
const writersRest = 3

// run makes changes, numbered from first on, as writer w until ctx ends or v2 is active.
func (c *crowd) run(ctx context.Context, w int, seed uint64, keys int, interval time.Duration, first int64) {
	rng := rand.New(rand.NewPCG(seed, uint64(w)))
	for n := first; ctx.Err() == nil; n++ {
		sent := time.Now()
		if cs := c.draw(rng, w, keys, n); len(cs) > 0 && !c.send(rng, cs) {
			return
		}
		rest := interval
		if interval > 0 {
			// On a machine that is slow with the writes, controllers are as slow, and never
			// in sync if writers took all there is.
			rest = max(interval, writersRest*time.Since(sent))
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

// draw thinks of changes: create or rewrite, move, swap, delete, delete a whole group.
func (c *crowd) draw(rng *rand.Rand, w, keys int, n int64) []change {
	kind := contentKinds[rng.IntN(len(contentKinds))]
	ids := c.mine(w, kind)
	pick := func() oldThing { return c.get(kind, ids[rng.IntN(len(ids))]) }
	group := func() string {
		if kind == "users1" { // a name that one user has at most: this writer's
			return fmt.Sprintf("w%d-mail%d", w, n)
		}
		return fmt.Sprintf("team%d", rng.IntN(cmp.Or(c.teams, 6)))
	}
	switch op := rng.IntN(10); {
	case len(ids) == 0 || op < 4:
		id := fmt.Sprintf("w%d-%03d", w, rng.IntN(keys))
		v := oldThing{ID: id, In: c.get(kind, id).In, N: n}
		if v.In == "" || rng.IntN(2) == 0 {
			v.In = group()
		}
		if c.poison > 0 && rng.IntN(c.poison) == 0 {
			v.N = -n
		}
		if kind != "docs1" && kind != "people1" && kind != "desks1" {
			return []change{{Kind: kind, Thing: v}}
		}
		for i := range rng.IntN(3) {
			out := n
			if c.collides() {
				out = rng.Int64N(8)
			}
			v.Out = append(v.Out, fmt.Sprintf("%s-w%d-out%d-%d", kind, w, out, i))
		}
		return []change{{Kind: kind, Thing: v}}
	case op < 6: // move, with everything it has
		v := pick()
		v.In, v.N = group(), n
		return []change{{Kind: kind, Thing: v}}
	case op < 8: // swap what one can have alone, or groups
		a, b := pick(), pick()
		if a.ID == b.ID {
			return nil
		}
		if a.Out, b.Out = b.Out, a.Out; rng.IntN(2) == 0 || kind == "users1" {
			a.In, b.In = b.In, a.In
		}
		return []change{{Kind: kind, Thing: a}, {Kind: kind, Thing: b}}
	case op < 9:
		return []change{{Kind: kind, Delete: true, Thing: oldThing{ID: pick().ID}}}
	default: // all of a group that is this writer's
		in := pick().In
		var cs []change
		for _, id := range ids {
			if c.get(kind, id).In == in {
				cs = append(cs, change{Kind: kind, Delete: true, Thing: oldThing{ID: id}})
			}
		}
		return cs
	}
}

func (c *crowd) collides() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.collide
}

// tidy ends collisions: a name that two records have stays with the first.
func (c *crowd) tidy(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	c.mu.Lock()
	c.collide = false
	taken := map[string]bool{}
	var double []change
	for _, key := range slices.Sorted(maps.Keys(c.things)) {
		v := c.things[key]
		kept := slices.DeleteFunc(slices.Clone(v.Out), func(out string) bool { return taken[out] })
		for _, out := range kept {
			taken[out] = true
		}
		if len(kept) < len(v.Out) {
			v.Out = kept
			double = append(double, change{Kind: key[:len(key)-len(v.ID)-1], Thing: v})
		}
	}
	c.mu.Unlock()
	rng.Shuffle(len(double), func(i, j int) { double[i], double[j] = double[j], double[i] })
	for _, ch := range double {
		c.send(rng, []change{ch})
	}
}

// hold keeps an upgrade from being switched, by a record that cannot be transformed, until
// it is let go.
func (c *crowd) hold(on bool) {
	v := oldThing{ID: "hold", In: "hold", N: 1}
	if on {
		v.N = -1
	}
	c.send(rand.New(rand.NewPCG(0, 0)), []change{{Kind: "notes1", Thing: v}})
}

// send writes changes at once. It returns false when v1 is over.
func (c *crowd) send(rng *rand.Rand, cs []change) bool {
	w := httptest.NewRecorder()
	body := bytes.NewReader(must(json.Marshal(cs)))
	c.servers[rng.IntN(len(c.servers))].ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", body))
	c.mu.Lock()
	defer c.mu.Unlock()
	switch w.Code {
	case http.StatusOK:
		c.acked++
		for _, ch := range cs {
			if key := ch.Kind + "/" + ch.Thing.ID; ch.Delete {
				delete(c.things, key)
			} else {
				c.things[key] = ch.Thing
			}
		}
	case http.StatusGone:
		c.over = true
		return false
	default:
		if !c.lenient || w.Code != http.StatusServiceUnavailable {
			c.t.Errorf("write: %d %s", w.Code, w.Body)
		}
	}
	return true
}

func (c *crowd) drive(ctx context.Context, seed uint64, writers, keys int, interval time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	// Names are made of numbers. Those of one drive must not be another's: two records that
	// claim one name by accident would hold up a switch.
	first := int64(1 + c.drives*1_000_000)
	c.drives++
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() { c.run(ctx, w, seed, keys, interval, first) })
	}
	return func() { cancel(); wg.Wait() }
}

// settle compares the new namespace with the transformation of everything that was
// acknowledged, record by record and byte by byte, and its lineage with the content.
func (c *crowd) settle(ctx context.Context, s *system) {
	c.t.Helper()
	want := map[string]string{}
	groups := map[string]map[string][]record.Record{}
	specs := map[string]transform.Func{
		"notes1": gather("digests2", ""), "docs1": gather("docs2", "parts2"), "users1": gather("users2", ""), "teams": gather("teams2", "seats2"),
	}
	for key, v := range c.things {
		kind := key[:len(key)-len(v.ID)-1]
		spec, in := kind, v.In
		switch kind {
		case "docs1":
			in = v.ID
		case "people1", "desks1":
			spec = "teams"
		}
		if groups[spec] == nil {
			groups[spec] = map[string][]record.Record{}
		}
		r := newThingAt(kind, v.ID, "", nil)
		r.Doc = must(bsonOf(v))
		groups[spec][in] = append(groups[spec][in], r)
	}
	for spec, byName := range groups {
		for in, rs := range byName {
			transform.SortRecords(rs)
			for _, r := range must(specs[spec](transform.Group{Name: string(record.StringKey(in)), Records: rs}, transform.Group{})) {
				want[r.Kind+"/"+r.Key.String()] = string(r.Doc)
			}
		}
	}
	d, err := s.admin.Get(ctx)
	s.check(err)
	toks := map[string]record.Tokens{}
	missing := maps.Clone(want)
	found := 0
	for _, version := range []string{"v1", "v2"} {
		toks[version] = record.Tokens{}
		ns, _ := d.Namespace(version)
		for _, k := range ns.Kinds {
			tok := record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID}
			toks[version][k.Kind] = tok
			if version == "v1" {
				c.acknowledged(ctx, s, tok)
			}
			if version != "v2" || transform.IsLineage(k.Kind) {
				continue
			}
			page, err := s.db["v2"].Scan(ctx, record.ScanRequest{Token: tok, Limit: 1 << 20})
			s.check(err)
			for _, r := range page.Records {
				found++
				key := k.Kind + "/" + r.Key.String()
				if want[key] != string(r.Doc) {
					c.t.Errorf("%s is %s, want %q", key, r.Doc, want[key])
				}
				delete(missing, key)
			}
		}
	}
	for key, doc := range missing {
		c.t.Errorf("%s is missing, want %s", key, bson.Raw(doc))
	}
	if found != len(want) {
		c.t.Errorf("%d records in the new namespace, want %d", found, len(want))
	}
	rep, err := verify.New(s.db["v1"], s.db["v2"], s.direction()).Run(ctx, s.view(ctx, "v1", toks["v1"]), s.view(ctx, "v2", toks["v2"]), verify.Recheck{Tries: 1}, nil)
	if err != nil || rep.Mismatched != 0 || rep.Compared == 0 {
		c.t.Errorf("verify: %+v, %v", rep, err)
	}
}

// acknowledged compares a kind of the old namespace with what its writers were told.
func (c *crowd) acknowledged(ctx context.Context, s *system, tok record.Token) {
	c.t.Helper()
	page, err := s.db["v1"].Scan(ctx, record.ScanRequest{Token: tok, Limit: 1 << 20, NotBefore: s.now(ctx, "v1")})
	s.check(err)
	left := map[string]bool{}
	for key, v := range c.things {
		left[key] = key[:len(key)-len(v.ID)-1] == tok.Kind
	}
	for _, r := range page.Records {
		key := r.Kind + "/" + thingOf(r).ID
		if want := c.things[key]; !left[key] || !bytes.Equal(r.Doc, must(bsonOf(want))) {
			c.t.Errorf("%s is %s in v1, acknowledged was %+v", key, r.Doc, want)
		}
		left[key] = false
	}
	for key, missing := range left {
		if missing {
			c.t.Errorf("%s is not in v1, acknowledged was %+v", key, c.things[key])
		}
	}
}

func contentSystem(ctx context.Context, t *testing.T) *system {
	s := newSystemOf(ctx, t, memory(), contentRegistry(), contentStack)
	s.oneWay = true // its transformers have no rollback
	return s
}

// TestContentUnderTraffic: groups by content of every shape, whose writers move, swap and
// delete their members while they are copied, followed and switched.
func TestContentUnderTraffic(t *testing.T) {
	raced.Leave(t)
	eachSeed(t, 4, func(t *testing.T, seed uint64) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := contentSystem(ctx, t)
		a, pa := s.server(ctx, "server-a", nil)
		b, pb := s.server(ctx, "server-b", nil)
		c := newCrowd(t, a, b)
		stop := c.drive(ctx, seed, 4, 12, 10*time.Millisecond)
		pass(3 * time.Second)
		c1 := s.controller(ctx, "controller-1", nil)
		pass(100 * time.Millisecond)
		c2 := s.controller(ctx, "controller-2", nil)
		pass(time.Second)
		s.begin(ctx)
		s.await(ctx, "the flip", active("v2"))
		pass(time.Second)
		stop()
		if !c.over || c.acked < 200 {
			t.Errorf("%d changes were acknowledged, v2 was met: %t", c.acked, c.over)
		}
		c.settle(ctx, s)
		cancel()
		for _, p := range []*process{pa, pb, c1, c2} {
			p.kill()
		}
	})
}

// TestContentCollisions: records of a writer claim the same target record for a while,
// within a group and across groups, while they are copied and followed; its holder
// loses it, leaves, moves and is deleted meanwhile.
func TestContentCollisions(t *testing.T) {
	eachSeed(t, 2, func(t *testing.T, seed uint64) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := contentSystem(ctx, t)
		a, pa := s.server(ctx, "server-a", nil)
		c := newCrowd(t, a)
		c.collide = true
		stop := c.drive(ctx, seed, 4, 12, 10*time.Millisecond)
		pass(3 * time.Second)
		c.hold(true)
		c1 := s.controller(ctx, "controller-1", nil)
		c2 := s.controller(ctx, "controller-2", nil)
		s.begin(ctx)
		pass(5 * time.Second)
		stop()
		c.tidy(seed)
		stop = c.drive(ctx, seed+100, 4, 12, 10*time.Millisecond)
		c.hold(false)
		s.await(ctx, "the flip", active("v2"))
		pass(time.Second)
		stop()
		c.settle(ctx, s)
		cancel()
		for _, p := range []*process{pa, c1, c2} {
			p.kill()
		}
	})
}

// TestContentKillController is TestKillController for groups by content.
func TestContentKillController(t *testing.T) {
	raced.Leave(t)
	for i, m := range cases([]moment{
		{"apply", 0}, {"applied", 0}, {"apply", 7}, {"applied", 8}, {"applied", 30}, {"apply", 60}, {"applied", 90},
		{"to HOLD", 0}, {"fenced v1", 1}, {"to DRAIN", 0}, {"fence v2", 3}, {"fenced v2", 5}, {"flip", 0}, {"flipped", 0},
	}) {
		for _, controllers := range turns(i, 1, 2) {
			t.Run(fmt.Sprintf("%s/%d controllers", m, controllers), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { killContent(t, uint64(i), m, controllers) })
			})
		}
	}
}

func killContent(t *testing.T, seed uint64, m moment, controllers int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := contentSystem(ctx, t)
	s.maxRate = 60
	a, pa := s.server(ctx, "server-a", nil)
	c := newCrowd(t, a)
	stop := c.drive(ctx, seed, 3, 12, 20*time.Millisecond)
	pass(3 * time.Second)
	tp, died := mortal(m)
	running := s.started(ctx, "controller", controllers, tp)
	s.begin(ctx)
	s.replace(ctx, running, died, tp)
	d := s.await(ctx, "the flip", func(d upgradestate.Deployment) bool { return d.CurrentVersion == "v2" || d.Upgrade == nil })
	if d.CurrentVersion != "v2" {
		t.Errorf("the upgrade was aborted")
	}
	pass(time.Second)
	stop()
	c.settle(ctx, s)
	cancel()
	for _, p := range append(slices.Collect(maps.Values(running)), pa) {
		p.kill()
	}
}
