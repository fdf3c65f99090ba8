package copies_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/internal/engine/copies"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner is the API of region eu in memory.
type owner struct {
	mu      sync.Mutex
	records map[string]string // title by name
	streams map[*stream]bool
	down    error // Watch fails with it
}

func newOwner() *owner { return &owner{records: map[string]string{}, streams: map[*stream]bool{}} }

type stream struct {
	o      *owner
	events chan copies.Event
	broken chan struct{}
}

func event(name, title, home string) copies.Event {
	doc, _ := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "title", Value: title}, {Key: "home", Value: home}})
	return copies.Event{Type: vrunner.EventPut, Name: name, Doc: doc}
}

// event returns a put, as a Source reads it.
func (o *owner) event(name, title string) copies.Event {
	ev := event(name, title, "eu")
	if title == "unreadable" {
		ev.Doc, ev.Refused = nil, errors.New("no record of this kind")
	}
	return ev
}

func (o *owner) Watch(context.Context) (copies.Stream, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down != nil {
		return nil, o.down
	}
	s := &stream{o, make(chan copies.Event, 10_000), make(chan struct{})}
	for _, name := range slices.Sorted(maps.Keys(o.records)) {
		s.events <- o.event(name, o.records[name])
	}
	s.events <- copies.Event{Type: vrunner.EventLevel}
	o.streams[s] = true
	return s, nil
}

// set changes a record. An empty title deletes it.
func (o *owner) set(name, title string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ev := o.event(name, title)
	if o.records[name] = title; title == "" {
		delete(o.records, name)
		ev = copies.Event{Type: vrunner.EventDelete, Name: name}
	}
	for s := range o.streams {
		s.events <- ev
	}
}

// cut breaks all streams. Events that were not received are lost.
func (o *owner) cut(down error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = down
	for s := range o.streams {
		close(s.broken)
	}
	clear(o.streams)
}

var errCut = errors.New("the network is cut")

func (s *stream) Next(ctx context.Context) (copies.Event, error) {
	select {
	case <-s.broken:
		return copies.Event{}, errCut
	default:
	}
	select {
	case ev := <-s.events:
		return ev, nil
	case <-s.broken:
		return copies.Event{}, errCut
	case <-ctx.Done():
		return copies.Event{}, ctx.Err()
	}
}

func (s *stream) Close() {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	delete(s.o.streams, s)
}

// space is a namespace in memory. It can refuse writes.
type space struct {
	*sampletest.Store
	mu     sync.Mutex
	refuse func() error
	writes int
	// takes is the most mutations of one write; most is the most that one write or read of names had.
	takes, most int
	page        int // most records of a list
}

func newSpace(t testing.TB) *space {
	return &space{Store: sampletest.New(t, "books", region.CopiesKind("books"), region.StateKind), takes: 8}
}

