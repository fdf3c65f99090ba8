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
	for what, r := range map[string]*memory.Reads{"no request": unbounded, "counted": memory.ReadsOf(memory.Counted(ctx)), "nobody": memory.ReadsOf(context.Background())} {
		if r.Counts() || !r.Take(1<<40) || r.Held() != 0 || r.Room() != math.MaxInt64 || !r.Possible(1<<40) {
			t.Errorf("%s: it counts", what)
		}
		r.Drop()
	}
	if memory.ReadsOf(none) != unbounded {
		t.Error("the context has other reads")
	}
}
