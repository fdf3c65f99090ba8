package coordtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/coord"
)

func watchDeliversAll(b *bundle) {
	start := b.put("w/k", "1")
	w := b.watch("w/") // the list has the first put, so the events have not
	second := b.put("w/k", "2")
	gone := b.delete("w/k")
	again := b.put("w/k", "3")
	events := b.next(w, 3)
	if len(events) != 3 {
		b.Fatalf("events %+v, want three", events)
	}
	if kv := events[0].KV; events[0].Deleted || kv.Key != "w/k" || string(kv.Value) != "2" || kv.Create != start || kv.Mod != second {
		b.Errorf("put event %+v", events[0])
	}
	if kv := events[1].KV; !events[1].Deleted || kv.Key != "w/k" || kv.Mod != gone || kv.Create != 0 || len(kv.Value) != 0 {
		b.Errorf("delete event %+v, want key and Mod %d only", events[1], gone)
	}
	if kv := events[2].KV; events[2].Deleted || kv.Create != again || kv.Mod != again {
		b.Errorf("event of the new key %+v", events[2])
	}
}

// watchResumes loses the connection of a watch while another process writes. The watch must then
// deliver each missed change once and in order.
func watchResumes(b *bundle) {
	w := b.watch("w/")
	d, peer := b.disconnecter()
	for round := range 5 {
		// The first change may have arrived before the cut, and be delivered after it.
		revs := []int64{peer.put("w/first", "")}
		heal := b.cut(d)
		for i := range round {
			peer.put("elsewhere", "")
			revs = append(revs, peer.put("w/"+strconv.Itoa(i), ""))
		}
		revs = append(revs, peer.delete("w/first"))
		heal()
		revs = append(revs, peer.put("w/last", ""))
		var got []int64
		for _, e := range b.next(w, len(revs)) {
			got = append(got, e.KV.Mod)
		}
		if !slices.Equal(got, revs) {
			b.Fatalf("round %d: revisions %v, want %v", round, got, revs)
		}
	}
}

