package recordloop_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller/recordloop"
	us "dbcontroller.dev/upgradestate"
)

// feed is a record whose versions the test sends.
type feed chan us.Deployment

func (f feed) Watch(context.Context) <-chan us.Deployment { return f }

// TestAside: work on which no switch waits rests while writes are held and shortly after it, then
// sees the latest record. Work that is due after a time is done all the same.
func TestAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const due = time.Minute
		versions := make(feed)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var seen []int64
		ended := make(chan error, 1)
		go func() {
			ended <- recordloop.Aside(ctx, versions, zap.NewNop(), func(d us.Deployment) (time.Duration, error) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, d.Revision)
				return due, nil
			})
		}()
		open := us.Deployment{CurrentVersion: "v1", Namespaces: []us.Namespace{{Version: "v1", Kinds: []us.Kind{{Kind: "books"}}}}}
		held := us.Clone(open)
		held.Namespaces[0].Kinds[0].Sealed = true
		none := us.Deployment{CurrentVersion: "v1"} // nothing can be held yet
		send := func(d us.Deployment, revision int64) {
			d.Revision = revision
			versions <- d
		}
		want := func(when string, revisions ...int64) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(seen, revisions) {
				t.Fatalf("%s: saw %v, want %v", when, seen, revisions)
			}
			seen = nil
		}
		send(none, 1)
		send(none, 2)
		send(open, 3)
		want("before a switch", 1, 2, 3)
		for r := int64(4); r < 14; r++ {
			send(held, r)
		}
		want("while writes are held")
		send(open, 14)
		send(open, 15)
		want("right after it")
		time.Sleep(time.Second)
		want("a second later", 15)
		send(open, 16)
		want("afterwards", 16)
		send(held, 17)
		time.Sleep(due)
		want("in a switch that stands still", 17)
		cancel()
		<-ended
	})
}
