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

	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// serving holds servers of a service in this process, which replace records of the managed kind,
// and the results of their clients. They are set up as in a Go service, but without a port.
type serving struct {
	clients []*http.Client
	next    atomic.Uint32
	close   func(ctx context.Context)

	mu     sync.Mutex
	to     string    // version expected to answer next
	first  time.Time // time of its first answer; zero: none yet
	writes []timed
}

// timed is an acknowledged write.
type timed struct{ due, acked time.Time }

// answeredBy is the header with the version that answered.
const answeredBy = "Version"

// serve starts servers, and returns once they serve.
func (s *system) serve(ctx context.Context, servers int) (_ *serving, err error) {
	sv := &serving{}
	// The servers live until close, beyond the context of the start.
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
		// Presence registers the server, so that the controllers know which acknowledgements to
		// wait for.
		presence := deployment.NewPresence(store)
		runner := vrunner.New(struct {
			*deployment.Store
			*deployment.Presence
		}{store, presence}, databases, replacing, vrunner.Config{ID: fmt.Sprintf("server-%d", i+1)}, zaplog.New(warnings()))
		g.Go(func() error { return presence.Run(life) })
		g.Go(func() error { return runner.Run(life) })
		if err := s.poll(ctx, 5*time.Millisecond, func() (bool, error) { return runner.Ready() == nil, nil }); err != nil {
			return nil, fmt.Errorf("start a server: %w", err)
		}
		// No port: the network would add its own latency to the pause.
		sv.clients = append(sv.clients, inprocess.Client(runner))
	}
	// A switch must wait for both servers, so both must be registered before it.
	return sv, s.poll(ctx, 5*time.Millisecond, func() (bool, error) {
		there, err := s.store.Servers(ctx)
		return len(there) == servers, err
	})
}

// replacing returns the stack of a version. The path of a request is a record's name, the body its
// new content.
func replacing(version string, views map[string]*vrunner.View) vrunner.Stack {
	return vrunner.Stack{
		Write: func(*http.Request) bool { return true },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(answeredBy, version)
			// The body is the new document, so that the handler itself costs almost nothing.
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

// update returns a function that replaces a random record, through the servers in turn.
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
		// In turn, so that each switch must reach both servers.
		res, err := sv.clients[int(sv.next.Add(1))%len(sv.clients)].Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close() //nolint:errcheck // the body is in memory
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

// timed records a write.
func (sv *serving) timed(due, acked time.Time) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.writes = append(sv.writes, timed{due, acked})
}

func (sv *serving) expect(to string) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.to, sv.first, sv.writes = to, time.Time{}, nil
}

func (sv *serving) underWay(w window) ([]float64, error) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.first.IsZero() {
		return nil, errors.New("no write was made on the new version")
	}
	return between(sv.writes, w.begun, sv.first), nil
}

// between returns the durations of the writes under way at any moment between two times. They are
// due before the end, and acknowledged after the beginning.
func between(writes []timed, begun, ended time.Time) (millis []float64) {
	for _, w := range writes {
		// A write outside of this window did not feel the switch.
		if !w.due.After(ended) && !w.acked.Before(begun) {
			millis = append(millis, float64(w.acked.Sub(w.due).Microseconds())/1000)
		}
	}
	return millis
}
