package memetcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/testing/protocmp"

	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/integration/memetcd"
)

func TestMain(m *testing.M) { os.Exit(localetcd.Main(m)) }

const operations, bytes = 8, 4 << 10

// TestTwins sends the same requests, by a seed, to an etcd and to the one in memory, and compares
// the answers, errors and the events that watches have seen.
func TestTwins(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a hang fails here, and not a slow machine
	defer cancel()
	real, err := clientv3.New(clientv3.Config{
		Endpoints: []string{localetcd.Start(t, localetcd.Options{Operations: operations, Bytes: bytes})}, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close() //nolint:errcheck // nothing is in it
	twins := []*clientv3.Client{real, memetcd.New(memetcd.Options{Operations: operations, Bytes: bytes}).Client(ctx)}
	revision := int64(1)
	compacted := int64(0)
	errs := map[string]int{}
	for i := range 1200 {
		op := anyOp(rng, revision, compacted, 0)
		var said [2]any
		for j, c := range twins {
			resp, err := c.Do(ctx, op)
			said[j] = answer(resp, err)
			if err != nil {
				errs[err.Error()]++
			} else if txn := resp.Txn(); j == 0 && txn != nil {
				revision = txn.Header.Revision
			}
		}
		if diff := cmp.Diff(said[0], said[1], protocmp.Transform()); diff != "" {
			t.Fatalf("request %d, %s: (-etcd +memory)\n%s", i, show(op), diff)
		}
		if rng.IntN(200) == 0 {
			at := revision - int64(rng.IntN(int(min(revision, 50))))
			var said [2]string
			for j, c := range twins {
				_, err := c.Compact(ctx, at)
				said[j] = fmt.Sprint(err)
			}
			if said[0] != said[1] {
				t.Fatalf("compact %d: etcd says %s, memory %s", at, said[0], said[1])
			}
			compacted = max(compacted, at) // it may have been further already
		}
	}
	for _, want := range []error{rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey, rpctypes.ErrCompacted, rpctypes.ErrFutureRev, rpctypes.ErrRequestTooLarge} {
		if errs[want.Error()] == 0 {
			t.Errorf("no request was refused by %v", want)
		}
	}
	for range 30 {
		from := max(1, compacted+int64(rng.IntN(int(revision-compacted+1))))
		key, opts := anyRange(rng)
		var seen [2][]string
		for j, c := range twins {
			seen[j] = watched(ctx, t, c, key, append(opts, clientv3.WithRev(from)))
		}
		if diff := cmp.Diff(seen[0], seen[1]); diff != "" {
			t.Fatalf("watch from %d: (-etcd +memory)\n%s", from, diff)
		}
	}
	for _, c := range twins {
		resp := <-c.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithRev(max(1, compacted-1)))
		if compacted > 1 && (resp.CompactRevision != compacted || !errors.Is(resp.Err(), rpctypes.ErrCompacted)) {
			t.Errorf("a watch of what is compacted: %+v", resp)
		}
	}
}

// TestWatchOfTheFuture: a watch that begins after the newest revision is told of no progress until
// there is something new, in etcd and in the one in memory.
func TestWatchOfTheFuture(t *testing.T) {
	t.Run("etcd", func(t *testing.T) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{localetcd.Start(t, localetcd.Options{})}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // nothing is in it
		watchTheFuture(t, c, func(events clientv3.WatchChan) { <-events }, clientv3.WithCreatedNotify())
	})
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := memetcd.New(memetcd.Options{}).Client(t.Context())
			watchTheFuture(t, c, func(clientv3.WatchChan) {})
		})
	})
}

// watchTheFuture asks for progress once before there is any, when the watch is there.
func watchTheFuture(t *testing.T, c *clientv3.Client, there func(clientv3.WatchChan), opts ...clientv3.OpOption) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	put := func(key string) int64 {
		resp, err := c.Put(ctx, key, "")
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Revision
	}
	events := c.Watch(ctx, "k", append(opts, clientv3.WithRev(put("before")+1))...)
	there(events)
	if err := c.RequestProgress(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case resp := <-events:
		t.Errorf("it is told %+v", resp)
	case <-time.After(300 * time.Millisecond):
	}
	after := put("after")
	if seen, want := told(ctx, t, c, events), []string{fmt.Sprint("all until ", after)}; !slices.Equal(seen, want) {
		t.Errorf("it is told %v, want %v", seen, want)
	}
}

// watched is what a watch tells until it has been told that it is at the end.
func watched(ctx context.Context, t *testing.T, c *clientv3.Client, key string, opts []clientv3.OpOption) (seen []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return told(ctx, t, c, c.Watch(ctx, key, opts...))
}

func told(ctx context.Context, t *testing.T, c *clientv3.Client, events clientv3.WatchChan) (seen []string) {
	t.Helper()
	for {
		if err := c.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case resp := <-events:
			if err := resp.Err(); err != nil {
				t.Fatal(err)
			}
			if resp.IsProgressNotify() {
				return append(seen, fmt.Sprint("all until ", resp.Header.Revision))
			}
			for _, e := range resp.Events {
				seen = append(seen, fmt.Sprintf("%s %q %q %d %d %d", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.CreateRevision, e.Kv.ModRevision, e.Kv.Version))
			}
		case <-time.After(100 * time.Millisecond): // until then the request came too early
		}
	}
}

