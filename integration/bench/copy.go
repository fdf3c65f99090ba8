package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"golang.org/x/sync/errgroup"

	"dbcontroller/record"
)

// copyFigures are documents a second. Ratio is the engine's speed to the raw limit's of
// the same run, the median over the runs.
type copyFigures struct {
	Records   int     `json:"records"`
	Engine    float64 `json:"engine_docs_per_second"`
	Raw       float64 `json:"raw_docs_per_second"`
	Workers   int     `json:"raw_workers"` // the best number
	Ratio     float64 `json:"ratio"`
	Ready     float64 `json:"ready_seconds"` // from the beginning to ready: copied, compared, the rollback proved
	PerCopy   float64 `json:"ready_to_copy"` // that as a multiple of the copy's time, the median over the runs
	PeakRSSMB float64 `json:"peak_rss_mb"`   // of this process, which is engine and raw reader
}

func (c *copyFigures) String() string {
	return fmt.Sprintf("copy of %d records: engine %.0f docs/s, raw limit %.0f docs/s (%d workers), ratio %.2f; ready to switch after %.1f s, %.2f times the copy; peak memory of the process %.0f MB",
		c.Records, c.Engine, c.Raw, c.Workers, c.Ratio, c.Ready, c.PerCopy, c.PeakRSSMB)
}

func measureCopy(ctx context.Context, uri string, o settings) (*copyFigures, error) {
	var engine, raw, ratio, ready, perCopy []float64
	out := &copyFigures{Records: o.records}
	best := map[int]float64{}
	for i := range o.runs {
		e, rdy, rs, err := copyOnce(ctx, uri, o)
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		var r float64
		for w, speed := range rs {
			r = max(r, speed)
			best[w] += speed
		}
		times := rdy * e / float64(o.records)
		fmt.Fprintf(os.Stderr, "run %d: engine %.0f docs/s, raw %.0f docs/s, ratio %.2f, ready after %.1f s, %.2f times the copy\n", i+1, e, r, e/r, rdy, times)
		engine, raw, ratio = append(engine, e), append(raw, r), append(ratio, e/r)
		ready, perCopy = append(ready, rdy), append(perCopy, times)
	}
	out.Engine, out.Raw, out.Ratio, out.Ready, out.PerCopy = median(engine), median(raw), median(ratio), median(ready), median(perCopy)
	for w, sum := range best {
		if out.Workers == 0 || sum > best[out.Workers] {
			out.Workers = w
		}
	}
	out.PeakRSSMB = peakRSS()
	return out, nil
}

// copyOnce copies the same records by the controller and, when that is gone, by the raw reader
// with some numbers of workers.
func copyOnce(ctx context.Context, uri string, o settings) (engine, ready float64, raw map[int]float64, err error) {
	s, err := open(ctx, uri, o)
	if err != nil {
		return 0, 0, nil, err
	}
	defer s.close(context.WithoutCancel(ctx)) //nolint:errcheck // scratch databases
	if err := s.fill(ctx, o.records, o.size); err != nil {
		return 0, 0, nil, err
	}
	if engine, ready, err = s.engineOnce(ctx, o.records); err != nil {
		return 0, 0, nil, err
	}
	if err := s.halt(); err != nil {
		return 0, 0, nil, err
	}
	raw = map[int]float64{}
	for _, w := range []int{1, 2, 4, 8} {
		if raw[w], err = s.rawOnce(ctx, o.records, w); err != nil {
			return 0, 0, nil, err
		}
	}
	return engine, ready, raw, nil
}

// engineOnce is the speed of the controller's copy, from the beginning of the upgrade to the
// last record, and after how many seconds it is ready to switch.
func (s *system) engineOnce(ctx context.Context, records int) (speed, ready float64, err error) {
	copied := s.loads.expect(records)
	begun := time.Now()
	if err := s.begin(ctx); err != nil {
		return 0, 0, err
	}
	select {
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-s.done:
		return 0, 0, s.ended()
	case <-copied:
	}
	took := time.Since(begun)
	if err := s.awaitReady(ctx); err != nil {
		return 0, 0, err
	}
	ready = time.Since(begun).Seconds()
	n, err := s.collection("v2").EstimatedDocumentCount(ctx)
	if err != nil {
		return 0, 0, err
	}
	if int(n) != records {
		return 0, 0, fmt.Errorf("%d of %d records were copied", n, records)
	}
	return float64(records) / took.Seconds(), ready, nil
}

// rawOnce copies with nothing but a reader that splices the batches it gets into insert
// commands.
func (s *system) rawOnce(ctx context.Context, records, workers int) (float64, error) {
	from := s.collection("v1")
	target := s.client.Database(scratch("raw"))
	defer target.Drop(context.WithoutCancel(ctx)) //nolint:errcheck // a scratch database
	ranges, err := s.old.Split(ctx, s.token(), workers)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range ranges {
		g.Go(func() error { return rawRange(ctx, from.Database(), target, from.Name(), r) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	n, err := target.Collection(from.Name()).EstimatedDocumentCount(context.WithoutCancel(ctx))
	if err != nil {
		return 0, err
	}
	if int(n) != records {
		return 0, fmt.Errorf("the raw copy has %d of %d records", n, records)
	}
	return float64(records) / took.Seconds(), nil
}

func rawRange(ctx context.Context, from, to *mongo.Database, name string, r record.Range) error {
	session, err := from.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	bound := func(c record.Cursor) bson.D {
		return bson.D{{Key: "_id", Value: bson.RawValue{Type: bson.Type(c[0]), Value: c[1:]}}}
	}
	const batch = 2000
	find := bson.D{{Key: "find", Value: name}, {Key: "hint", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "batchSize", Value: batch}}
	if len(r.From) > 0 {
		find = append(find, bson.E{Key: "min", Value: bound(r.From)})
	}
	if len(r.To) > 0 {
		find = append(find, bson.E{Key: "max", Value: bound(r.To)})
	}
	reply, err := from.RunCommand(ctx, find).Raw()
	for which := "firstBatch"; ; which = "nextBatch" {
		if err != nil {
			return err
		}
		docs := reply.Lookup("cursor", which).Array()
		if len(docs) > 5 {
			insert := bsoncore.NewDocumentBuilder().AppendString("insert", name).AppendBoolean("ordered", false).
				AppendArray("documents", bsoncore.Array(docs)).
				AppendDocument("writeConcern", bsoncore.NewDocumentBuilder().AppendString("w", "majority").Build()).Build()
			if err := to.RunCommand(context.WithoutCancel(ctx), bson.Raw(insert)).Err(); err != nil {
				return err
			}
		}
		id := reply.Lookup("cursor", "id").Int64()
		if id == 0 {
			return nil
		}
		reply, err = from.RunCommand(ctx, bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: name}, {Key: "batchSize", Value: batch}}).Raw()
	}
}

func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// peakRSS is this process's peak memory in MB, 0 where the system does not tell.
func peakRSS() float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024
		}
	}
	return 0
}