// followMissesNothing begins to follow while somebody writes. List and events together must have each
// revision of the prefix once.
func followMissesNothing(b *bundle) {
	const puts, followers = 60, 12
	b.put("f/k", "0")
	b.put("f/gone", "")
	b.delete("f/gone")
	g, ctx := errgroup.WithContext(b.ctx)
	g.Go(func() error {
		for i := range puts {
			// Two keys in one revision, one of them elsewhere.
			if _, err := b.Commit(ctx, nil, []coord.Op{putOp("f/k", strconv.Itoa(i+1)), putOp("elsewhere", "")}); err != nil {
				return err
			}
		}
		return nil
	})
	for range followers {
		kvs, rev, w, err := b.Follow(ctx, "f/")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(w.Close)
		if len(kvs) != 1 || kvs[0].Mod > rev {
			b.Fatalf("Follow lists %+v at %d, want one key", kvs, rev)
		}
		at, err := strconv.Atoi(string(kvs[0].Value))
		if err != nil {
			b.Fatal(err)
		}
		g.Go(func() error {
			for last := rev; at < puts; {
				events, err := w.Next(ctx)
				if err != nil {
					return err
				}
				for _, e := range events {
					if string(e.KV.Value) != strconv.Itoa(at+1) || e.KV.Mod <= last {
						return fmt.Errorf("%q at %d after %d at %d", e.KV.Value, e.KV.Mod, at, last)
					}
					at, last = at+1, e.KV.Mod
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

func watchOnlyPrefix(b *bundle) {
	b.put("w/x", "")
	w := b.watch("w/")
	b.commit(nil, putOp("v", ""), putOp("w", ""), putOp("w0", ""))
	rev := b.commit(nil, putOp("w/a", ""), putOp("x/a", ""))
	events := b.next(w, 1)
	if len(events) != 1 || events[0].KV.Key != "w/a" || events[0].KV.Mod != rev {
		b.Fatalf("events %+v, want w/a at %d only", events, rev)
	}
}

func watchEnds(b *bundle) {
	w := b.watch("w/")
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, _, _, err := b.Follow(ctx, "w/"); !errors.Is(err, context.Canceled) {
		b.Fatalf("Follow with its context over: %v", err)
	}
	if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
		b.Fatalf("Next with its context over: %v", err)
	}
	// A Next that is cancelled while it waits must leave the watch usable.
	ctx, cancel = context.WithCancel(b.ctx)
	result := make(chan error, 1)
	go func() {
		_, err := w.Next(ctx)
		result <- err
	}()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		b.Fatalf("Next cancelled while it waits: %v", err)
	}
	rev := b.put("w/a", "")
	if events := b.next(w, 1); events[0].KV.Mod != rev {
		b.Fatalf("after a cancelled Next: %+v", events)
	}
	// Close must end a waiting Next.
	go func() {
		_, err := w.Next(b.ctx)
		result <- err
	}()
	w.Close()
	if err := <-result; !errors.Is(err, coord.ErrClosed) {
		b.Fatalf("Next of a watch that is closed: %v", err)
	}
	w.Close()
	if _, err := w.Next(b.ctx); !errors.Is(err, coord.ErrClosed) {
		b.Fatalf("Next of a closed watch: %v", err)
	}
}

// watchCompacted discards the changes that a watch misses while its connection is lost.
func watchCompacted(b *bundle) {
	start := b.put("w/a", "1")
	w := b.watch("w/")
	d, peer := b.disconnecter()
	heal := b.cut(d)
	for range 5 {
		peer.put("w/a", "2")
	}
	last := peer.put("w/a", "3")
	b.compact(last)
	heal()
	if events, err := w.Next(b.ctx); !errors.Is(err, coord.ErrCompacted) {
		b.Fatalf("Next after a compaction = %+v, %v, want ErrCompacted", events, err)
	}
	// The caller recovers with another Follow.
	kvs, w := b.follow("w/")
	if len(kvs) != 1 || string(kvs[0].Value) != "3" || kvs[0].Mod != last {
		b.Fatalf("Follow after a compaction lists %+v", kvs)
	}
	next := b.put("w/a", "4")
	if events := b.next(w, 1); events[0].KV.Mod != next {
		b.Fatalf("events %+v", events)
	}
	b.commit(created("w/a", start), putOp("w/b", "")) // Create survives a compaction
}

func watchIdle(b *bundle) {
	b.put("idle/a", "")
	w := b.watch("idle/")
	// The watch waits while other keys change and the store compacts.
	events := make(chan []coord.Event, 1)
	g, ctx := errgroup.WithContext(b.ctx)
	g.Go(func() error {
		got, err := w.Next(ctx)
		events <- got
		return err
	})
	var last int64
	for range 20 {
		last = b.put("busy", "")
	}
	b.compact(last)
	rev := b.put("idle/a", "")
	if err := g.Wait(); err != nil {
		// Only a watch that reached the store after the compaction may fail.
		if !errors.Is(err, coord.ErrCompacted) {
			b.Fatal(err)
		}
		return
	}
	if got := <-events; got[0].KV.Mod != rev {
		b.Fatalf("events %+v, want %d", got, rev)
	}
}

// watchConcurrent lets writers commit pairs of keys while watches follow. Each watch must see every
// commit once, complete and in order. The values must add up. One watch follows again after each
// batch, and the connection of all is lost several times.
func watchConcurrent(b *bundle) {
	const writers, each, watchers, cuts = 4, 25, 3, 3
	d, peer := b.disconnecter()
	g, ctx := errgroup.WithContext(b.ctx)
	for i := range watchers {
		kvs, last, w, err := b.Follow(ctx, "c/")
		if err != nil || len(kvs) > 0 {
			b.Fatalf("Follow = %v, %v", kvs, err)
		}
		g.Go(func() error {
			defer func() { w.Close() }()
			// Count the commits of each writer by the first key of its pair.
			seen := map[string]int{}
			for batch, got := 0, 0; got < writers*each; batch++ {
				events, err := w.Next(ctx)
				if err != nil {
					return err
				}
				for len(events) > 0 {
					rev, n := events[0].KV.Mod, 0
					for n < len(events) && events[n].KV.Mod == rev {
						n++
					}
					// A revision must come once, and in order.
					if rev <= last {
						return fmt.Errorf("revision %d after %d", rev, last)
					}
					if n != 2 || string(events[0].KV.Value) != string(events[1].KV.Value) {
						return fmt.Errorf("revision %d came as %+v, want a pair", rev, events[:n])
					}
					key := events[0].KV.Key
					if v, _ := strconv.Atoi(string(events[0].KV.Value)); v != seen[key]+1 {
						return fmt.Errorf("%s is %d after %d", key, v, seen[key])
					}
					seen[key]++
					last, got, events = rev, got+1, events[n:]
				}
				switch {
				case i == 0 && batch < cuts:
					b.cut(d)()
				case i == 1:
					w.Close()
					if kvs, last, w, err = b.Follow(ctx, "c/"); err != nil {
						return err
					}
					// The list must have complete commits, and none less than the events.
					got = 0
					for n := 0; n < len(kvs); n += 2 {
						if n+1 == len(kvs) || string(kvs[n].Value) != string(kvs[n+1].Value) {
							return fmt.Errorf("the list at %d has no pairs: %+v", last, kvs)
						}
						v, _ := strconv.Atoi(string(kvs[n].Value))
						if v < seen[kvs[n].Key] {
							return fmt.Errorf("the list at %d has %s as %d after %d", last, kvs[n].Key, v, seen[kvs[n].Key])
						}
						seen[kvs[n].Key] = v
						got += v
					}
				}
			}
			return nil
		})
	}
	for i := range writers {
		g.Go(func() error {
			for n := range each {
				value := strconv.Itoa(n + 1)
				ops := []coord.Op{
					putOp(fmt.Sprintf("c/%d/a", i), value),
					// This key is in the commit, but outside the prefix.
					putOp(fmt.Sprintf("elsewhere/%d", i), value),
					putOp(fmt.Sprintf("c/%d/b", i), value),
				}
				if _, err := peer.Commit(ctx, nil, ops); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}
