package recordtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// This file has the tests of fence classes that stop an application.

// classes runs a test for each fence class that the backend grants. It leaves out the write block,
// which would stop every client of the cluster.
func classes(run func(t *testing.T, b *bench, class record.FenceClass)) func(*testing.T, *bench) {
	return func(t *testing.T, b *bench) {
		probe := b.fixed(t)
		granted := 0
		for _, class := range []record.FenceClass{record.FenceView, record.FenceRole, record.FenceValidator} {
			have, _, err := b.prepare(t, probe.tok, class)
			// A missing class is no failure, but another error is.
			var unsupported *record.UnsupportedError
			if err != nil && !errors.As(err, &unsupported) {
				t.Fatalf("prepare %s: %v", class, err)
			}
			if err != nil || have != class {
				t.Logf("left out: class %s is not granted (%q, %v)", class, have, err)
				continue
			}
			granted++
			t.Run(string(class), func(t *testing.T) { run(t, b, class) })
		}
		if granted == 0 {
			t.Error("no fence class is granted for fixed-name kinds")
		}
	}
}

// stop returns the fence of a class as the Deployment would announce it.
func (k *kind) stop(t *testing.T, class record.FenceClass) record.Fence {
	t.Helper()
	have, restore, err := k.b.prepare(t, k.tok, class)
	if err != nil || have != class {
		t.Fatalf("prepare %s: %s, %v", class, have, err)
	}
	k.seq++
	return record.Fence{Class: class, Token: k.tok, To: record.PhysicalName(k.spec.Name, k.seq), Restore: restore}
}

// stopped returns the kind with the token that the store has behind a fence.
func (k *kind) stopped(f record.Fence) *kind {
	behind := *k
	if f.Renames() {
		behind.tok.Name = f.To
	}
	return &behind
}

func fixedFence(t *testing.T, b *bench, class record.FenceClass) {
	ctx := t.Context()
	k := b.fixed(t)
	s := b.follow(t, b.now(t), k)
	k.insert(t, doc("a", 1), doc("b", 1))
	f := k.stop(t, class)
	for range 2 { // the second call only confirms
		ns := b.Namespace
		if b.Reopen != nil {
			ns = b.Reopen()
		}
		if err := ns.Fence(ctx, f); err != nil {
			t.Fatalf("fence: %v", err)
		}
	}
	behind := k.stopped(f)
	if name, err := b.Namespace.Locate(ctx, k.tok.ID); err != nil || name != behind.tok.Name {
		t.Errorf("locate: %q, %v, want %q", name, err, behind.tok.Name)
	}
	// No write of the application may succeed behind the fence.
	for what, err := range map[string]error{
		"insert":       b.App.Insert(ctx, k.spec.Name, doc("new", 1)),
		"put of new":   b.App.Put(ctx, k.spec.Name, doc("new", 1)),
		"put of known": b.App.Put(ctx, k.spec.Name, doc("a", 2)),
	} {
		if err == nil {
			t.Errorf("%s by the application was acknowledged", what)
		}
	}
	behind.wantState(t, map[string]record.Record{"a": at("a", 1, record.Guard{}), "b": at("b", 1, record.Guard{})})
	if class != record.FenceValidator {
		if err := b.App.Delete(ctx, k.spec.Name, valueOf("a")); err == nil {
			t.Error("a delete by the application was acknowledged")
		}
	}
	cs, _ := next(t, s, marked(k, f.To))
	if have := show(nil, cs)[:3]; !slices.Equal(have, []string{"+a", "+b", "=" + f.To}) {
		t.Errorf("changes %v", have)
	}
	if f.Renames() {
		wantFenced(t, k, behind)
	}
	// Behind its fence the kind is the target of the rollback. A class that keeps the name also
	// keeps the token and lets appliers pass. Their guards still hold.
	wantOutcomes(t, b.apply(t, tokens(behind), 2, group(2, k.set("a", 5)), group(2, k.set("b", -1)), group(2, k.set("c", 5))),
		record.Applied, record.Applied, record.Applied)
	wantOutcomes(t, b.apply(t, tokens(behind), 2, group(1, k.set("a", 4)), group(1, k.set("b", 4))), record.Stale, record.Stale)
	wantOutcomes(t, b.apply(t, tokens(behind), 1, group(9, k.set("c", 4))), record.Stale)
	wantOutcomes(t, b.apply(t, tokens(behind), 2, group(2, k.set("d", 5))), record.Applied)

	for range 2 { // the second call does nothing
		if err := b.Namespace.Unfence(ctx, f); err != nil {
			t.Fatalf("unfence: %v", err)
		}
	}
	if name, err := b.Namespace.Locate(ctx, k.tok.ID); err != nil || name != k.spec.Name {
		t.Errorf("locate after unfence: %q, %v, want %q", name, err, k.spec.Name)
	}
	// The application can write again, and sees the applied records.
	b.wantDocuments(t, k.spec.Name, doc("a", 5), doc("c", 5), doc("d", 5))
	k.insert(t, doc("new", 7))
	if err := b.App.Put(ctx, k.spec.Name, doc("a", 7)); err != nil {
		t.Errorf("put after unfence: %v", err)
	}
	if err := b.App.Delete(ctx, k.spec.Name, valueOf("c")); err != nil {
		t.Errorf("delete after unfence: %v", err)
	}
	b.wantDocuments(t, k.spec.Name, doc("a", 7), doc("new", 7), doc("d", 5))
	wantOutcomes(t, b.apply(t, tokens(k), 2, group(2, k.set("b", 9)), group(3, k.set("b", 9))), record.Stale, record.Applied)
}

