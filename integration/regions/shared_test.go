package regions_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
)

// sharedPrefix begins the ids of secrets with several writers.
const sharedPrefix = "shared-"

// access is one operation on a shared secret.
type access struct {
	id   string
	read bool
	n    int64 // written
}

// register is the model: each secret holds one number, first 0.
var register = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		byID := map[string][]porcupine.Operation{}
		for _, o := range ops {
			id := o.Input.(access).id
			byID[id] = append(byID[id], o)
		}
		var parts [][]porcupine.Operation
		for _, p := range byID {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		a := input.(access)
		if a.read {
			return output.(int64) == state.(int64), state
		}
		return true, a.n
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %v", input, output) },
}

// history is what the clients of shared secrets did.
type history struct {
	begun time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

// share creates one secret in each region. Clients of two regions write it, others read it where it is
// owned, and one moves it.
func (c *crowd) share(ctx context.Context, interval time.Duration) *history {
	h := &history{begun: time.Now()}
	for i, home := range names {
		id, owner := sharedPrefix+home, c.w.regions[home]
		if err := owner.create(id, "0"); err != nil {
			c.w.t.Fatal(err)
		}
		for j, in := range []*region{owner, c.w.regions[names[(i+1)%len(names)]], nil, nil} {
			number, rng, n := len(names)*j+i, rand.New(rand.NewPCG(uint64(i), uint64(j))), int64(0)
			c.every(ctx, interval, func() {
				op := porcupine.Operation{ClientId: number, Call: h.now()}
				if in == nil {
					text, err := c.w.number(rng, id)
					op.Return = h.now()
					if err != nil {
						if !errors.Is(err, errNoOwner) {
							c.outcomeOf(err, false)
						}
						return
					}
					got, err := strconv.ParseInt(text, 10, 64)
					if err != nil {
						c.fail("%s holds %q", id, text)
					}
					op.Input, op.Output = access{id: id, read: true}, got
					h.add(op)
					return
				}
				n++
				value := n*100 + int64(number)
				op.Input = access{id: id, n: value}
				err := in.at(rng, func(api secretsv1connect.SecretServiceClient) error { return set(c.w.ctx, api, id, fmt.Sprint(value)) })
				op.Return = h.now()
				switch c.outcomeOf(err, true) {
				case nothing:
					return
				case unknown:
					op.Return = 1 << 62 // it may take effect at any time
				case done:
					c.acked[in.name].Add(1)
				}
				h.add(op)
			})
		}
		c.wander(ctx, id, 10*interval, rand.New(rand.NewPCG(uint64(i), 4)))
	}
	return h
}

func (h *history) now() int64 { return time.Since(h.begun).Nanoseconds() }

func (h *history) add(op porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// linearizable checks that there is one order of the operations of each secret.
func (h *history) linearizable(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[int64]bool{}
	for _, op := range h.ops {
		if n, ok := op.Output.(int64); ok {
			seen[n] = true
		}
	}
	// A write of unknown outcome that no read returned may have happened last, so it decides nothing.
	// Many of them would take the checker for ever.
	var ops []porcupine.Operation
	open := 0
	for _, op := range h.ops {
		if op.Return == 1<<62 {
			open++
			if !seen[op.Input.(access).n] {
				continue
			}
		}
		ops = append(ops, op)
	}
	result, info := porcupine.CheckOperationsVerbose(register, ops, patience)
	if result != porcupine.Ok {
		path := t.ArtifactDir() + "/history.html"
		if err := porcupine.VisualizePath(register, info, path); err == nil {
			t.Logf("see %s", path)
		}
		t.Errorf("%d operations are not linearizable: %s", len(ops), result)
	}
	t.Logf("%d operations of shared secrets, %d of them with an unknown outcome", len(h.ops), open)
}
