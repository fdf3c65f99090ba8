package moves_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/internal/engine/moves"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/resource/region"
)

var decl = region.Kind{Field: "home", Move: "move"}

// store is a namespace that reads several records at one moment. Tests change one record at a time.
type store struct{ *sampletest.Store }

func newStore(t testing.TB) store {
	return store{sampletest.New(t, "books", region.CopiesKind("books"))}
}

func (s store) Select(ctx context.Context, sels []record.Selector, _ bool) (out []record.Record, err error) {
	for _, sel := range sels {
		name, _ := sel.Key.Name()
		rec, err := s.Get(ctx, sel.Kind, name)
		switch {
		case err == nil:
			out = append(out, rec)
		case !errors.Is(err, record.ErrNotFound):
			return nil, err
		}
	}
	return out, nil
}

// lossy is a store whose answers to writes are lost.
type lossy struct{ store }

func (l lossy) Write(ctx context.Context, ms []record.Mutation) error {
	return errors.Join(l.store.Write(ctx, ms), record.ErrUnknown)
}

// place is one region in memory.
type place struct {
	*testing.T
	name    string
	data    store
	clients *region.Store
	mover   *moves.Mover
	version string
	accept  error
	lossy   bool // the mover gets no answers to its writes
	mu      sync.Mutex
	away    map[string]bool // regions whose records are not copied and that answer nothing
	asked   int
	hangs   map[string]bool // regions that take questions and do not answer
}

// world is three regions with movers, and with copies that follow while their owner is not away.
type world map[string]*place

func newWorld(t *testing.T) world {
	w := world{}
	all := []string{"us", "eu", "asia"}
	for _, name := range all {
		w[name] = &place{T: t, name: name, data: newStore(t), version: "v1", away: map[string]bool{}, hangs: map[string]bool{}}
	}
	return w
}

// run runs movers and copies until the test ends.
func (w world) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	for _, p := range w {
		var others []string
		for name, other := range w {
			if name == p.name {
				continue
			}
			others = append(others, name)
			group.Go(func() { p.copies(ctx, other) })
		}
		slices.Sort(others)
		p.clients = region.Over(p.data, p.name, others, map[string]region.Kind{"books": decl}).Moving(p.version)
		data := moves.Data(p.data)
		if p.lossy {
			data = lossy{p.data}
		}
		p.mover = moves.New(moves.Config{Region: p.name, Others: others, Version: p.version, Versions: []string{"v1", "v2"}, Data: data,
			Kinds: map[string]moves.Kind{"books": {Kind: decl, Accept: func(context.Context, record.Record) error { return p.accept }}},
			Ask:   func(ctx context.Context, to string, q moves.Question) (bool, error) { return p.ask(ctx, w[to], q) }, Log: slog.New(slog.DiscardHandler)})
		group.Go(func() {
			for ctx.Err() == nil {
				if err := p.mover.Run(ctx); ctx.Err() == nil {
					p.Errorf("the mover of %s ends: %v", p.name, err)
					return
				}
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
	}
}

func (p *place) isAway(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away[name]
}

func (p *place) cut(name string, away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away[name] = away
}

// copies makes copies of all records of another region, again and again.
func (p *place) copies(ctx context.Context, of *place) {
	for ctx.Err() == nil {
		if !p.isAway(of.name) {
			recs, err := of.data.List(ctx, "books", "", "", 0)
			if err != nil {
				return
			}
			have := map[string]bool{}
			for _, rec := range recs {
				name, _ := rec.Key.Name()
				have[name] = true
				p.copy(of.name, name, rec.Doc)
			}
			copies, _ := p.data.List(ctx, region.CopiesKind("books"), region.CopyKey(of.name, ""), "", 0)
			for _, rec := range copies {
				key, _ := rec.Key.Name()
				if _, name, _ := region.OfCopy(key); !have[name] {
					p.copy(of.name, name, nil)
				}
			}
		}
		time.Sleep(10 * time.Millisecond) // of the bubble
	}
}

func (p *place) copy(of, name string, doc bson.Raw) {
	key := region.CopyKey(of, name)
	if doc != nil {
		doc, _ = region.WithID(doc, key)
		if rec, err := p.data.Get(context.Background(), region.CopiesKind("books"), key); err == nil && string(rec.Doc) == string(doc) {
			return
		}
	}
	if err := p.data.Write(context.Background(), []record.Mutation{{Kind: region.CopiesKind("books"), Key: record.StringKey(key), Doc: doc}}); err != nil {
		p.Error(err)
	}
}

// ask asks over HTTP, by the handler that servers have.
func (p *place) ask(ctx context.Context, of *place, q moves.Question) (bool, error) {
	p.mu.Lock()
	p.asked++
	hangs := p.hangs[of.name]
	p.mu.Unlock()
	if hangs {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // as servers do
		defer cancel()
		<-ctx.Done()
		return false, ctx.Err()
	}
	if p.isAway(of.name) {
		return false, errors.New("the region is away")
	}
	h := moves.Handler(of.data, of.name, of.version, map[string]moves.Kind{"books": {Kind: decl}}, http.NotFoundHandler())
	return moves.Ask(ctx, &http.Client{Transport: handled{h}}, "http://"+of.name, of.name, p.name, q)
}

// handled is a transport to a handler.
type handled struct{ http.Handler }

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

func (p *place) put(name, title, home string) error {
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "title", Value: title}, {Key: "home", Value: home}})
	if err != nil {
		return err
	}
	return p.clients.Write(context.Background(), []record.Mutation{{Kind: "books", Key: record.StringKey(name), Doc: doc}})
}

// states returns the own records of all regions with a name, as REGION STEP TITLE.
func (w world) states(name string) string {
	var all []string
	for _, p := range w {
		if rec, err := p.data.Get(context.Background(), "books", name); err == nil {
			title, _ := rec.Doc.Lookup("title").StringValueOK()
			all = append(all, strings.Join([]string{p.name, string(decl.MoveOf(rec.Doc).Step), title}, " "))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// waits returns what operators see in a region.
func (p *place) waits() string {
	var all []string
	for _, m := range p.mover.Report() {
		all = append(all, fmt.Sprintf("%s %s in=%v %d %s: %s", m.Kind, m.Region, m.In, m.Count, m.Record, m.Waits))
	}
	return strings.Join(all, "; ")
}

// lose lets eu lose a record that us has given to it, as from a backup, and returns it.
func lose(t *testing.T, w world) bson.D {
	t.Helper()
	w["us"].cut("eu", true)
	if err := w["us"].put("b", "old", "eu"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute) // eu reserves it
	w["eu"].cut("us", true)
	w["us"].cut("eu", false)
	time.Sleep(time.Minute) // us gives it away
	rec, err := w["eu"].data.Get(t.Context(), "books", "b")
	if err != nil {
		t.Fatal(err)
	}
	var doc bson.D
	if err := errors.Join(bson.Unmarshal(rec.Doc, &doc), w["eu"].data.Write(t.Context(), []record.Mutation{{Kind: "books", Key: rec.Key, Exists: true}})); err != nil {
		t.Fatal(err)
	}
	w["eu"].cut("us", false)
	time.Sleep(2 * time.Minute)
	if got := w.states("b"); got != "us missing old" {
		t.Fatalf("after the loss: %s", got)
	}
	return doc
}

// reasonOf returns the reason of a refusal.
func reasonOf(err error) refusal.Reason {
	answer, ok := refusal.In(err)
	if !ok {
		return ""
	}
	reason, _ := refusal.Of(answer)
	return reason
}
