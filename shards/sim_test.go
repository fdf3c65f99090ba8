package shards_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/shards"
)

const simRing = 16

// step is one thing that happens in a simulation.
type step struct {
	Kind   string
	Member int
	Wait   time.Duration // afterwards
}

// sim is a whole system: members over one memcoord, in a synctest bubble.
type sim struct {
	ctx     context.Context
	root    *memcoord.Store
	members map[int]*member
	lossy   int // percent of commits whose answer or request is lost
	seed    int64
	strict  bool // nobody is cut, paused or robbed: shards are handed over, never lost
	errs    []string
}

// member is one process: a pool and an engine that takes a while to let go.
type member struct {
	id      int
	store   *memcoord.Store
	pool    *shards.Pool
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	working map[int]int64 // shard -> Create
}

func (s *sim) fail(format string, args ...any) {
	s.errs = append(s.errs, fmt.Sprintf(format, args...))
}

func (s *sim) join(id int) {
	if s.members[id] != nil {
		return
	}
	m := &member{id: id, store: s.root.Client(), working: map[int]int64{}}
	if s.lossy > 0 {
		var mu sync.Mutex
		r := rand.New(rand.NewSource(s.seed + int64(id)))
		m.store.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
			mu.Lock()
			defer mu.Unlock()
			if r.Intn(100) >= s.lossy {
				return memcoord.Deliver
			}
			return []memcoord.Fault{memcoord.LoseRequest, memcoord.LoseAnswer}[r.Intn(2)]
		})
	}
	m.pool = shards.New(m.store, shards.Config{Prefix: "d/", ID: fmt.Sprint("m", id), Ring: simRing})
	ctx, cancel := context.WithCancel(s.ctx)
	m.cancel = cancel
	m.running.Add(2)
	go func() {
		defer m.running.Done()
		if err := m.pool.Run(ctx); err != nil {
			s.fail("member %d: Run: %v", id, err)
		}
	}()
	go func() {
		defer m.running.Done()
		m.engine(ctx)
	}()
	s.members[id] = m
}

// engine works on what it owns and takes 50 ms to stop.
func (m *member) engine(ctx context.Context) {
	for {
		for _, n := range m.pool.Leaving() {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return
			}
			m.mu.Lock()
			delete(m.working, n)
			m.mu.Unlock()
			if m.pool.Release(ctx, n) != nil {
				return
			}
		}
		owned := m.pool.Owned()
		m.mu.Lock()
		clear(m.working)
		for n, l := range owned {
			m.working[n] = l.Create
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-m.pool.Changes():
		}
	}
}

// leave ends a member as a signal would: the engine first, in effect, for its work is
// no longer counted.
func (s *sim) leave(id int) {
	m := s.members[id]
	if m == nil {
		return
	}
	delete(s.members, id)
	m.mu.Lock()
	clear(m.working)
	m.mu.Unlock()
	m.cancel()
	m.running.Wait()
}

func (s *sim) do(st step) {
	m := s.members[st.Member]
	switch st.Kind {
	case "join":
		s.join(st.Member)
	case "leave":
		s.leave(st.Member)
	case "cut":
		if m != nil {
			m.store.Cut()
		}
	case "pause":
		if m != nil {
			m.store.Pause()
		}
	case "heal":
		if m != nil {
			m.store.Heal()
		}
	case "expire":
		if m != nil {
			m.store.Expire(m.pool.Lease())
		}
	case "rob": // an operator deletes locks by hand
		for n := range 3 {
			key := fmt.Sprintf("d/shards/%05d", (st.Member+n*5)%simRing)
			if _, err := s.root.Commit(s.ctx, nil, []coord.Op{{Key: key, Delete: true}}); err != nil {
				s.fail("rob: %v", err)
			}
		}
	}
}

// check is the safety property: no two members believe in the same lock; and once all
// have done what they can at this instant, at most one passes its condition, for each
// shard, whatever the others believe in.
func (s *sim) check(after string) {
	type claim struct {
		shard  int
		create int64
	}
	claims := map[claim]int{}
	for id, m := range s.members {
		for n, l := range m.pool.Owned() {
			if other, taken := claims[claim{n, l.Create}]; taken {
				s.fail("after %s: members %d and %d have the same lock of shard %d", after, id, other, n)
			}
			claims[claim{n, l.Create}] = id
		}
	}
	if s.strict {
		s.checkWork(after)
	}
	synctest.Wait()
	holders := map[int][]int{}
	for id, m := range s.members {
		for n, l := range m.pool.Owned() {
			if _, err := s.root.Commit(s.ctx, []coord.Condition{l.Condition()}, nil); err == nil {
				holders[n] = append(holders[n], id)
			}
		}
	}
	for n, ids := range holders {
		if len(ids) > 1 {
			s.fail("after %s: shard %d has the valid owners %v", after, n, ids)
		}
	}
}

