package memory_test

import (
	"testing"

	"dbcontroller.dev/internal/base/memory"
)

// TestShare: a request is bounded by its own bound and by what others hold, and its end gives back
// everything, once.
func TestShare(t *testing.T) {
	t.Parallel()
	b := memory.NewBudget(100)
	first, second := b.Share(60), b.Share(60)
	ctx := memory.With(t.Context(), first)
	part, other := memory.Of(ctx).Hold(), first.Hold()
	for i, got := range []bool{
		part.Set(40), !other.Set(21) /* more than the request's bound */, other.Set(20),
		!second.Take(41) /* more than is left of all */, !part.Set(50), part.Set(10), second.Take(60), second.Take(-20),
	} {
		if !got {
			t.Errorf("step %d", i)
		}
	}
	if got := b.Left(); got != 30 {
		t.Errorf("%d are left, want 30", got)
	}
	first.End()
	if got := b.Left(); got != 60 {
		t.Errorf("%d are left after the first ended, want 60", got)
	}
	if part.Set(11) || !part.Set(0) || b.Left() != 60 {
		t.Errorf("after its end it takes or gives: %d are left", b.Left())
	}
	second.End()
	second.End()
	if got := b.Left(); got != 100 {
		t.Errorf("%d are left in the end", got)
	}
	if none := memory.Of(t.Context()); none != nil || !none.Hold().Set(1<<40) {
		t.Error("a context of no request counts")
	}
}

// TestSpareLeavesHalf: bytes that a request can do without never take the last half of the budget.
func TestSpareLeavesHalf(t *testing.T) {
	t.Parallel()
	b := memory.NewBudget(100)
	first, second := b.Share(90), b.Share(100)
	names, page := first.Hold(), second.Hold()
	for i, got := range []bool{
		!names.SetSpare(51), names.SetSpare(50), page.Set(50), !names.SetSpare(51), names.SetSpare(20),
		!names.SetSpare(21), names.Set(21), b.Left() == 29,
		names.Possible(50), !names.Possible(91) /* more than the request's bound */, !page.Possible(101), /* more than there is */
	} {
		if !got {
			t.Errorf("step %d", i)
		}
	}
	if none := memory.Of(t.Context()).Hold(); !none.SetSpare(1<<40) || !none.Possible(1<<40) {
		t.Error("a context of no request counts")
	}
}

// TestSettle: a request gives back, once, what a decoded body does not need.
func TestSettle(t *testing.T) {
	t.Parallel()
	b := memory.NewBudget(100)
	s := b.Share(100)
	if !s.Take(10) || s.Reserve(91) || !s.Reserve(80) {
		t.Error("wrong room")
	}
	for i, step := range []struct{ settle, left int64 }{{90, 10}, {30, 60}, {40, 60}, {30, 60}, {0, 90}} {
		if s.Settle(step.settle); b.Left() != step.left {
			t.Errorf("step %d: %d are left, want %d", i, b.Left(), step.left)
		}
	}
	s.End()
	if s.Settle(0); b.Left() != 100 {
		t.Errorf("%d are left in the end", b.Left())
	}
	memory.Of(t.Context()).Settle(1)
}
