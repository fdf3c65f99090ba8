package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/proxy/message"
)

// The ways to the same data. mongos has a cluster of its own, with one shard.
const (
	direct = iota
	byRelay
	byProxy
	byMongos
	wayCount
)

const (
	proxyClients = 32
	idleClients  = 5000
)

// proxySpeed compares a proxy with a direct connection and with mongos.
func proxySpeed(ctx context.Context, b *bench, round int) error {
	sharded, err := start(ctx, localmongo.Options{Shards: 1, CacheGB: cacheGB, Own: true, Dir: os.TempDir()})
	if err != nil {
		return err
	}
	defer sharded.stop()
	d := b.small("proxied", b.others)
	if err := b.fill(ctx, d); err != nil {
		return err
	}
	if err := d.insert(ctx, sharded.client.Database(d.name)); err != nil {
		return err
	}
	s, err := b.deploy(ctx, fixed(b.from, b.to, d.name))
	if err != nil {
		return err
	}
	defer s.close(ctx)
	// The second one is for the idle connections alone. Memory that other work has left would hide theirs.
	p, err := s.proxies(ctx, 2)
	if err != nil {
		return err
	}
	defer p.close()
	relay, relayed, err := b.startRelay(ctx, b.from, 0)
	if err != nil {
		return err
	}
	defer relay.Stop(grace / 3)
	var cols [wayCount]*mongo.Collection
	for way, uri := range [wayCount]string{b.from.server.URI(), relayed, "mongodb://" + p.addresses[0] + "/", sharded.server.URI()} {
		client, err := mongo.Connect(options.Client().ApplyURI(uri))
		if err != nil {
			return err
		}
		defer disconnect(ctx, client)
		cols[way] = client.Database(d.name).Collection(kindName)
	}
	m := proxyMeasurement{bench: b, cols: cols, records: b.others}
	for _, measure := range []func(context.Context, int) error{m.alone, m.together, m.scans} {
		if err := measure(ctx, round); err != nil {
			return err
		}
	}
	return m.idle(ctx, p.addresses[1], p.processes[1].Pid())
}

type proxyMeasurement struct {
	bench   *bench
	cols    [wayCount]*mongo.Collection
	records int
}

func (m *proxyMeasurement) read(ctx context.Context, way, i int) error {
	return m.cols[way].FindOne(ctx, bson.D{{Key: "_id", Value: key(i)}}).Err()
}

func (m *proxyMeasurement) update(ctx context.Context, way, i int) error {
	res, err := m.cols[way].UpdateOne(ctx, bson.D{{Key: "_id", Value: key(i)}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "at", Value: 1}}}})
	if err == nil && res.ModifiedCount != 1 {
		err = fmt.Errorf("%d records were changed, want 1", res.ModifiedCount)
	}
	return err
}

// alone measures one client at a time.
func (m *proxyMeasurement) alone(ctx context.Context, _ int) error {
	b := m.bench
	for _, op := range []struct {
		name, what string
		do         func(ctx context.Context, way, i int) error
	}{{"read", "a find by key", m.read}, {"write", "a $inc by key, w:majority", m.update}} {
		var took [wayCount][]float64
		rng := rand.New(rand.NewPCG(1, 1))
		for range b.calls {
			i := rng.IntN(m.records)
			// In random order, so that none has an advantage.
			for _, way := range rng.Perm(wayCount) {
				begun := time.Now()
				if err := op.do(ctx, way, i); err != nil {
					return err
				}
				took[way] = append(took[way], float64(time.Since(begun).Nanoseconds())/1e6)
			}
		}
		var p50 [wayCount]float64
		for way := range took {
			p50[way] = percentile(took[way], 50)
		}
		how := fmt.Sprintf("%s of %d records of %d B, %d times each, in turn directly, through a relay that only copies bytes, through a proxy and through mongos; last run %.3f, %.3f, %.3f and %.3f ms.",
			op.what, m.records, b.size, b.calls, p50[direct], p50[byRelay], p50[byProxy], p50[byMongos])
		for way, row := range map[int]string{byRelay: ".relay", byProxy: ".p50", byMongos: ".mongos"} {
			b.figure("proxy."+op.name+row, 100*(p50[way]/p50[direct]-1), "%s", how)
		}
		b.note("proxy."+op.name+".mongos", "mongos has a cluster of one shard.")
	}
	return nil
}

