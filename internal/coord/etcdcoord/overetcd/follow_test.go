package overetcd_test

import (
	"strconv"
	"testing"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

// BenchmarkFollow measures how late the first change is that a new watch delivers, in a store where
// other keys change. Processes begin to follow while a switch holds writes. "after-list" lists and
// then watches from that revision, which is in the past by then.
func BenchmarkFollow(b *testing.B) {
	store := open(b, etcdcoord.Config{Endpoints: startEtcd(b).Endpoints()})
	ctx := b.Context()
	put := func(key, value string) {
		b.Helper()
		if _, err := store.Commit(ctx, nil, []coord.Op{{Key: key, Value: []byte(value)}}); err != nil {
			b.Fatal(err)
		}
	}
	for name, follow := range map[string]func() (coord.Watch, error){
		"follow": func() (coord.Watch, error) {
			_, _, w, err := store.Follow(ctx, "k/")
			put("other", "")
			return w, err
		},
		"after-list": func() (coord.Watch, error) {
			_, rev, err := store.List(ctx, "k/")
			if err != nil {
				return nil, err
			}
			put("other", "")
			return store.Watch(ctx, "k/", rev)
		},
	} {
		b.Run(name, func(b *testing.B) {
			var late time.Duration
			for i := range b.N {
				w, err := follow()
				if err != nil {
					b.Fatal(err)
				}
				begun := time.Now()
				got := make(chan error, 1)
				go func() {
					_, err := w.Next(ctx)
					got <- err
				}()
				put("k/a", strconv.Itoa(i))
				if err := <-got; err != nil {
					b.Fatal(err)
				}
				late += time.Since(begun)
				w.Close()
			}
			b.ReportMetric(float64(late.Milliseconds())/float64(b.N), "ms/change")
		})
	}
}
