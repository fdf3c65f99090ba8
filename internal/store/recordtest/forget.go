package recordtest

import (
	"testing"

	"dbcontroller.dev/record"
)

var forgetTests = []test{
	{"a managed kind", forgetManaged},
	{"a fixed-name kind", withApp(classes(forgetFixed))},
	{"fences of a kind that was dropped", withApp(classes(forgetDropped))},
}

// again opens the namespace like a process that knows nothing yet.
func (b *bench) again() record.Namespace {
	if b.Reopen == nil {
		return b.Namespace
	}
	return b.Reopen()
}

func (k *kind) wantFree(t *testing.T, low, high uint64) {
	t.Helper()
	free, err := k.b.again().FreeNumber(t.Context(), k.spec.Name)
	if err != nil || free < low || free > high {
		t.Errorf("free number %d, %v, want %d to %d", free, err, low, high)
	}
}

func forgetManaged(t *testing.T, b *bench) {
	ctx := t.Context()
	k, l := b.managed(t), b.managed(t)
	k.wantFree(t, 1, 1)
	mine := owner("services/a/deployments/forget")
	for _, kept := range []*kind{k, l} {
		kept.put(t, "a")
		ok(t, "claim", b.Namespace.Claim(ctx, kept.tok, mine))
	}
	for range 2 { // a process that died may have done it
		ok(t, "forget", b.again().Forget(ctx, k.tok))
	}
	k.wantDoc(t, "a", 0)
	if c := k.claimed(t); c.Kind != "" {
		t.Errorf("a forgotten kind is claimed: %+v", c)
	}
	if c := l.claimed(t); c.Owner != mine {
		t.Errorf("another kind is not claimed: %+v", c)
	}
	ok(t, "drop", b.Namespace.Drop(ctx, k.tok))
	ok(t, "forget a kind that is gone", b.Namespace.Forget(ctx, k.tok))
}

func forgetFixed(t *testing.T, b *bench, class record.FenceClass) {
	ctx := t.Context()
	k := b.fixed(t)
	k.insert(t, doc("a", 1))
	ok(t, "claim", b.Namespace.Claim(ctx, k.tok, owner("services/a/deployments/forget")))
	first := k.stop(t, class)
	ok(t, "fence", b.Namespace.Fence(ctx, first))
	behind := k.stopped(first)
	if !first.Renames() {
		behind.tok.Mark = first.To
	}
	wantOutcomes(t, b.apply(t, tokens(behind), 2, group(5, behind.set("a", 5)), group(5, behind.set("gone", -1))), record.Applied, record.Applied)
	wantError(t, "forget a fenced kind", b.Namespace.Forget(ctx, behind.tok), record.ErrFenced)
	first.Ends = first.To
	ok(t, "unfence", b.Namespace.Unfence(ctx, first))
	for range 2 {
		ok(t, "forget", b.again().Forget(ctx, k.tok))
	}
	b.wantDocuments(t, k.spec.Name, doc("a", 5))
	k.wantFree(t, 1, 1)
	if c := k.claimed(t); c.Kind != "" {
		t.Errorf("a forgotten kind is claimed: %+v", c)
	}
	// A new deployment begins with the same numbers, and in the first epoch.
	k.tok = k.described(t)
	k.seq = 0
	first = k.stop(t, class)
	ok(t, "fence of another deployment", b.Namespace.Fence(ctx, first))
	behind = k.stopped(first)
	if !first.Renames() {
		behind.tok.Mark = first.To
	}
	wantOutcomes(t, b.apply(t, tokens(behind), 1, group(1, behind.set("a", 1)), group(1, behind.set("gone", 1))), record.Applied, record.Applied)
	ok(t, "unfence", b.Namespace.Unfence(ctx, first))
	k.insertOpened(t, class, doc("b", 1))
	b.wantDocuments(t, k.spec.Name, doc("a", 1), doc("b", 1), doc("gone", 1))
}

// described returns the token of the collection under the kind's own name.
func (k *kind) described(t *testing.T) record.Token {
	t.Helper()
	info, err := k.b.again().Describe(t.Context(), k.spec, k.spec.Name)
	if err != nil || !info.Exists {
		t.Fatalf("describe %s: %+v, %v", k.spec.Name, info, err)
	}
	return info.Token
}

// forgetDropped checks that a kind which is made again begins with fences that have not ended.
func forgetDropped(t *testing.T, b *bench, class record.FenceClass) {
	ctx := t.Context()
	k := b.fixed(t)
	k.insert(t, doc("a", 1))
	first := k.stop(t, class)
	ok(t, "fence", b.Namespace.Fence(ctx, first))
	ok(t, "unfence", b.Namespace.Unfence(ctx, first))
	ok(t, "drop", b.Namespace.Drop(ctx, k.tok))
	k.insertOpened(t, class, doc("a", 2))
	k.tok = k.described(t)
	free, err := b.again().FreeNumber(ctx, k.spec.Name)
	ok(t, "free number", err)
	k.seq = free - 1
	again := k.stop(t, class)
	ok(t, "fence "+again.To+" of the collection made again", b.Namespace.Fence(ctx, again))
	if err := b.App.Insert(ctx, k.spec.Name, doc("late", 1)); err == nil {
		t.Error("the application writes behind a fence")
	}
	ok(t, "unfence", b.Namespace.Unfence(ctx, again))
}