func (s *space) Names(ctx context.Context, kind string, of []string) (names []string, err error) {
	s.mu.Lock()
	s.most = max(s.most, len(of))
	s.mu.Unlock()
	for _, name := range of {
		if _, err := s.Get(ctx, kind, name); err == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

func (s *space) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) ([]record.Record, bool, error) {
	recs, more, err := s.Store.ListBounded(ctx, kind, prefix, after, limit, bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page = max(s.page, len(recs))
	return recs, more, err
}

func (s *space) Write(ctx context.Context, ms []record.Mutation) error {
	s.mu.Lock()
	refuse := s.refuse
	s.writes += len(ms)
	s.most = max(s.most, len(ms))
	s.mu.Unlock()
	// A large title is a document that the database does not take, a title "no" one that it refuses.
	for _, m := range ms {
		switch title, _ := m.Doc.Lookup("title").StringValueOK(); {
		case len(title) > 2<<20:
			return record.ErrOversize
		case title == "no":
			return record.Refuse(errors.New("no such titles"))
		}
	}
	if len(ms) > s.takes { // as an etcd with few operations in a transaction
		return record.ErrOversize
	}
	if refuse != nil {
		if err := refuse(); err != nil {
			return err
		}
	}
	return s.Store.Write(ctx, ms)
}

// copied returns the titles of the copies of a region.
func (s *space) copied(t testing.TB, of string) map[string]string {
	t.Helper()
	recs, err := s.List(t.Context(), region.CopiesKind("books"), region.CopyKey(of, ""), "", 10_000)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, rec := range recs {
		key, _ := rec.Key.Name()
		_, name, _ := region.OfCopy(key)
		out[name], _ = rec.Doc.Lookup("title").StringValueOK()
	}
	return out
}

func follow(o copies.Source, s *space) *copies.Follower {
	return followKind(o, s, region.Kind{Field: "home"})
}

func followKind(o copies.Source, s *space, decl region.Kind) *copies.Follower {
	return copies.New(copies.Config{Kind: "books", Region: "eu", Source: o, Space: s, Decl: decl, Log: slog.New(slog.DiscardHandler)})
}

// TestConverges: under random changes, cuts, failed writes and restarts the copies end at the state of
// the owner. Other copies and owned records stay as they are.
func TestConverges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			o, s := newOwner(), newSpace(t)
			name := func() string { return fmt.Sprintf("b%03d", rng.IntN(150)) }
			for range 100 {
				o.set(name(), fmt.Sprint(rng.IntN(1000)))
			}
			asia, _ := bson.Marshal(bson.D{{Key: "_id", Value: region.CopyKey("asia", "b001")}, {Key: "title", Value: "asia"}})
			mine, _ := bson.Marshal(bson.D{{Key: "_id", Value: "b001"}, {Key: "title", Value: "mine"}})
			if err := s.Store.Write(t.Context(), []record.Mutation{{Kind: region.CopiesKind("books"), Key: record.StringKey(region.CopyKey("asia", "b001")), Doc: asia}, {Kind: "books", Key: record.StringKey("b001"), Doc: mine}}); err != nil {
				t.Fatal(err)
			}
			s.refuse = func() error {
				if rand.IntN(10) == 0 {
					return record.ErrUnavailable
				}
				return nil
			}
			for range 3 { // processes, one after the other
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				f := follow(o, s)
				go func() { ended <- f.Run(ctx) }()
				for range 40 {
					for range rng.IntN(10) {
						title := fmt.Sprint(rng.IntN(1000))
						if rng.IntN(3) == 0 {
							title = ""
						}
						o.set(name(), title)
					}
					switch rng.IntN(6) {
					case 0:
						o.cut(nil)
					case 1:
						o.cut(errCut)
					case 2:
						time.Sleep(10 * time.Second) // of the bubble
						o.mu.Lock()
						o.down = nil
						o.mu.Unlock()
					default:
						synctest.Wait()
					}
				}
				stop()
				<-ended
			}
			s.mu.Lock()
			s.refuse = nil
			s.mu.Unlock()
			o.cut(nil)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			f := follow(o, s)
			ended := make(chan error, 1)
			go func() { ended <- f.Run(ctx) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := s.copied(t, "eu"); !maps.Equal(got, o.records) {
				t.Errorf("seed %d: copied %v, want %v", seed, got, o.records)
			}
			if got := s.copied(t, "asia"); !maps.Equal(got, map[string]string{"b001": "asia"}) {
				t.Errorf("copies of asia are %v", got)
			}
			rec, err := s.Get(t.Context(), "books", "b001")
			if title, _ := rec.Doc.Lookup("title").StringValueOK(); err != nil || title != "mine" {
				t.Errorf("the owned record is %v, %v", rec.Doc, err)
			}
			both := 0
			if o.records["b001"] != "" {
				both = 1
			}
			if r := f.Report(); !r.Whole || !r.Away.IsZero() || r.Both > both {
				t.Errorf("reported %+v", r)
			}
			stop()
			<-ended
		})
	}
}

// TestEqualCopiesStay: a new watch of unchanged records writes none of them.
func TestEqualCopiesStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		for i := range 200 {
			o.set(fmt.Sprintf("b%03d", i), "same")
		}
		for run := range 2 {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- follow(o, s).Run(ctx) }()
			synctest.Wait()
			stop()
			<-ended
			if run == 0 {
				s.writes = 0
			}
		}
		if s.writes > 3 { // those of the state
			t.Errorf("%d writes", s.writes)
		}
	})
}

