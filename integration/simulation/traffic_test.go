package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"dbcontroller/record"
	"dbcontroller/vrunner"
)

// traffic drives items through servers and knows what each must be afterwards. Every
// item belongs to one writer, so that its last acknowledged state is known.
type traffic struct {
	t       *testing.T
	servers []*vrunner.Runner

	mu      sync.Mutex
	items   map[string]expected
	lenient bool           // refusals are no failures: faults are injected
	acked   map[string]int // writes, by version
	reads   int
	failed  []string
	pauseOf time.Duration // longest latency of a write
}

// expected is what an item may be: want, or, after writes of unknown outcome, also one of
// maybe. A nil item is absent.
type expected struct {
	want  *oldItem
	maybe []*oldItem
}

func newTraffic(t *testing.T, servers ...*vrunner.Runner) *traffic {
	return &traffic{t: t, servers: servers, items: map[string]expected{}, acked: map[string]int{}}
}

// run writes and reads as writer w until ctx ends, one operation at each interval.
func (tr *traffic) run(ctx context.Context, w int, seed uint64, keys int, interval time.Duration) {
	rng := rand.New(rand.NewPCG(seed, uint64(w)))
	var n int64
	for ctx.Err() == nil {
		name := fmt.Sprintf("w%d-%03d", w, rng.IntN(keys))
		n++
		tr.step(rng, name, int64(w)<<32|n)
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

func (tr *traffic) step(rng *rand.Rand, name string, n int64) {
	server := tr.servers[rng.IntN(len(tr.servers))]
	tr.mu.Lock()
	exp := tr.items[name]
	tr.mu.Unlock()
	switch rng.IntN(4) {
	case 0:
		tr.read(server, name, exp)
	case 1:
		tr.write(server, http.MethodDelete, name, nil)
	default:
		tr.write(server, http.MethodPut, name, &oldItem{name, n, rng.IntN(4)})
	}
}

func (tr *traffic) write(server *vrunner.Runner, method, name string, item *oldItem) {
	target := "/items/" + name
	if item != nil {
		target += fmt.Sprintf("?n=%d&parts=%d", item.N, item.Parts)
	}
	begun := time.Now()
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	took := time.Since(begun)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.pauseOf = max(tr.pauseOf, took)
	switch w.Code {
	case http.StatusOK:
		tr.acked[w.Header().Get("Version")]++
		tr.items[name] = expected{want: item}
	case http.StatusGatewayTimeout:
		exp := tr.items[name]
		exp.maybe = append(slices.Clone(exp.maybe), item)
		tr.items[name] = exp
	default:
		if !tr.lenient || w.Code != http.StatusServiceUnavailable {
			tr.failed = append(tr.failed, fmt.Sprintf("%s %s: %d %s", method, name, w.Code, w.Body))
		}
	}
}

func (tr *traffic) read(server *vrunner.Runner, name string, exp expected) {
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/items/"+name, nil))
	var got *oldItem
	switch w.Code {
	case http.StatusOK:
		got = &oldItem{}
		if err := json.Unmarshal(w.Body.Bytes(), got); err != nil {
			tr.t.Errorf("read %s: %v", name, err)
		}
	case http.StatusNotFound:
	default:
		tr.mu.Lock()
		if !tr.lenient {
			tr.failed = append(tr.failed, fmt.Sprintf("GET %s: %d %s", name, w.Code, w.Body))
		}
		tr.mu.Unlock()
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.reads++
	if !exp.allows(got) {
		tr.failed = append(tr.failed, fmt.Sprintf("GET %s = %v, want %v", name, got, exp.want))
	}
}

func (e expected) allows(got *oldItem) bool {
	same := func(a, b *oldItem) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return same(e.want, got) || slices.ContainsFunc(e.maybe, func(m *oldItem) bool { return same(m, got) })
}

// settle compares every item with what the new namespace holds, record by record.
func (tr *traffic) settle(ctx context.Context, s *system) {
	tr.t.Helper()
	for _, f := range tr.failed {
		tr.t.Error("failed: ", f)
	}
	d, err := s.admin.Get(ctx)
	s.check(err)
	found := map[string]record.Record{}
	ns, _ := d.Namespace("v2")
	for _, k := range ns.Kinds {
		tok := record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID}
		page, err := s.db["v2"].Scan(ctx, record.ScanRequest{Token: tok, Limit: 1 << 20})
		s.check(err)
		for _, r := range page.Records {
			key, _ := r.Key.Name()
			found[k.Kind+"/"+key] = r
		}
	}
	for name, exp := range tr.items {
		var options [][]record.Record
		for _, it := range append(exp.maybe, exp.want) {
			options = append(options, records(it))
		}
		if !matches(found, name, options) {
			tr.t.Errorf("item %s is not as last acknowledged: want %v", name, exp.want)
		}
	}
	if len(found) > 0 {
		tr.t.Errorf("%d records in the new namespace that nobody wrote, such as %v", len(found), first(found))
	}
}

func records(it *oldItem) []record.Record {
	if it == nil {
		return nil
	}
	return newRecords(it.ID, it.N, it.Parts)
}

// matches takes an item's records out of found and reports whether they are one of the
// options.
func matches(found map[string]record.Record, name string, options [][]record.Record) bool {
	have := map[string]string{}
	for i := -1; i < 8; i++ {
		id := "items2/" + name
		if i >= 0 {
			id = fmt.Sprintf("parts2/%s/%d", name, i)
		}
		if r, ok := found[id]; ok {
			have[id] = string(r.Doc)
			delete(found, id)
		}
	}
	for _, o := range options {
		same := len(o) == len(have)
		for _, r := range o {
			key, _ := r.Key.Name()
			same = same && have[r.Kind+"/"+key] == string(r.Doc)
		}
		if same {
			return true
		}
	}
	return false
}

func first(m map[string]record.Record) string {
	for k := range m {
		return k
	}
	return ""
}
