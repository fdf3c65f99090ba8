package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// traffic drives items through servers and knows what each must be afterwards. Every
// item belongs to one writer, so that its last acknowledged state is known.
type traffic struct {
	t       *testing.T
	servers []*vrunner.Runner
	items   *workload.Ledger[oldItem]

	mu      sync.Mutex
	lenient bool           // refusals are no failures: faults are injected
	acked   map[string]int // writes, by version
	reads   int
	failed  []string
	pauseOf time.Duration // longest latency of a write
}

func newTraffic(t *testing.T, servers ...*vrunner.Runner) *traffic {
	return &traffic{t: t, servers: servers, items: workload.New[oldItem]("item"), acked: map[string]int{}}
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
	switch rng.IntN(4) {
	case 0:
		tr.read(server, name)
	case 1:
		tr.remove(server, name)
	default:
		tr.put(server, oldItem{name, n, rng.IntN(4)})
	}
}

func (tr *traffic) put(server *vrunner.Runner, item oldItem) {
	tr.write(server, httptest.NewRequest(http.MethodPut, fmt.Sprintf("/items/%s?n=%d&parts=%d", item.ID, item.N, item.Parts), nil), item.ID, item)
}

func (tr *traffic) remove(server *vrunner.Runner, name string) {
	tr.write(server, httptest.NewRequest(http.MethodDelete, "/items/"+name, nil), name, oldItem{})
}

func (tr *traffic) write(server *vrunner.Runner, r *http.Request, name string, next oldItem) {
	tr.items.Begin(name, next)
	start := time.Now()
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	took := time.Since(start)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.pauseOf = max(tr.pauseOf, took)
	switch w.Code {
	case http.StatusOK:
		tr.items.Ack(name)
		tr.acked[w.Header().Get("Version")]++
	case http.StatusGatewayTimeout:
		tr.items.Unknown(name)
	default:
		tr.items.Refuse(name)
		if !tr.lenient || w.Code != http.StatusServiceUnavailable {
			tr.failed = append(tr.failed, fmt.Sprintf("%s %s: %d %s", r.Method, name, w.Code, w.Body))
		}
	}
}

func (tr *traffic) read(server *vrunner.Runner, name string) {
	reading := tr.items.Read(name)
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/items/"+name, nil))
	print := ""
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch w.Code {
	case http.StatusOK:
		var got oldItem
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			tr.t.Errorf("read %s: %v", name, err)
		}
		print = oldItem.String(got)
	case http.StatusNotFound:
	default:
		if !tr.lenient {
			tr.failed = append(tr.failed, fmt.Sprintf("GET %s: %d %s", name, w.Code, w.Body))
		}
		return
	}
	tr.reads++
	if err := reading.Check(print, oldItem.String); err != nil {
		tr.failed = append(tr.failed, err.Error())
	}
}

// settle compares every item with what the new namespace holds, record by record.
func (tr *traffic) settle(ctx context.Context, s *system) {
	tr.t.Helper()
	for _, f := range tr.failed {
		tr.t.Error("failed: ", f)
	}
	if err := tr.found(ctx, s); err != nil {
		tr.t.Error(err)
	}
}

// found is what is wrong with what the new namespace holds.
func (tr *traffic) found(ctx context.Context, s *system) error {
	tr.t.Helper()
	d, err := s.admin.Get(ctx)
	s.check(err)
	found := map[string][]record.Record{}
	ns, _ := d.Namespace("v2")
	for _, k := range ns.Kinds {
		tok := record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID}
		page, err := s.db["v2"].Scan(ctx, record.ScanRequest{Token: tok, Limit: 1 << 20})
		s.check(err)
		for _, r := range page.Records {
			r.Kind = k.Kind
			key, _ := r.Key.Name()
			name, _, _ := strings.Cut(key, "/") // the item that a part belongs to
			found[name] = append(found[name], r)
		}
	}
	seen := workload.Seen{}
	for name, rs := range found {
		seen.Add(name, printOf(rs))
	}
	as := func(it oldItem) string { return printOf(newRecords(it.ID, it.N, it.Parts)) }
	return tr.items.Check("the new namespace", seen, as).Err()
}

// String is the item as the API shows it.
func (it oldItem) String() string { return fmt.Sprintf("%s: n=%d, %d parts", it.ID, it.N, it.Parts) }

// printOf is what an item's records hold, in any order.
func printOf(records []record.Record) string {
	var all []string
	for _, r := range records {
		all = append(all, r.Kind+" "+r.Doc.String())
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