func anyKey(rng *rand.Rand) string { return fmt.Sprintf("k%02d", rng.IntN(20)) }

func anyRange(rng *rand.Rand) (string, []clientv3.OpOption) {
	switch rng.IntN(4) {
	case 0:
		return "k", []clientv3.OpOption{clientv3.WithPrefix()}
	case 1:
		return anyKey(rng), []clientv3.OpOption{clientv3.WithRange("k19x")}
	case 2:
		return anyKey(rng), []clientv3.OpOption{clientv3.WithFromKey()}
	default:
		return anyKey(rng), nil
	}
}

func anyOp(rng *rand.Rand, revision, compacted int64, depth int) clientv3.Op {
	key, opts := anyRange(rng)
	n := rng.IntN(10)
	if depth == 0 && n < 6 {
		var lists [2][]clientv3.Op
		var cmps []clientv3.Cmp
		for range rng.IntN(3) {
			cmps = append(cmps, anyCmp(rng, revision))
		}
		for i := range lists {
			for range rng.IntN(operations + 2 - rng.IntN(operations)) {
				lists[i] = append(lists[i], anyOp(rng, revision, compacted, 1))
			}
		}
		return clientv3.OpTxn(cmps, lists[0], lists[1])
	}
	switch {
	case n < 8:
		size := rng.IntN(20)
		if rng.IntN(40) == 0 {
			size = bytes + rng.IntN(10)
		}
		return clientv3.OpPut(anyKey(rng), fmt.Sprintf("%*d", size, rng.IntN(9)))
	case n < 9:
		// Whether one without an end meets a put of the same transaction, etcd does not see.
		if len(clientv3.OpGet(key, opts...).RangeBytes()) == 1 {
			opts = nil
		}
		return clientv3.OpDelete(key, opts...)
	default:
		if rng.IntN(3) == 0 {
			opts = append(opts, clientv3.WithRev([]int64{compacted - 1, revision + 1, compacted + rng.Int64N(revision-compacted+1)}[rng.IntN(3)]))
		}
		if rng.IntN(3) == 0 {
			opts = append(opts, clientv3.WithLimit(int64(rng.IntN(4))))
		}
		switch rng.IntN(4) {
		case 0:
			opts = append(opts, clientv3.WithKeysOnly())
		case 1:
			opts = append(opts, clientv3.WithCountOnly())
		}
		return clientv3.OpGet(key, opts...)
	}
}

func anyCmp(rng *rand.Rand, revision int64) clientv3.Cmp {
	is := []string{"=", "!=", ">", "<"}[rng.IntN(4)]
	key := anyKey(rng)
	var c clientv3.Cmp
	switch rng.IntN(4) {
	case 0:
		c = clientv3.Compare(clientv3.Value(key), is, fmt.Sprint(rng.IntN(9)))
	case 1:
		c = clientv3.Compare(clientv3.ModRevision(key), is, rng.Int64N(revision+1))
	case 2:
		c = clientv3.Compare(clientv3.CreateRevision(key), is, int64(0))
	default:
		c = clientv3.Compare(clientv3.Version(key), is, int64(rng.IntN(3)))
	}
	if rng.IntN(5) == 0 {
		c = c.WithPrefix()
	}
	return c
}

// answer is what there is to compare of one.
func answer(resp clientv3.OpResponse, err error) any {
	if err != nil {
		return err.Error()
	}
	switch {
	case resp.Txn() != nil:
		r := resp.Txn()
		out := &pb.TxnResponse{Header: plain(r.Header), Succeeded: r.Succeeded, Responses: r.Responses}
		for _, op := range out.Responses {
			if g := op.GetResponseRange(); g != nil {
				g.Header = nil
			}
			if p := op.GetResponsePut(); p != nil {
				p.Header = nil
			}
			if d := op.GetResponseDeleteRange(); d != nil {
				d.Header = nil
			}
		}
		return out
	case resp.Get() != nil:
		r := resp.Get()
		return &pb.RangeResponse{Header: plain(r.Header), Kvs: r.Kvs, More: r.More, Count: r.Count}
	case resp.Put() != nil:
		return plain(resp.Put().Header)
	default:
		return []any{plain(resp.Del().Header), resp.Del().Deleted}
	}
}

func plain(h *pb.ResponseHeader) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: h.Revision} }

func show(op clientv3.Op) string {
	if op.IsTxn() {
		cmps, then, els := op.Txn()
		text := fmt.Sprintf("if %v then", cmps)
		for _, o := range then {
			text += " " + show(o)
		}
		text += " else"
		for _, o := range els {
			text += " " + show(o)
		}
		return text
	}
	return fmt.Sprintf("%t/%t %s %q %q@%d", op.IsPut(), op.IsDelete(), op.KeyBytes(), op.RangeBytes(), op.ValueBytes(), op.Rev())
}