// together measures the operations a second of many clients.
func (m *proxyMeasurement) together(ctx context.Context, round int) error {
	b := m.bench
	least := 0.0
	for _, op := range []struct {
		name string
		do   func(ctx context.Context, way, i int) error
	}{{"read", m.read}, {"write", m.update}} {
		var done [wayCount]int64
		const turns, turn = 3, 500 * time.Millisecond
		// Short turns: another load of the machine then meets all ways alike.
		for n := range turns * wayCount {
			way := (n + round) % wayCount
			count, err := m.rush(ctx, turn, func(ctx context.Context, i int) error { return op.do(ctx, way, i) })
			if err != nil {
				return err
			}
			done[way] += count
		}
		rate := func(way int) float64 { return float64(done[way]) / (turns * turn).Seconds() }
		how := fmt.Sprintf("%d clients of one driver as fast as they can, %d turns of %v each; last run %.0f operations/s directly, %.0f through a relay, %.0f through a proxy and %.0f through mongos. All share this machine's processors.",
			proxyClients, turns, turn, rate(direct), rate(byRelay), rate(byProxy), rate(byMongos))
		b.figure("proxy.clients."+op.name, rate(byProxy)/rate(direct), "%s", how)
		b.figure("proxy.clients."+op.name+".relay", rate(byRelay)/rate(direct), "%s", how)
		if x := rate(byProxy) / rate(byMongos); least == 0 || x < least {
			least = x
		}
	}
	b.figure("proxy.clients.mongos", least, "The runs of proxy.clients.read and proxy.clients.write.")
	return nil
}

// rush makes many clients call do for a time. It returns the number of calls that ended within it.
func (m *proxyMeasurement) rush(ctx context.Context, d time.Duration, do func(ctx context.Context, i int) error) (int64, error) {
	var done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	end := time.Now().Add(d)
	for c := range proxyClients {
		g.Go(func() error {
			rng := rand.New(rand.NewPCG(2, uint64(c)))
			for {
				if err := do(ctx, rng.IntN(m.records)); err != nil {
					return err
				}
				if time.Now().After(end) {
					return nil
				}
				done.Add(1)
			}
		})
	}
	err := g.Wait()
	return done.Load(), err
}

// scans reads the whole collection.
func (m *proxyMeasurement) scans(ctx context.Context, round int) error {
	b := m.bench
	var took [wayCount]time.Duration
	const turns = 2
	for n := range turns * wayCount {
		way := (n + round) % wayCount
		begun := time.Now()
		cursor, err := m.cols[way].Find(ctx, bson.D{})
		if err != nil {
			return err
		}
		seen := 0
		for cursor.Next(ctx) {
			seen++
		}
		if err := cursor.Close(ctx); err != nil {
			return err
		}
		if err := cursor.Err(); err != nil {
			return err
		}
		if seen != m.records {
			return fmt.Errorf("a scan found %d of %d records", seen, m.records)
		}
		took[way] += time.Since(begun)
	}
	how := fmt.Sprintf("A find of %d records of %d B with the driver's batches, %d times each; last run %.2f s directly, %.2f through a relay, %.2f through a proxy and %.2f through mongos.",
		m.records, b.size, turns, took[direct].Seconds()/turns, took[byRelay].Seconds()/turns, took[byProxy].Seconds()/turns, took[byMongos].Seconds()/turns)
	for way, row := range map[int]string{byRelay: "proxy.scan.relay", byProxy: "proxy.scan", byMongos: "proxy.scan.mongos"} {
		b.figure(row, took[direct].Seconds()/took[way].Seconds(), "%s", how)
	}
	return nil
}

// idle measures the memory that idle connections cost.
func (m *proxyMeasurement) idle(ctx context.Context, address string, pid int) error {
	before := resident(pid)
	var connections []net.Conn
	defer func() {
		for _, c := range connections {
			_ = c.Close() // nothing was left to say
		}
	}()
	body, err := bson.Marshal(bson.D{{Key: "hello", Value: 1}, {Key: "$db", Value: "admin"}})
	if err != nil {
		return err
	}
	hello := message.Message{ID: 1, Body: body}.Append(nil)
	for range idleClients {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		connections = append(connections, c)
		if _, err := c.Write(hello); err != nil {
			return err
		}
		_, rest, err := message.ReadHeader(c, 1<<20)
		if err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, c, int64(rest)); err != nil {
			return err
		}
	}
	after := resident(pid)
	m.bench.figure("proxy.idle", after-before, "Growth of the resident memory of the proxy's process by %d connections that have said hello; from %.0f to %.0f MB.", idleClients, before, after)
	return nil
}