// checkWork holds all engines still and checks whether two work on one shard.
func (s *sim) checkWork(after string) {
	worker := map[int]int{}
	for _, m := range s.members {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	for id, m := range s.members {
		for n := range m.working {
			if other, taken := worker[n]; taken {
				s.fail("after %s: members %d and %d work on shard %d", after, id, other, n)
			}
			worker[n] = id
		}
	}
}

// stable is the liveness property: every shard has one owner, evenly.
func (s *sim) stable() {
	owner := map[int]int{}
	least, most := simRing, 0
	for id, m := range s.members {
		owned := m.pool.Owned()
		for n, l := range owned {
			if other, taken := owner[n]; taken {
				s.fail("at the end members %d and %d own shard %d", other, id, n)
			}
			owner[n] = id
			if _, err := s.root.Commit(s.ctx, []coord.Condition{l.Condition()}, nil); err != nil {
				s.fail("at the end the lock of shard %d of member %d does not hold: %v", n, id, err)
			}
		}
		if leaving := m.pool.Leaving(); len(leaving) > 0 {
			s.fail("at the end %v are leaving member %d", leaving, id)
		}
		least, most = min(least, len(owned)), max(most, len(owned))
	}
	if len(s.members) > 0 && (len(owner) != simRing || most-least > 1) {
		s.fail("at the end %d of %d shards are owned, from %d to %d by each of %d", len(owner), simRing, least, most, len(s.members))
	}
}

// simulate plays the steps and returns what was wrong.
func simulate(t *testing.T, s *sim, steps []step) (errs []string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.ctx, s.root, s.members = ctx, memcoord.New(), map[int]*member{}
		for i, st := range steps {
			what := fmt.Sprintf("step %d (%s %d)", i, st.Kind, st.Member)
			s.do(st)
			s.check(what)
			for waited := time.Duration(0); waited < st.Wait; waited += 20 * time.Millisecond {
				<-time.After(20 * time.Millisecond)
				s.check(what)
			}
		}
		for _, m := range s.members {
			m.store.Heal()
		}
		<-time.After(time.Minute)
		synctest.Wait()
		s.check("the end")
		s.stable()
		for _, id := range slices.Collect(maps.Keys(s.members)) {
			s.leave(id)
		}
		if locks, _, err := s.root.List(ctx, "d/shards/"); err != nil || len(locks) > 0 {
			s.fail("locks %v are left when all have gone (%v)", locks, err)
		}
		errs = s.errs
	})
	return errs
}

func drawSteps(t *rapid.T, kinds []string) []step {
	return append([]step{{Kind: "join", Wait: time.Second}},
		rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{
				Kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
				Member: rapid.IntRange(0, 4).Draw(t, "member"),
				Wait:   time.Duration(rapid.SampledFrom([]int{0, 20, 100, 500, 2000, 4000}).Draw(t, "wait")) * time.Millisecond,
			}
		}), 1, 25).Draw(t, "steps")...)
}

// Members come and go: shards are handed over, and never two work on one.
func TestMembersComeAndGo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawSteps(rt, []string{"join", "join", "leave"})
		if errs := simulate(t, &sim{strict: true}, steps); len(errs) > 0 {
			rt.Fatalf("%d violations, the first: %s", len(errs), errs[0])
		}
	})
}

// The same with everything that may go wrong.
func TestMembersFail(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &sim{
			lossy: rapid.SampledFrom([]int{0, 10, 40}).Draw(rt, "lossy"),
			seed:  rapid.Int64().Draw(rt, "seed"),
		}
		steps := drawSteps(rt, []string{"join", "join", "join", "leave", "cut", "pause", "heal", "heal", "expire", "rob"})
		if errs := simulate(t, s, steps); len(errs) > 0 {
			rt.Fatalf("%d violations, the first: %s", len(errs), errs[0])
		}
	})
}