// TestLatestFollowerWrites: a process that slept through a take-over has no effect any more.
func TestLatestFollowerWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, now, s := newOwner(), newOwner(), newSpace(t)
		old.set("b", "outdated")
		now.set("b", "present")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		slept, other := make(chan error, 1), make(chan error, 1)
		go func() { slept <- follow(old, s).Run(ctx) }()
		synctest.Wait()
		go func() { other <- follow(now, s).Run(ctx) }()
		synctest.Wait()
		old.set("b", "more outdated")
		select {
		case err := <-slept:
			if !errors.Is(err, copies.ErrOutdated) {
				t.Errorf("the earlier follower ends with %v", err)
			}
		case <-time.After(time.Hour): // of the bubble
			t.Error("the earlier follower goes on")
			defer func() { <-slept }()
		}
		if got := s.copied(t, "eu"); got["b"] != "present" {
			t.Errorf("copied %v", got)
		}
		stop()
		<-other
	})
}

// TestAge: copies stay while their owner is away, and their age survives a restart of the process.
func TestAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		o.set("b", "kept")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		f := follow(o, s)
		go func() { ended <- f.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if r := f.Report(); !r.Away.IsZero() || r.Problem != "" {
			t.Errorf("reported %+v", r)
		}
		cut := time.Now()
		o.cut(errCut)
		time.Sleep(time.Hour)
		if r := f.Report(); !r.Away.Equal(cut) || !strings.Contains(r.Problem, errCut.Error()) {
			t.Errorf("reported %+v, cut at %s", r, cut)
		}
		stop()
		<-ended
		ctx, stop = context.WithCancel(t.Context())
		f = follow(o, s)
		go func() { ended <- f.Run(ctx) }()
		synctest.Wait()
		if r := f.Report(); !r.Whole || cut.Sub(r.Away) < 0 || cut.Sub(r.Away) > 15*time.Second {
			t.Errorf("after a restart reported %+v, cut at %s", r, cut)
		}
		if got := s.copied(t, "eu"); got["b"] != "kept" {
			t.Errorf("copied %v", got)
		}
		stop()
		<-ended
	})
}

// TestTakeOverAgain: a failed take-over is repeated, so that the report of a region that is away says
// that its copies were complete.
func TestTakeOverAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		o.set("b", "kept")
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- follow(o, s).Run(ctx) }()
		synctest.Wait()
		stop()
		<-ended
		o.cut(errCut)
		failed := false
		s.refuse = func() error {
			if failed {
				return nil
			}
			failed = true
			return record.ErrUnavailable
		}
		ctx, stop = context.WithCancel(t.Context())
		f := follow(o, s)
		go func() { ended <- f.Run(ctx) }()
		time.Sleep(time.Minute)
		if r := f.Report(); !failed || !r.Known || !r.Whole {
			t.Errorf("after a failed take-over reported %+v", r)
		}
		stop()
		<-ended
	})
}

// TestManyGone: many deletions during an absence become writes of a bounded size, before, between and
// behind the records that remain.
func TestManyGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		s.takes = 1000
		for i := range 2000 {
			o.set(fmt.Sprintf("b%04d", i), "x")
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- follow(o, s).Run(ctx) }()
		synctest.Wait()
		o.mu.Lock()
		for i := range 2000 {
			if i != 700 && i != 1300 {
				delete(o.records, fmt.Sprintf("b%04d", i))
			}
		}
		o.mu.Unlock()
		s.mu.Lock()
		s.most = 0
		s.mu.Unlock()
		o.cut(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.copied(t, "eu"); !maps.Equal(got, o.records) {
			t.Errorf("%d copies, want %v", len(got), o.records)
		}
		if s.most == 0 || s.most > 250 {
			t.Errorf("one call had %d records", s.most)
		}
		stop()
		<-ended
	})
}