// fixedBehind writes under the hidden name of a kind behind its fence, as a person may do by hand. An
// engine must see these changes, because the kind has them once the fence ends.
func fixedBehind(t *testing.T, b *bench, class record.FenceClass) {
	if class != record.FenceView {
		t.Logf("left out: class %s gives the kind no other name that takes writes", class)
		return
	}
	k := b.fixed(t)
	k.insert(t, doc("a", 1), doc("b", 1))
	from := b.now(t)
	f := k.stop(t, class)
	if err := b.Namespace.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	behind := k.stopped(f)
	fenced := b.now(t)
	err := errors.Join(
		b.App.Put(t.Context(), behind.tok.Name, doc("a", 2)),
		b.App.Delete(t.Context(), behind.tok.Name, valueOf("b")),
		b.App.Insert(t.Context(), behind.tok.Name, doc("c", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Namespace.Unfence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	b.wantDocuments(t, k.spec.Name, doc("a", 2), doc("c", 1))
	k.insert(t, doc("end", 1))
	// Also a stream that begins behind the fence, as after a restart.
	for _, at := range []record.Position{from, fenced} {
		cs, _ := next(t, b.follow(t, at, k), reached(k, "end"))
		var keys []string
		for _, c := range show(nil, cs) {
			if !strings.HasPrefix(c, "=") && c != "+end" {
				keys = append(keys, c)
			}
		}
		// A stream may repeat the change at its position.
		if want := []string{"+a", "-b", "+c"}; !slices.Equal(keys[max(0, len(keys)-len(want)):], want) {
			t.Errorf("changes %v, want %v", keys, want)
		}
	}
}

// wantFenced sends an applier's commands with the token of k, and checks that the kind, read
// through behind, does not change.
func wantFenced(t *testing.T, k, behind *kind) {
	t.Helper()
	// Commands of every sort must fail and change nothing.
	before := behind.all(t)
	batch := func(ws ...record.Write) record.Batch {
		return record.Batch{Tokens: tokens(k), Epoch: 2, Groups: []record.GroupWrite{group(1, ws...)}}
	}
	ctx, ns := t.Context(), k.b.Namespace
	for what, err := range map[string]error{
		"apply":           last(ns.Apply(ctx, batch(k.set("a", 3)))),
		"apply of new":    last(ns.Apply(ctx, batch(k.set("c", 3)))),
		"apply of delete": last(ns.Apply(ctx, batch(k.set("b", -1)))),
		"apply of group":  last(ns.Apply(ctx, batch(k.set("a", 3), k.set("b", -1), k.set("c", 3)))),
		"load":            last(ns.Load(ctx, batch(k.set("d", 3)))),
	} {
		wantError(t, what+" with an old token", err, record.ErrFenced)
	}
	wantSame(t, before, behind.all(t))
}

// fixedSeal checks that a seal keeps out the appliers of the way back: they have the token with which
// they could write before it. They stay out when the application writes again.
func fixedSeal(t *testing.T, b *bench, class record.FenceClass) {
	ctx := t.Context()
	k := b.fixed(t)
	k.insert(t, doc("a", 1))
	first := k.stop(t, class)
	if err := b.Namespace.Fence(ctx, first); err != nil {
		t.Fatal(err)
	}
	applier := k.stopped(first)
	if !first.Renames() {
		applier.tok.Mark = first.To
	}
	wantOutcomes(t, b.apply(t, tokens(applier), 2, group(2, k.set("a", 2)), group(2, k.set("b", 2))), record.Applied, record.Applied)

	seal := first
	seal.To, seal.Ends, seal.Token.Name = record.PhysicalName(k.spec.Name, k.seq+1), first.To, applier.tok.Name
	if first.Renames() { // it is hidden, so the seal only renames it
		seal.Class, seal.Ends = record.FenceUUID, ""
	}
	for range 2 { // a driver may repeat the seal
		if err := b.Namespace.Fence(ctx, seal); err != nil {
			t.Fatalf("seal: %v", err)
		}
	}
	sealed := *applier
	sealed.tok.Name = applier.tok.Name
	if seal.Renames() {
		sealed.tok.Name = seal.To
	} else {
		sealed.tok.Mark = seal.To
	}
	refused := func() {
		t.Helper()
		before := sealed.all(t)
		for what, ws := range map[string][]record.Write{
			"apply": {k.set("a", 9)}, "apply of new": {k.set("new", 9)}, "apply of delete": {k.set("a", -1)}, "apply of group": {k.set("a", 9), k.set("new", 9)},
		} {
			batch := record.Batch{Tokens: tokens(applier), Epoch: 2, Groups: []record.GroupWrite{group(9, ws...)}}
			wantError(t, what+" with the token from before the seal", last(b.Namespace.Apply(ctx, batch)), record.ErrFenced)
		}
		wantSame(t, before, sealed.all(t))
	}
	refused()
	// After an abort the direction goes on with the new token, and the guards hold.
	wantOutcomes(t, b.apply(t, tokens(&sealed), 2, group(3, k.set("a", 3)), group(1, k.set("b", 1))), record.Applied, record.Stale)
	// The end of a mark is no record.
	sealed.wantState(t, map[string]record.Record{"a": at("a", 3, guard(2, 3)), "b": at("b", 2, guard(2, 2))})
	if seal.Renames() {
		return // no token with an earlier name is valid, whatever follows
	}
	if err := b.Namespace.Unfence(ctx, seal); err != nil {
		t.Fatal(err)
	}
	if err := b.App.Put(ctx, k.spec.Name, doc("a", 7)); err != nil {
		t.Fatal(err)
	}
	refused()
	b.wantDocuments(t, k.spec.Name, doc("a", 7), doc("b", 2))

	// A kind may also open without a seal, after a recovery.
	k.seq++
	third := k.stop(t, class)
	if err := b.Namespace.Fence(ctx, third); err != nil {
		t.Fatal(err)
	}
	applier.tok.Mark = third.To
	wantOutcomes(t, b.apply(t, tokens(applier), 4, group(1, k.set("a", 4))), record.Applied)
	third.Ends = third.To
	if err := b.Namespace.Unfence(ctx, third); err != nil {
		t.Fatal(err)
	}
	refused()
}

func fixedValidator(t *testing.T, b *bench, class record.FenceClass) {
	if b.NoOptions {
		t.Log("left out: the backend has no validators")
		return
	}
	k := b.fixed(t, record.Shape{Options: raw(bson.D{
		{Key: "validator", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$exists", Value: true}}}}},
	})})
	bad := raw(bson.D{{Key: "_id", Value: "bad"}})
	if err := b.App.Insert(t.Context(), k.spec.Name, bad); err == nil {
		t.Fatal("the own validator does not work")
	}
	k.insert(t, doc("a", 1))
	f := k.stop(t, class)
	if err := b.Namespace.Fence(t.Context(), f); err != nil {
		t.Fatalf("fence: %v", err)
	}
	// The fence's validator replaces the application's one.
	if err := b.App.Insert(t.Context(), k.spec.Name, doc("late", 1)); err == nil {
		t.Error("an insert by the application was acknowledged")
	}
	// Another process may remove the fence, and it never saw the validator.
	ns := b.Namespace
	if b.Reopen != nil {
		ns = b.Reopen()
	}
	if err := ns.Unfence(t.Context(), f); err != nil {
		t.Fatalf("unfence: %v", err)
	}
	k.insert(t, doc("b", 1))
	if err := b.App.Insert(t.Context(), k.spec.Name, bad); err == nil {
		t.Error("the own validator is gone after unfence")
	}
	b.wantDocuments(t, k.spec.Name, doc("a", 1), doc("b", 1))
}

func unfenceIdle(t *testing.T, b *bench, class record.FenceClass) {
	k := b.fixed(t)
	k.insert(t, doc("a", 1))
	f := k.stop(t, class)
	if err := b.Namespace.Unfence(t.Context(), f); err != nil {
		t.Errorf("unfence: %v", err)
	}
	k.insert(t, doc("b", 1))
	k.wantState(t, map[string]record.Record{"a": at("a", 1, record.Guard{}), "b": at("b", 1, record.Guard{})})
}

// fixedAgain sets a fence, removes it like an abort, and sets one with the next name.
func fixedAgain(t *testing.T, b *bench, class record.FenceClass) {
	k := b.fixed(t)
	s := b.follow(t, b.now(t), k)
	for i := range 2 {
		f := k.stop(t, class)
		if err := b.Namespace.Fence(t.Context(), f); err != nil {
			t.Fatalf("fence %d: %v", i, err)
		}
		// Each attempt must stop the application again.
		if err := b.App.Put(t.Context(), k.spec.Name, doc("late", i)); err == nil {
			t.Errorf("attempt %d: a put by the application was acknowledged", i)
		}
		next(t, s, marked(k, f.To))
		if err := b.Namespace.Unfence(t.Context(), f); err != nil {
			t.Fatalf("unfence %d: %v", i, err)
		}
		name := fmt.Sprint("free", i)
		k.insert(t, doc(name, i))
		next(t, s, reached(k, name))
	}
	b.wantDocuments(t, k.spec.Name, doc("free0", 0), doc("free1", 1))
}

func fixedHammer(t *testing.T, b *bench, class record.FenceClass) {
	k := b.fixed(t)
	s := b.follow(t, b.now(t), k)
	f := k.stop(t, class)
	ctx := bounded(t)
	h := newHammer(4, 8)
	h.fenced = func(error) bool { return true } // an application does not get ErrFenced
	for w := range 4 {
		h.Go(func() error {
			for i := 0; ; i++ {
				name := fmt.Sprintf("w%d-%d", w, i)
				// Alternate between inserts of new names and puts of one name.
				write, n := b.App.Insert, i
				if i%2 == 1 {
					name, write = fmt.Sprintf("w%d-same", w), b.App.Put
				}
				if i%5 == 4 && class != record.FenceValidator {
					// All classes except the validator also stop deletes.
					name, n = fmt.Sprintf("w%d-%d", w, i-2), -1
				}
				more, err := h.write(map[string]int{name: n}, func() error {
					if n < 0 {
						return b.App.Delete(ctx, k.spec.Name, valueOf(name))
					}
					return write(ctx, k.spec.Name, doc(name, n))
				})
				if err != nil || !more {
					return err
				}
			}
		})
	}
	h.fence(t, func() error { return b.Namespace.Fence(ctx, f) })
	h.wantHeld(t, k.stopped(f).all(t))
	h.wantBefore(t, k, s, f.To)
}

// fixedLateDelete checks deletes, which pass a validator. They must come after the marker, flagged
// as deletes.
func fixedLateDelete(t *testing.T, b *bench) {
	k := b.fixed(t)
	if class, _, err := b.prepare(t, k.tok, record.FenceValidator); err != nil || class != record.FenceValidator {
		t.Logf("left out: class %s is not granted", record.FenceValidator)
		return
	}
	k.insert(t, doc("a", 1), doc("b", 1))
	s := b.follow(t, b.now(t), k)
	f := k.stop(t, record.FenceValidator)
	if err := b.Namespace.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := b.App.Delete(t.Context(), k.spec.Name, valueOf("a")); err != nil {
		t.Fatalf("delete: %v", err)
	}
	// The marker separates late deletes from earlier changes.
	cs, _ := next(t, s, reached(k, "a"))
	if have := show(nil, cs); !slices.Equal(have, []string{"=" + f.To, "-a"}) {
		t.Errorf("changes %v", have)
	}
	k.wantState(t, map[string]record.Record{"b": at("b", 1, record.Guard{})})
}
