package overetcd_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

// BenchmarkFollow measures how late the first change is that a new watch delivers, in a store where
// other keys change. Processes begin to follow while a switch holds writes. "after-list" lists and
// then watches from that revision with etcd's own client. The revision is in the past by then.
func BenchmarkFollow(b *testing.B) {
	cfg := etcdcoord.Config{Endpoints: startEtcd(b).Endpoints()}
	store := open(b, cfg)
	client, err := clientv3.New(clientv3.Config{Endpoints: cfg.Endpoints})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // it is done with
	put := func(key, value string) {
		b.Helper()
		if _, err := store.Commit(b.Context(), nil, []coord.Op{{Key: key, Value: []byte(value)}}); err != nil {
			b.Fatal(err)
		}
	}
	for name, follow := range map[string]func(context.Context) (next func() error){
		"follow": func(ctx context.Context) func() error {
			_, _, w, err := store.Follow(ctx, "k/")
			if err != nil {
				b.Fatal(err)
			}
			put("other", "")
			return func() error {
				defer w.Close()
				_, err := w.Next(ctx)
				return err
			}
		},
		"after-list": func(ctx context.Context) func() error {
			_, rev, err := store.List(ctx, "k/")
			if err != nil {
				b.Fatal(err)
			}
			put("other", "")
			events := client.Watch(ctx, "k/", clientv3.WithPrefix(), clientv3.WithRev(rev+1))
			return func() error {
				resp := <-events
				return resp.Err()
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			var late time.Duration
			for i := range b.N {
				ctx, cancel := context.WithCancel(b.Context())
				next := follow(ctx)
				begun := time.Now()
				got := make(chan error, 1)
				go func() { got <- next() }()
				put("k/a", strconv.Itoa(i))
				if err := <-got; err != nil {
					b.Fatal(err)
				}
				late += time.Since(begun)
				cancel()
			}
			b.ReportMetric(float64(late.Milliseconds())/float64(b.N), "ms/change")
		})
	}
}
