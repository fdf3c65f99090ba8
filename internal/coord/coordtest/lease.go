package coordtest

import (
	"context"
	"errors"
	"time"

	"dbcontroller.dev/internal/coord"
)

// shortest is the minimum time to live in the contract.
const shortest = time.Second

func (b *bundle) wait(what string, done <-chan struct{}) {
	b.Helper()
	select {
	case <-done:
	case <-b.ctx.Done():
		b.Fatalf("%s: %v", what, b.ctx.Err())
	}
}

func alive(l coord.Lease) bool {
	select {
	case <-l.Done():
		return false
	default:
		return true
	}
}

// leaseKept holds a lease for several times its time to live. On a busy machine, a process may rightly
// lose a lease of a short time.
func leaseKept(b *bundle) {
	for ttl := shortest; ; ttl *= 4 {
		if leaseKeptFor(b, ttl) {
			return
		}
		if ttl > 10*time.Second {
			b.Fatal("leases end while they are kept alive")
		}
	}
}

// leaseKeptFor reports whether a lease lives for three times its time to live.
func leaseKeptFor(b *bundle, ttl time.Duration) bool {
	l := b.grant(ttl)
	if l.ID() == 0 {
		b.Fatal("a lease has no id")
	}
	_, err := b.Commit(b.ctx, nil, []coord.Op{{Key: "k", Value: []byte("1"), Lease: l.ID()}})
	if errors.Is(err, coord.ErrLeaseLost) {
		return false
	}
	if err != nil {
		b.Fatal(err)
	}
	// The expiry of an abandoned lease shows that the time has passed.
	for range 3 {
		clock := b.grant(ttl)
		w := b.watch("clock")
		_, err := b.Commit(b.ctx, nil, []coord.Op{{Key: "clock", Lease: clock.ID()}})
		if errors.Is(err, coord.ErrLeaseLost) {
			return false
		}
		if err != nil {
			b.Fatal(err)
		}
		b.abandon(clock)
		b.next(w, 2) // it is there, and gone
		w.Close()
	}
	kv, err := b.Get(b.ctx, "k")
	return err == nil && kv.Lease == l.ID() && alive(l)
}

func leaseExpires(b *bundle) {
	l, other := b.grant(shortest), b.grant(time.Hour)
	put := b.commit(nil,
		coord.Op{Key: "l/a", Lease: l.ID()}, coord.Op{Key: "l/b", Lease: l.ID()},
		coord.Op{Key: "l/other", Lease: other.ID()}, putOp("l/free", ""))
	w := b.watch("l/")
	b.abandon(l)
	for _, e := range b.next(w, 2) {
		if !e.Deleted || e.KV.Mod <= put || (e.KV.Key != "l/a" && e.KV.Key != "l/b") {
			b.Errorf("event %+v, want the deletions of the lease's keys", e)
		}
	}
	// The holder must learn of the loss, too.
	b.wait("Done of the expired lease", l.Done())
	b.absent("l/a")
	b.absent("l/b")
	b.get("l/other")
	b.get("l/free")
	if err := l.Close(b.ctx); err != nil {
		b.Errorf("Close of an expired lease: %v", err)
	}
}

func leaseClose(b *bundle) {
	l := b.grant(time.Hour) // long enough that only Close can end it
	rev := b.commit(nil, coord.Op{Key: "k", Lease: l.ID()})
	if err := l.Close(b.ctx); err != nil {
		b.Fatalf("Close: %v", err)
	}
	b.absent("k")
	// The key is gone at once, so nothing may rely on it any more.
	b.refuse(coord.ErrConflict, created("k", rev), putOp("x", ""))
	b.wait("Done of the closed lease", l.Done())
	if err := l.Close(b.ctx); err != nil {
		b.Errorf("a second Close: %v", err)
	}
	// A lease without keys can be closed. Close with an ended context is an error.
	if err := b.grant(shortest).Close(b.ctx); err != nil {
		b.Errorf("Close of a lease without keys: %v", err)
	}
	l = b.grant(shortest)
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if err := l.Close(ctx); err == nil {
		b.Error("Close with its context over claims to have revoked the lease")
	}
	b.wait("Done of the lease that was let go", l.Done())
}

func leaseLost(b *bundle) {
	l := b.grant(time.Hour)
	if err := l.Close(b.ctx); err != nil {
		b.Fatalf("Close: %v", err)
	}
	rev := b.put("k", "1")
	b.refuse(coord.ErrLeaseLost, nil, coord.Op{Key: "k", Lease: l.ID()}, putOp("x", ""))
	b.refuse(coord.ErrLeaseLost, mod("k", rev), coord.Op{Key: "k", Lease: l.ID()})
	if _, err := b.Commit(b.ctx, mod("k", rev+1), []coord.Op{{Key: "k", Lease: l.ID()}}); !errors.Is(err, coord.ErrConflict) {
		b.Errorf("a conflict on a lost lease: %v, want ErrConflict first", err)
	}
	b.absent("x")
	if kv := b.get("k"); kv.Mod != rev {
		b.Errorf("a refused commit wrote %+v", kv)
	}
	b.commit(nil, coord.Op{Key: "k", Delete: true, Lease: l.ID()}) // a deletion needs no lease
}

func leaseMoves(b *bundle) {
	first, second := b.grant(time.Hour), b.grant(time.Hour)
	b.commit(nil,
		coord.Op{Key: "moved", Lease: first.ID()}, coord.Op{Key: "freed", Lease: first.ID()},
		coord.Op{Key: "kept", Lease: first.ID()}, coord.Op{Key: "remade", Lease: first.ID()})
	// A key with a new lease, or without one, must outlive its first lease.
	b.commit(nil, coord.Op{Key: "moved", Lease: second.ID()}, putOp("freed", ""), coord.Op{Key: "remade", Delete: true})
	b.put("remade", "")
	if err := first.Close(b.ctx); err != nil {
		b.Fatalf("Close: %v", err)
	}
	if kv := b.get("moved"); kv.Lease != second.ID() {
		b.Errorf("moved key %+v, want lease %d", kv, second.ID())
	}
	if kv := b.get("freed"); kv.Lease != 0 {
		b.Errorf("freed key %+v, want no lease", kv)
	}
	b.get("remade")
	b.absent("kept")
	if err := second.Close(b.ctx); err != nil {
		b.Fatalf("Close: %v", err)
	}
	b.absent("moved")
	b.get("freed")
}
