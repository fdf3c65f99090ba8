package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/deployment"
	"dbcontroller.dev/internal/inprocess"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/mongostore"
	"dbcontroller.dev/vrunner"
)

// serving are servers of a service in this process, which replace records of the managed kind, and
// what their clients were told. It is what a service in Go embeds, without its port.
type serving struct {
	clients []*http.Client
	next    atomic.Uint32
	close   func(ctx context.Context)

	mu     sync.Mutex
	to     string    // which version is expected to answer next
	first  time.Time // when it did; zero: not yet
	writes []timed
}

// timed is a write that was acknowledged.
type timed struct{ due, acked time.Time }

// answeredBy is the header that names the version which answered.
const answeredBy = "Version"

// serve starts servers, and returns when they serve.
func (s *system) serve(ctx context.Context, servers int) (_ *serving, err error) {
	sv := &serving{}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	var opened []*mongostore.Namespace
	sv.close = func(ctx context.Context) {
		stop()
		_ = g.Wait() // they end with life
		for _, ns := range opened {
			_ = ns.Close(context.WithoutCancel(ctx)) // scratch
		}
	}
	defer func() {
		if err != nil {
			sv.close(ctx)
		}
	}()
	for i := range servers {
		databases := map[string]vrunner.Database{}
		for version, uri := range map[string][2]string{"v1": {s.from.server.URI(), s.database}, "v2": {s.to.server.URI(), s.target}} {
			ns, err := mongostore.Open(ctx, mongostore.Config{URI: uri[0], Database: uri[1], AppName: "bench-server"})
			if err != nil {
				return nil, err
			}
			opened = append(opened, ns)
			databases[version] = vrunner.Database{Client: ns.Client()}
		}
		store := deployment.New(s.coord, s.store.Name(), deployment.Config{})
		presence := deployment.NewPresence(store)
		runner := vrunner.New(struct {
			*deployment.Store
			*deployment.Presence
		}{store, presence}, databases, replacing, vrunner.Config{ID: fmt.Sprintf("server-%d", i+1)}, warnings())
		g.Go(func() error { return presence.Run(life) })
		g.Go(func() error { return runner.Run(life) })
		if err := s.poll(ctx, 5*time.Millisecond, func() (bool, error) { return runner.Ready() == nil, nil }); err != nil {
			return nil, fmt.Errorf("start a server: %w", err)
		}
		sv.clients = append(sv.clients, inprocess.Client(runner))
	}
	return sv, s.poll(ctx, 5*time.Millisecond, func() (bool, error) {
		there, err := s.store.Servers(ctx)
		return len(there) == servers, err
	})
}

// replacing is the stack of a version: the path is a record's name, and the body what it becomes.
func replacing(version string, views map[string]*vrunner.View) vrunner.Stack {
	return vrunner.Stack{
		Write: func(*http.Request) bool { return true },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(answeredBy, version)
			doc, err := io.ReadAll(r.Body)
			if err == nil {
				err = views[version].Write(r.Context(), []record.Mutation{{Kind: kindName, Key: record.StringKey(r.URL.Path[1:]), Doc: doc}})
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}),
	}
}

// update replaces a random record through one server after the other.
func (sv *serving) update(records, size int) func(ctx context.Context, rng *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		i := rng.IntN(records)
		doc, err := bson.Marshal(document(i, size))
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://server/"+key(i), bytes.NewReader(doc))
		if err != nil {
			return err
		}
		res, err := sv.clients[int(sv.next.Add(1))%len(sv.clients)].Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close() //nolint:errcheck // it is in memory
		said, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("write: %s: %s", res.Status, said)
		}
		sv.answered(res.Header.Get(answeredBy))
		return nil
	}
}

func (sv *serving) answered(version string) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if version == sv.to && sv.first.IsZero() {
		sv.first = time.Now()
	}
}

// timed notes a write.
func (sv *serving) timed(due, acked time.Time) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.writes = append(sv.writes, timed{due, acked})
}

// expect begins a switch: what was noted before is forgotten.
func (sv *serving) expect(to string) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.to, sv.first, sv.writes = to, time.Time{}, nil
}

// underWay is how long those writes took that were under way at any moment between the beginning of a switch
// and the first acknowledgement of the new version: due before its end, and acknowledged after
// its beginning.
func (sv *serving) underWay(begun time.Time) (millis []float64, err error) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.first.IsZero() {
		return nil, errors.New("no write was made on the new version")
	}
	for _, w := range sv.writes {
		if !w.due.After(sv.first) && !w.acked.Before(begun) {
			millis = append(millis, float64(w.acked.Sub(w.due).Microseconds())/1000)
		}
	}
	return millis, nil
}
