package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"dbcontroller.dev/vrunner"
)

// TestLinearizable lets clients share a few items, unlike the other tests, and checks
// that what they saw, across the switch and both versions, is one order of operations
// for each item.
func TestLinearizable(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newSystem(ctx, t)
				a, pa := s.server(ctx, "server-a", nil)
				b, pb := s.server(ctx, "server-b", nil)
				h := &history{servers: []*vrunner.Runner{a, b}}
				stop := h.drive(ctx, seed, 5)
				c := s.controller(ctx, "controller-1", nil)
				pass(300 * time.Millisecond)
				s.begin(ctx)
				s.await(ctx, "the flip", active("v2"))
				pass(300 * time.Millisecond)
				stop()
				if h.versions["v1"] == 0 || h.versions["v2"] == 0 {
					t.Errorf("operations by version: %v, want both", h.versions)
				}
				result, info := porcupine.CheckOperationsVerbose(register, h.operations, 0)
				if result != porcupine.Ok {
					path := t.TempDir() + "/history.html"
					if err := porcupine.VisualizePath(register, info, path); err == nil {
						t.Logf("see %s", path)
					}
					t.Errorf("%d operations are not linearizable: %s", len(h.operations), result)
				}
				cancel()
				for _, p := range []*process{pa, pb, c} {
					p.kill()
				}
			})
		})
	}
}

// call is one operation on an item: n is written, or -1 deletes, or read is set.
type call struct {
	name string
	read bool
	n    int64
}

// absent is the value of an item that does not exist.
const absent = int64(-1)

// register is the model: each item holds one number, or nothing.
var register = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, o := range ops {
			name := o.Input.(call).name
			byName[name] = append(byName[name], o)
		}
		var parts [][]porcupine.Operation
		for _, p := range byName {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return absent },
	Step: func(state, input, output any) (bool, any) {
		c := input.(call)
		if c.read {
			return output.(int64) == state.(int64), state
		}
		return true, c.n
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %v", input, output) },
}

// history is what concurrent clients did. Its clock is a counter: simulated time stands
// still while operations run.
type history struct {
	servers []*vrunner.Runner
	clock   atomic.Int64

	mu         sync.Mutex
	operations []porcupine.Operation
	versions   map[string]int
}

func (h *history) drive(ctx context.Context, seed uint64, clients int) (stop func()) {
	h.versions = map[string]int{}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for id := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(id)))
			for n := int64(1); ctx.Err() == nil; n++ {
				c := call{name: fmt.Sprintf("shared-%d", rng.IntN(4)), n: int64(id)<<32 | n}
				switch rng.IntN(4) {
				case 0:
					c.n = absent
				case 1, 2:
					c.read = true
				}
				h.do(id, h.servers[rng.IntN(len(h.servers))], c)
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(rng.IntN(20)) * time.Millisecond):
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

func (h *history) do(client int, server *vrunner.Runner, c call) {
	method, target := http.MethodPut, fmt.Sprintf("/items/%s?n=%d&parts=1", c.name, c.n)
	switch {
	case c.read:
		method = http.MethodGet
	case c.n == absent:
		method = http.MethodDelete
	}
	op := porcupine.Operation{ClientId: client, Input: c, Call: h.clock.Add(1)}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	op.Return = h.clock.Add(1)
	switch {
	case w.Code == http.StatusOK && c.read:
		var got oldItem
		_ = json.Unmarshal(w.Body.Bytes(), &got) // a zero number is no number that was written
		op.Output = got.N
	case w.Code == http.StatusNotFound && c.read:
		op.Output = absent
	case w.Code == http.StatusOK:
	case c.read || w.Code == http.StatusServiceUnavailable:
		return // certain to have had no effect
	default:
		op.Return = 1 << 62 // unknown: it may take effect at any time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, op)
	h.versions[w.Header().Get("Version")]++
}
