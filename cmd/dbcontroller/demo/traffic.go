package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"
)

// traffic is all that clients do, and what they were told.
type traffic struct {
	run      *run
	tally    *tally
	lrps     *model
	packages *model
	ops      atomic.Int64
	hot      []bson.Raw
	shapes   shapes

	bbs            *bbsClient
	app            *application
	bbsWriters     []*bbsWriter
	packageWriters []*packageWriter
}

func newTraffic(r *run) *traffic {
	return &traffic{run: r, tally: newTally(r.note), lrps: newModel("process"), packages: newModel("package")}
}

// processes is how many processes are there before traffic: a tenth of the records.
func (t *traffic) processes() int { return max(200, t.run.Records/10) }

// rng is a source of randomness for one client, of the seed.
func (t *traffic) rng(client int) *rand.Rand {
	return rand.New(rand.NewPCG(t.run.Seed, uint64(client)))
}

// prepare makes the clients, and the service's data through the v1 API.
func (t *traffic) prepare(ctx context.Context) error {
	servers := make([]string, 0, len(t.run.servers))
	for _, s := range t.run.servers {
		servers = append(servers, s.api)
	}
	t.bbs = newBBSClient(t.run.http, servers)
	n := t.run.Writers
	for i := range n {
		t.bbsWriters = append(t.bbsWriters, &bbsWriter{
			client: t.bbs, model: t.lrps, tally: t.tally, ops: &t.ops, rng: t.rng(i), number: i,
		})
	}
	g, gctx := errgroup.WithContext(ctx)
	for i, w := range t.bbsWriters {
		g.Go(func() error { return w.put(gctx, (t.processes()+n-1-i)/n) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("fill the service's database: %w", err)
	}
	var err error
	if t.app, err = register(ctx, t.run.apis(), t.run.mongo); err != nil {
		return err
	}
	for i := range n {
		w := &packageWriter{
			app: t.app, shapes: t.shapes, model: t.packages, tally: t.tally, ops: &t.ops, rng: t.rng(n + i), number: i,
		}
		for at := i; at < len(t.hot); at += n {
			w.live = append(w.live, t.hot[at])
		}
		t.packageWriters = append(t.packageWriters, w)
	}
	return nil
}

// drive runs all clients until stop is closed. Half of the rate is for the service, half
// for the application; there are as many reads as writes.
func (t *traffic) drive(ctx context.Context, g *errgroup.Group, stop <-chan struct{}) {
	n, half := t.run.Writers, float64(t.run.Rate)/2
	clients(ctx, g, stop, n, half, func(i int, due time.Time) { t.bbsWriters[i].do(ctx, due) })
	clients(ctx, g, stop, n, half, func(i int, due time.Time) { t.packageWriters[i].do(ctx, due) })
	readers := make([]*reader, 2*n)
	for i := range readers {
		readers[i] = &reader{t: t, rng: t.rng(2*n + i)}
	}
	clients(ctx, g, stop, n, half, func(i int, _ time.Time) { readers[i].process(ctx) })
	clients(ctx, g, stop, n, half, func(i int, _ time.Time) { readers[n+i].document(ctx) })
}

// reader is one client that reads. It is used by one goroutine.
type reader struct {
	t    *traffic
	rng  *rand.Rand
	keys map[*model][]string // fetched now and then: there are many
	used map[*model]int
}

// key picks a key that is or was there.
func (r *reader) key(m *model) string {
	if r.keys == nil {
		r.keys, r.used = map[*model][]string{}, map[*model]int{}
	}
	const fresh = 100
	if r.used[m]%fresh == 0 {
		r.keys[m] = m.some(r.rng, fresh)
	}
	r.used[m]++
	return r.keys[m][r.rng.IntN(len(r.keys[m]))]
}

// process reads one process, half of the time through each API.
func (r *reader) process(ctx context.Context) {
	r.t.bbs.read(ctx, r.t.lrps, r.t.tally, r.key(r.t.lrps), r.rng.IntN(2) == 0)
}

// document reads one document of the application's collection.
func (r *reader) document(ctx context.Context) {
	r.t.app.read(ctx, r.t.packages, r.t.tally, r.key(r.t.packages))
}
