package simulation_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/vrunner"
)

// The service of these simulations has orders, each of which is a record that says how many
// lines it has, and so many records of lines. Clients write an order in one transaction, and
// nobody can make anything of one that lacks a line, in either direction.
type order struct {
	ID    string `bson:"_id" json:"id"`
	Of    string `bson:"of" json:"of"`
	Lines int    `bson:"lines,omitempty" json:"lines,omitempty"` // of the order's own record
}

func ofOrder(r record.Record) (string, error) {
	var o order
	err := bson.Unmarshal(r.Doc, &o)
	return string(record.StringKey(o.Of)), err
}

// complete renames the kinds of a whole order.
func complete(version string) transform.Func {
	return func(src, _ transform.Group) (out []record.Record, err error) {
		lines, want := 0, -1
		for _, r := range src.Records {
			var o order
			if err := bson.Unmarshal(r.Doc, &o); err != nil {
				return nil, err
			}
			if r.Kind[:5] == "lines" {
				lines++
			} else {
				want = o.Lines
			}
			r.Kind = r.Kind[:len(r.Kind)-1] + version
			out = append(out, r)
		}
		if lines != want {
			return nil, fmt.Errorf("it has %d lines of %d", lines, want)
		}
		return out, nil
	}
}

func ordersRegistry() *transform.Registry {
	side := func(version string) transform.Side {
		return transform.Side{Kinds: []transform.GroupedKind{kindBy("orders"+version, ofOrder), kindBy("lines"+version, ofOrder)}}
	}
	r := transform.NewRegistry("orders")
	err := r.Add("v1", "v2", transform.Spec{
		Name: "orders", Revision: "1", Up: complete("2"), Down: complete("1"), Old: side("1"), New: side("2"),
	})
	if err != nil {
		panic(err)
	}
	return r
}

// entry is one record of a request, without the version in its kind.
type entry struct {
	Kind   string `json:"kind"`
	Delete bool   `json:"delete"`
	Order  order  `json:"order"`
}

// ordersStack writes all of a request at once, into the kinds of its version.
func ordersStack(version string, views map[string]*vrunner.View) vrunner.Stack {
	h := func(w http.ResponseWriter, r *http.Request) {
		var es []entry
		if err := json.NewDecoder(r.Body).Decode(&es); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var ms []record.Mutation
		for _, e := range es {
			m := record.Mutation{Kind: e.Kind + version[1:], Key: record.StringKey(e.Order.ID)}
			if !e.Delete {
				m.Doc = must(bson.Marshal(e.Order))
			}
			ms = append(ms, m)
		}
		if err := views[version].Write(r.Context(), ms); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
	return vrunner.Stack{Handler: http.HandlerFunc(h), Write: func(*http.Request) bool { return true }}
}

// clerk writes orders of its own.
type clerk struct {
	t      *testing.T
	server *vrunner.Runner
	id     int
	rng    *rand.Rand
	orders map[string]int // lines of each
	named  int
}

// set makes an order have so many lines; -1 deletes it.
func (c *clerk) set(name string, lines int) (es []entry) {
	had, exists := c.orders[name]
	for i := range max(had, lines) {
		es = append(es, entry{"lines", i >= lines, order{ID: fmt.Sprintf("%s/%d", name, i), Of: name}})
	}
	if lines < 0 {
		delete(c.orders, name)
		return append(es, entry{"orders", true, order{ID: name}})
	}
	if !exists {
		c.named++
	}
	c.orders[name] = lines
	return append(es, entry{"orders", false, order{ID: name, Of: name, Lines: lines}})
}

// work is one transaction: it creates an order, or changes or deletes one.
func (c *clerk) work() {
	c.t.Helper()
	names := slices.Sorted(maps.Keys(c.orders))
	var es []entry
	switch op := c.rng.IntN(12); {
	case len(names) == 0 || op < 6:
		es = c.set(fmt.Sprintf("order-%d-%d", c.id, c.named), 1+c.rng.IntN(5))
	case op == 6:
		es = c.set(names[c.rng.IntN(len(names))], -1)
	default:
		es = c.set(names[c.rng.IntN(len(names))], c.rng.IntN(6))
	}
	w := httptest.NewRecorder()
	c.server.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(must(json.Marshal(es)))))
	if w.Code != http.StatusOK {
		c.t.Errorf("write: %d %s", w.Code, w.Body)
	}
}

// each has all clerks do so many transactions. They rest, so that a slow machine has a share
// left for those who follow them.
func each(clerks []*clerk, transactions int) {
	var wg sync.WaitGroup
	for _, c := range clerks {
		wg.Go(func() {
			for range transactions {
				sent := time.Now()
				c.work()
				pass(max(10*time.Millisecond, writersRest*time.Since(sent)))
			}
		})
	}
	wg.Wait()
}
