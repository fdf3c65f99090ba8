package simulation_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// sleeper is a Client whose writes sleep between the gate and the database, while asleep.
type sleeper struct {
	record.Client
	asleep  atomic.Bool
	waiting atomic.Int64
	wake    chan struct{}
	effects *atomic.Int64 // writes that succeeded
}

func (c *sleeper) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	if c.asleep.Load() {
		c.waiting.Add(1)
		<-c.wake
	}
	err := c.Client.Write(ctx, toks, ms)
	if err == nil {
		c.effects.Add(1)
	}
	return err
}

// contents is all that a version's collections hold, whatever they are called now.
func (s *system) contents(ctx context.Context, version string) map[string]string {
	s.t.Helper()
	d, err := s.admin.Get(ctx)
	s.check(err)
	held := map[string]string{}
	for kind, places := range upgradestate.EnginePlaces(d, version) {
		at, err := s.db[version].Locate(ctx, places[0].ID)
		s.check(err)
		page, err := s.db[version].Scan(ctx, record.ScanRequest{
			Token: record.Token{Kind: kind, Name: at, ID: places[0].ID}, Limit: 1 << 20, NotBefore: s.now(ctx, version),
		})
		s.check(err)
		for _, r := range page.Records {
			held[kind+"/"+r.Key.String()] = string(r.Doc)
		}
	}
	return held
}

// TestServerSleepsOverTheSwitch: writes and deletes pass the gate, their server stops, and
// goes on when the new version has been active for long. They have no effect on the old
// namespace, and exactly one on the new one.
func TestServerSleepsOverTheSwitch(t *testing.T) {
	eachSeed(t, 8, sleepOver)
}

func sleepOver(t *testing.T, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.oneWay = true // nothing but a late write changes the old namespace
	var effects atomic.Int64
	old := &sleeper{wake: make(chan struct{}), effects: &effects}
	a, pa := s.server(ctx, "server-a", func(version string, c record.Client) record.Client {
		if version == "v1" {
			old.Client = c
			return old
		}
		return &sleeper{Client: c, effects: &effects}
	})
	b, pb := s.server(ctx, "server-b", nil)
	for i := range 10 {
		request(t, b, http.MethodPut, fmt.Sprintf("sleepy-%d", i), fmt.Sprintf("?n=%d&parts=2", i))
	}
	tr := newTraffic(t, b)
	stop := drive(ctx, tr, seed, 3, 30, 20*time.Millisecond)
	c := s.controller(ctx, "controller-1", nil)
	pass(time.Duration(1+seed%5) * 500 * time.Millisecond)
	old.asleep.Store(true)
	effects.Store(0)
	var wg sync.WaitGroup
	answers := make([]*httptest.ResponseRecorder, 10)
	for i := range answers {
		wg.Go(func() {
			name := fmt.Sprintf("sleepy-%d", i)
			method, query := http.MethodPut, fmt.Sprintf("?n=%d&parts=1", 100+i)
			if i%3 == 0 {
				method, query = http.MethodDelete, ""
			}
			answers[i] = httptest.NewRecorder()
			a.ServeHTTP(answers[i], httptest.NewRequest(method, "/items/"+name+query, nil))
		})
	}
	for old.waiting.Load() < 10 {
		pass(time.Millisecond)
	}
	s.begin(ctx)
	s.await(ctx, "the flip", active("v2"))
	before := s.contents(ctx, "v1")
	pass(time.Duration(seed%7) * time.Second)
	old.asleep.Store(false)
	close(old.wake)
	wg.Wait()
	pass(time.Second)
	stop()
	for i, w := range answers {
		if w.Code != http.StatusOK || w.Header().Get("Version") != "v2" {
			t.Errorf("request %d was answered %d %s by %q", i, w.Code, w.Body, w.Header().Get("Version"))
		}
		name := fmt.Sprintf("sleepy-%d", i)
		item := oldItem{name, int64(100 + i), 1}
		if i%3 == 0 {
			item = oldItem{}
		}
		tr.items.Put(name, item)
	}
	if n := effects.Load(); n != 10 {
		t.Errorf("10 requests had %d effects", n)
	}
	after := s.contents(ctx, "v1")
	for k, v := range before {
		if after[k] != v {
			t.Errorf("%s changed in the old namespace", k)
		}
	}
	if len(after) != len(before) {
		t.Errorf("the old namespace had %d records, and has %d", len(before), len(after))
	}
	tr.settle(ctx, s)
	cancel()
	for _, p := range []*process{pa, pb, c} {
		p.kill()
	}
}

func request(t *testing.T, server http.Handler, method, name, query string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(method, "/items/"+name+query, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, name, w.Code, w.Body)
	}
	return w
}

// TestServerCutOff: a server that does not reach the coordination store goes on serving,
// is refused by the database at the switch, and has its requests wait until it is told.
func TestServerCutOff(t *testing.T) {
	eachSeed(t, 8, func(t *testing.T, seed uint64) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		a, pa := s.server(ctx, "server-a", nil)
		b, pb := s.server(ctx, "server-b", nil)
		tr := newTraffic(t, a, b)
		stop := drive(ctx, tr, seed, 3, 30, 20*time.Millisecond)
		c := s.controller(ctx, "controller-1", nil)
		pass(2 * time.Second)
		early := seed%2 == 0 // else in the middle of the switch
		if early {
			pa.conn.Cut()
		}
		s.begin(ctx)
		s.await(ctx, "the switch", func(d upgradestate.Deployment) bool {
			return d.CurrentVersion == "v2" || d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
		})
		if !early {
			pa.conn.Cut()
		}
		s.await(ctx, "the flip", active("v2"))
		pass(time.Duration(1+seed%8) * time.Second)
		pa.conn.Heal()
		pass(3 * time.Second)
		stop()
		tr.settle(ctx, s)
		if tr.acked["v1"] == 0 || tr.acked["v2"] == 0 {
			t.Errorf("acked %v, want both", tr.acked)
		}
		servers, err := s.admin.Servers(ctx)
		s.check(err)
		if len(servers) != 2 || servers[0].Active != "v2" || servers[1].Active != "v2" {
			t.Errorf("registered are %+v, want both at v2", servers)
		}
		cancel()
		for _, p := range []*process{pa, pb, c} {
			p.kill()
		}
	})
}
