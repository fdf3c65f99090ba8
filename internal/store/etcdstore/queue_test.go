package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/memetcd"
	"dbcontroller.dev/record"
)

// TestSlowConsumerKeepsNoValues: etcd sends the whole value with each change. A stream whose caller
// is slow does not keep them.
func TestSlowConsumerKeepsNoValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memetcd.New(memetcd.Options{})
		s, _ := inMemory(t, server)
		tok := provisioned(t, s, "k")
		stream := follow(t, s, "k")
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc >> 20
		}
		before := heap()
		const writes = 100
		doc := raw(t, bson.D{{Key: "_id", Value: "a"}, {Key: "x", Value: strings.Repeat("x", 512<<10)}})
		for range writes {
			if err := s.Write(t.Context(), record.Tokens{"k": tok}, []record.Mutation{{Kind: "k", Key: record.StringKey("a"), Doc: doc}}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()  // the stream has taken all events
		server.Compact() // the server itself does not keep them either
		synctest.Wait()
		if now := heap(); now > before+20 {
			t.Errorf("%d writes of half a megabyte: the heap went from %d to %d MB", writes, before, now)
		}
		for seen := 0; seen < writes; {
			b, err := stream.Next(t.Context())
			if err != nil {
				t.Fatalf("after %d changes: %v", seen, err)
			}
			seen += len(b.Changes)
		}
	})
}

// TestStreamFarBehind: beyond its limit, a stream closes its watch. It goes on where it was when its
// caller comes back, unless etcd has discarded those changes.
func TestStreamFarBehind(t *testing.T) {
	for _, compact := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted: %t", compact), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := memetcd.New(memetcd.Options{})
				s, _ := inMemory(t, server)
				tok := provisioned(t, s, "k")
				stream := follow(t, s, "k")
				written, long := 0, strings.Repeat("n", 900)
				name := func(i int) string { return fmt.Sprintf("%06d%s", i, long) }
				write := func() {
					var ms []record.Mutation
					for range 100 {
						ms = append(ms, record.Mutation{Kind: "k", Key: record.StringKey(name(written)), Doc: raw(t, bson.D{{Key: "_id", Value: name(written)}})})
						written++
					}
					if err := s.Write(t.Context(), record.Tokens{"k": tok}, ms); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				for server.Streams() > 0 {
					if written > 100_000 {
						t.Fatal("the stream takes events without a limit")
					}
					write()
				}
				limit := written
				write()
				if compact {
					server.Compact()
				}
				for seen := 0; seen < written; {
					b, err := stream.Next(t.Context())
					if compact && seen == limit {
						if !errors.Is(err, record.ErrHistoryLost) {
							t.Errorf("behind the limit: %v", err)
						}
						return
					}
					if err != nil {
						t.Fatalf("after %d of %d changes: %v", seen, written, err)
					}
					for _, c := range b.Changes {
						if c.Key != record.StringKey(name(seen)) {
							t.Fatalf("change %d is of %.10s", seen, c.Key)
						}
						seen++
					}
				}
				if n := server.Streams(); n != 1 {
					t.Errorf("%d streams", n)
				}
			})
		})
	}
}

// TestStreamFarBehindInAnOutage: a stream that must open another watch reports that etcd is gone, and
// ends at once when its caller does.
func TestStreamFarBehindInAnOutage(t *testing.T) {
	for name, ends := range map[string]bool{"unreachable": false, "caller ends": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := memetcd.New(memetcd.Options{})
				s, _ := inMemory(t, server)
				tok := provisioned(t, s, "k")
				stream := follow(t, s, "k")
				long := strings.Repeat("n", 900)
				for i := 0; server.Streams() > 0; i++ {
					var ms []record.Mutation
					for j := range 100 {
						id := fmt.Sprintf("%06d.%d%s", i, j, long)
						ms = append(ms, record.Mutation{Kind: "k", Key: record.StringKey(id), Doc: raw(t, bson.D{{Key: "_id", Value: id}})})
					}
					if err := s.Write(t.Context(), record.Tokens{"k": tok}, ms); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				server.Cut(true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began, limit := time.Now(), time.Minute
				if ends {
					time.AfterFunc(time.Second, cancel)
					limit = 2 * time.Second
				}
				var err error
				for err == nil {
					_, err = stream.Next(ctx)
				}
				if took := time.Since(began); took > limit || errors.Is(err, record.ErrUnavailable) == ends || errors.Is(err, context.Canceled) != ends {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}
