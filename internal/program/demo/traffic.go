package app

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/integration/workload"
)

// traffic is the work of all clients and the record of its results.
type traffic struct {
	run      *run
	tally    *tally
	lrps     *ledger
	secrets  *ledger
	packages *ledger
	ops      atomic.Int64
	hot      []bson.Raw
	shapes   shapes

	service        *service
	bbs            *bbsClient
	cells          *cells
	secretAPI      *secretsClient
	app            *application
	bbsWriters     []*bbsWriter
	secretWriters  []*secretWriter
	packageWriters []*packageWriter
}

func newTraffic(r *run) *traffic {
	return &traffic{
		run: r, tally: newTally(r.note),
		lrps: workload.New[state]("process"), secrets: workload.New[state]("secret"), packages: workload.New[state]("package"),
	}
}

// stored is the number of processes, and of secrets, before traffic starts: a tenth of the records,
// at least 200.
func (t *traffic) stored() int { return max(200, t.run.Records/10) }

// rng returns one client's random source, derived from the seed.
func (t *traffic) rng(client int) *rand.Rand {
	return rand.New(rand.NewPCG(t.run.Seed, uint64(client)))
}

// prepare creates the clients, and the service's data through the v1 API.
func (t *traffic) prepare(ctx context.Context) error {
	servers := addresses(t.run.servers)
	t.service = &service{servers: len(servers)}
	t.bbs, t.secretAPI = newBBSClient(t.run.http, t.service, servers), newSecretsClient(t.run.http, t.service, servers)
	n := t.run.Writers
	g, gctx := errgroup.WithContext(ctx)
	for i := range n {
		p := &bbsWriter{client: t.bbs, ledger: t.lrps, tally: t.tally, ops: &t.ops, rng: t.rng(i), number: i}
		s := &secretWriter{client: t.secretAPI, ledger: t.secrets, tally: t.tally, ops: &t.ops, rng: t.rng(4*n + i), number: i}
		t.bbsWriters, t.secretWriters = append(t.bbsWriters, p), append(t.secretWriters, s)
		// Spread the records over the writers: only its own writer may write a key.
		share := (t.stored() + n - 1 - i) / n
		g.Go(func() error { return p.put(gctx, share) })
		g.Go(func() error { return s.put(gctx, share) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("fill the service's database: %w", err)
	}
	var err error
	if t.cells, err = startCells(ctx, t.bbsWriters[0], t.run.http, servers); err != nil {
		return err
	}
	t.app = &application{packages: t.run.app.Database(t.run.layout.oldDB).Collection(packagesKind), deployed: t.run.application}
	for i := range n {
		w := &packageWriter{
			app: t.app, shapes: t.shapes, ledger: t.packages, tally: t.tally, ops: &t.ops, rng: t.rng(n + i), number: i,
		}
		// Each loaded document belongs to one writer, so that its expected state is exact.
		for at := i; at < len(t.hot); at += n {
			w.live = append(w.live, t.hot[at])
		}
		t.packageWriters = append(t.packageWriters, w)
	}
	return nil
}

// drive runs all clients until stop is closed. Half of the rate goes to the services and half to
// the application. There are as many reads as writes.
func (t *traffic) drive(ctx context.Context, g *errgroup.Group, stop <-chan struct{}) {
	n, half := t.run.Writers, float64(t.run.Rate)/2
	clients(ctx, g, stop, n, half/2, func(i int, due time.Time) { t.bbsWriters[i].do(ctx, due) })
	clients(ctx, g, stop, n, half/2, func(i int, due time.Time) { t.secretWriters[i].do(ctx, due) })
	clients(ctx, g, stop, n, half, func(i int, due time.Time) { t.packageWriters[i].do(ctx, due) })
	readers := make([]*reader, 2*n)
	for i := range readers {
		readers[i] = &reader{t: t, rng: t.rng(2*n + i)}
	}
	clients(ctx, g, stop, n, half, func(i int, _ time.Time) { readers[i].service(ctx) })
	clients(ctx, g, stop, n, half, func(i int, _ time.Time) { readers[n+i].document(ctx) })
}

// reader is one reading client. It is used by one goroutine.
type reader struct {
	t    *traffic
	rng  *rand.Rand
	keys map[*ledger][]string // refreshed now and then: the ledger is large
	used map[*ledger]int
}

// key picks a key that exists or existed.
func (r *reader) key(l *ledger) string {
	if r.keys == nil {
		r.keys, r.used = map[*ledger][]string{}, map[*ledger]int{}
	}
	const fresh = 100
	// Many readers share the lock of the ledger, so take many keys at once.
	if r.used[l]%fresh == 0 {
		r.keys[l] = l.Some(r.rng, fresh)
	}
	r.used[l]++
	return r.keys[l][r.rng.IntN(len(r.keys[l]))]
}

// service reads one process or secret, through either API with equal probability.
func (r *reader) service(ctx context.Context) {
	if r.rng.IntN(2) == 0 {
		r.t.bbs.read(ctx, r.t.lrps, r.t.tally, r.key(r.t.lrps), r.rng.IntN(2) == 0)
	} else {
		r.t.secretAPI.read(ctx, r.t.secrets, r.t.tally, r.key(r.t.secrets), r.rng.IntN(2) == 0)
	}
}

// document reads one document of the application's collection.
func (r *reader) document(ctx context.Context) {
	r.t.app.read(ctx, r.t.packages, r.t.tally, r.key(r.t.packages))
}

// schedule is an open loop: operations are due at fixed times, whether or not earlier ones have
// finished. A client that was delayed makes the operations that are overdue, and their latency
// counts from their due time.
type schedule struct {
	start  time.Time
	every  time.Duration // between two operations of one client
	offset time.Duration // of the client's first operation
}

// run calls do for each operation, with its due time, until stop is closed or ctx ends.
func (s schedule) run(ctx context.Context, stop <-chan struct{}, do func(due time.Time)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for due := s.start.Add(s.offset); ; due = due.Add(s.every) {
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		case <-timer.C:
		}
		do(due)
	}
}

// clients starts n clients that share a rate per second. Their first operations are spread evenly.
func clients(ctx context.Context, g *errgroup.Group, stop <-chan struct{}, n int, rate float64, do func(client int, due time.Time)) {
	start := time.Now()
	every := time.Duration(float64(time.Second) * float64(n) / rate)
	for i := range n {
		s := schedule{start: start, every: every, offset: every * time.Duration(i) / time.Duration(n)}
		g.Go(func() error {
			s.run(ctx, stop, func(due time.Time) { do(i, due) })
			return nil
		})
	}
}
