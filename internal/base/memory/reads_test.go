package memory_test

import (
	"context"
	"math"
	"testing"

	"dbcontroller.dev/internal/base/memory"
)

// TestReads: what a call has read counts until it drops it, next to what the request holds otherwise.
func TestReads(t *testing.T) {
	t.Parallel()
	b := memory.NewBudget(100)
	first, second := b.Share(60), b.Share(100)
	ctx, read := memory.Read(memory.With(t.Context(), first))
	if memory.ReadsOf(ctx) != read || !read.Counts() {
		t.Error("the context has other reads")
	}
	for i, got := range []bool{
		read.Room() == 60, read.Take(50), !read.Take(11), read.Held() == 50, read.Room() == 10,
		second.Take(45), read.Room() == 5, !read.Take(6), read.Possible(10), !read.Possible(11),
	} {
		if !got {
			t.Errorf("step %d", i)
		}
	}
	if read.Keep(70); read.Held() != 50 {
		t.Errorf("%d bytes are held", read.Held())
	}
	if read.Keep(20); read.Held() != 20 || b.Left() != 35 {
		t.Errorf("%d bytes are held, %d are free", read.Held(), b.Left())
	}
	inner, other := memory.Read(ctx)
	if other.Take(30); memory.ReadsOf(inner) != other || read.Held() != 20 || other.Held() != 30 {
		t.Errorf("%d and %d bytes are held", read.Held(), other.Held())
	}
	other.Drop()
	read.Drop()
	if b.Left() != 55 {
		t.Errorf("%d bytes are free", b.Left())
	}
	read.Take(10)
	first.End()
	if read.Drop(); b.Left() != 55 {
		t.Errorf("%d bytes are free after the end of the request", b.Left())
	}
	none, unbounded := memory.Read(context.Background())
	for what, r := range map[string]*memory.Reads{"no request": unbounded, "nobody": memory.ReadsOf(context.Background())} {
		if r.Counts() || !r.Take(1<<40) || r.Held() != 0 || r.Room() != math.MaxInt64 || !r.Possible(1<<40) {
			t.Errorf("%s: it counts", what)
		}
		r.Drop()
	}
	if memory.ReadsOf(none) != unbounded {
		t.Error("the context has other reads")
	}
}

// TestReadsBeyond checks that reads within memory that is taken already cost nothing, and that a
// read is impossible if the request itself holds the memory elsewhere.
func TestReadsBeyond(t *testing.T) {
	t.Parallel()
	b := memory.NewBudget(100)
	share := b.Share(60)
	share.Take(40)
	_, read := memory.Beyond(memory.With(t.Context(), share), 30)
	for i, got := range []bool{
		read.Paid() == 30, read.Room() == 50, read.Take(25), b.Left() == 60, read.Paid() == 5, read.Room() == 25,
		!read.Take(26), read.Take(20), b.Left() == 45, read.Paid() == 0, read.Held() == 45,
		// Of the share, 40 are held elsewhere. No other request can free them.
		read.Possible(5), !read.Possible(6),
	} {
		if !got {
			t.Errorf("step %d: %d bytes are held, %d are free", i, read.Held(), b.Left())
		}
	}
	if read.Keep(31); b.Left() != 59 {
		t.Errorf("%d bytes are free, want one beyond", b.Left())
	}
	if read.Drop(); b.Left() != 60 || read.Paid() != 30 {
		t.Errorf("%d bytes are free, %d paid", b.Left(), read.Paid())
	}
	share.Take(-40)
	for i, got := range []bool{read.Possible(90), !read.Possible(91)} {
		if !got {
			t.Errorf("step %d of an idle request", i)
		}
	}
}
