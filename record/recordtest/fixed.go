package recordtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/record"
)

var fixedTests = []test{
	{"guards are invisible", withApp(fixedInvisible)},
	{"an id changes its type", withApp(fixedIDType)},
	{"application writes beside guards", withApp(fixedBeside)},
	{"prepare changes nothing", withApp(fixedPrepare)},
	{"fence and lift", withApp(classes(fixedFence))},
	{"lift restores the own validator", withApp(classes(fixedValidator))},
	{"lift of a kind that is not fenced", withApp(classes(fixedLiftIdle))},
	{"second attempt", withApp(classes(fixedAgain))},
	{"application hammers", withApp(classes(fixedHammer))},
	{"late deletes are reported", withApp(fixedLateDelete)},
	{"hidden target takes its name", withApp(fixedTakesName)},
	{"a name that is taken", withApp(fixedNameTaken)},
}

// classes runs a test for each fence class that the backend grants here. The write
// block is not among them: it would stop everybody on the cluster.
func classes(run func(t *testing.T, b *bench, class record.FenceClass)) func(*testing.T, *bench) {
	return func(t *testing.T, b *bench) {
		probe := b.fixed(t)
		granted := 0
		for _, class := range []record.FenceClass{record.FenceView, record.FenceValidator} {
			have, _, err := b.Namespace.Prepare(t.Context(), probe.tok, class)
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

// stop is the fence of a class as the Deployment would announce it.
func (k *kind) stop(t *testing.T, class record.FenceClass) record.Fence {
	t.Helper()
	have, restore, err := k.b.Namespace.Prepare(t.Context(), k.tok, class)
	if err != nil || have != class {
		t.Fatalf("prepare %s: %s, %v", class, have, err)
	}
	k.seq++
	return record.Fence{Class: class, Token: k.tok, To: record.PhysicalName(k.spec.Name, k.seq), Restore: restore}
}

// stopped is the kind as the store sees it behind a fence.
func (k *kind) stopped(f record.Fence) *kind {
	behind := *k
	if f.Renames() {
		behind.tok.Name = f.To
	}
	return &behind
}

func (k *kind) insert(t *testing.T, ds ...bson.Raw) {
	t.Helper()
	for _, d := range ds {
		if err := k.b.App.Insert(t.Context(), k.spec.Name, d); err != nil {
			t.Fatalf("application inserts %s: %v", d, err)
		}
	}
}

// wantDocuments compares what the application finds under a name, byte for byte.
func (b *bench) wantDocuments(t *testing.T, name string, want ...bson.Raw) {
	t.Helper()
	have, err := b.App.Documents(t.Context(), name)
	if err != nil {
		t.Fatalf("documents of %s: %v", name, err)
	}
	for _, d := range have {
		if !slices.ContainsFunc(want, func(w bson.Raw) bool { return bytes.Equal(w, d) }) {
			t.Errorf("%s holds %s", name, d)
		}
	}
	if len(have) != len(want) {
		t.Errorf("%s holds %d documents, want %d", name, len(have), len(want))
	}
}

func fixedInvisible(t *testing.T, b *bench) {
	k := b.fixed(t)
	var live []bson.Raw
	var gs []record.GroupWrite
	ids := everyType()
	for i, id := range ids {
		d := raw(bson.D{{Key: "_id", Value: id}, {Key: "i", Value: int32(i)}})
		key, err := record.KeyOfDoc(d)
		if err != nil {
			t.Fatal(err)
		}
		w := record.Write{Kind: k.spec.Name, Key: key, Doc: d}
		gs = append(gs, record.GroupWrite{Group: key.String(), Version: version(1), Writes: []record.Write{w}})
		live = append(live, d)
	}
	half := len(gs) / 2
	for _, r := range append(b.apply(t, tokens(k), 1, gs[:half]...), b.load(t, tokens(k), 1, gs[half:]...)...) {
		if r.Outcome != record.Applied {
			t.Errorf("%s (%v)", r.Outcome, r.Err)
		}
	}
	b.wantDocuments(t, k.tok.Name, live...)
	// Every third is deleted, every third replaced.
	for i := range gs {
		gs[i].Version = version(2)
		switch i % 3 {
		case 0:
			gs[i].Writes[0].Doc, live[i] = nil, nil
		case 1:
			d := raw(bson.D{{Key: "_id", Value: ids[i]}, {Key: "again", Value: int64(i)}})
			gs[i].Writes[0].Doc, live[i] = d, d
		}
	}
	for _, r := range b.apply(t, tokens(k), 1, gs...) {
		if r.Outcome != record.Applied {
			t.Errorf("%s (%v)", r.Outcome, r.Err)
		}
	}
	b.wantDocuments(t, k.tok.Name, slices.DeleteFunc(live, func(d bson.Raw) bool { return d == nil })...)
	have := k.all(t)
	for i, g := range gs {
		r, ok := have[g.Writes[0].Key]
		if !ok || r.Guard != guard(1, 2) || r.Tombstone != (i%3 == 0) || !bytes.Equal(r.Doc, g.Writes[0].Doc) {
			t.Errorf("%s: %+v", g.Group, r)
		}
	}
}

// The application deletes {_id: 5} and inserts {_id: 5.0}: one key, another document.
func fixedIDType(t *testing.T, b *bench) {
	k := b.fixed(t)
	for v, id := range []any{int32(5), 5.0, int64(5)} {
		d := raw(bson.D{{Key: "_id", Value: id}, {Key: "v", Value: int32(v)}})
		key, err := record.KeyOfDoc(d)
		if err != nil {
			t.Fatal(err)
		}
		w := record.Write{Kind: k.spec.Name, Key: key, Doc: d}
		res := b.apply(t, tokens(k), 1, record.GroupWrite{Group: "5", Version: version(v + 1), Writes: []record.Write{w}})
		wantOutcomes(t, res, record.Applied)
		b.wantDocuments(t, k.tok.Name, d)
	}
}

// What the application does to documents leaves the guards beside them in force.
func fixedBeside(t *testing.T, b *bench) {
	k := b.fixed(t)
	b.apply(t, tokens(k), 1, group(5, k.set("a", 5)), group(5, k.set("b", 5)))
	if err := b.App.Put(t.Context(), k.tok.Name, doc("a", 70)); err != nil {
		t.Fatal(err)
	}
	if err := b.App.Delete(t.Context(), k.tok.Name, valueOf("b")); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(4, k.set("a", 4)), group(4, k.set("b", 4))), record.Stale, record.Stale)
	b.wantDocuments(t, k.tok.Name, doc("a", 70))
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(6, k.set("a", 6)), group(6, k.set("b", 6))), record.Applied, record.Applied)
	b.wantDocuments(t, k.tok.Name, doc("a", 6), doc("b", 6))
}

func fixedPrepare(t *testing.T, b *bench) {
	k := b.fixed(t)
	k.insert(t, doc("a", 1))
	class, _, err := b.Namespace.Prepare(t.Context(), k.tok, "")
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	switch class {
	case record.FenceView, record.FenceValidator, record.FenceWriteBlock:
	default:
		t.Errorf("class %q for a fixed-name kind", class)
	}
	k.insert(t, doc("b", 1))
	b.wantDocuments(t, k.tok.Name, doc("a", 1), doc("b", 1))
	if _, _, err := b.Namespace.Prepare(t.Context(), k.tok, "no such class"); err == nil {
		t.Error("an unknown class was granted")
	}
}

func fixedFence(t *testing.T, b *bench, class record.FenceClass) {
	ctx := t.Context()
	k := b.fixed(t)
	s := b.follow(t, b.now(t), k)
	k.insert(t, doc("a", 1), doc("b", 1))
	f := k.stop(t, class)
	for range 2 { // the second time it only confirms
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
	if class == record.FenceView {
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
	// Behind its fence the kind is the target of the way back. A class that keeps the
	// name keeps the token too, and lets appliers pass; their guards still hold.
	wantOutcomes(t, b.apply(t, tokens(behind), 2, group(2, k.set("a", 5)), group(2, k.set("b", -1)), group(2, k.set("c", 5))),
		record.Applied, record.Applied, record.Applied)
	wantOutcomes(t, b.apply(t, tokens(behind), 2, group(1, k.set("a", 4)), group(1, k.set("b", 4))), record.Stale, record.Stale)
	wantOutcomes(t, b.apply(t, tokens(behind), 1, group(9, k.set("c", 4))), record.Stale)
	wantOutcomes(t, b.load(t, tokens(behind), 2, group(2, k.set("d", 5))), record.Applied)

	for range 2 { // the second time it does nothing
		if err := b.Namespace.Lift(ctx, f); err != nil {
			t.Fatalf("lift: %v", err)
		}
	}
	if name, err := b.Namespace.Locate(ctx, k.tok.ID); err != nil || name != k.spec.Name {
		t.Errorf("locate after lift: %q, %v, want %q", name, err, k.spec.Name)
	}
	b.wantDocuments(t, k.spec.Name, doc("a", 5), doc("c", 5), doc("d", 5))
	k.insert(t, doc("new", 7))
	if err := b.App.Put(ctx, k.spec.Name, doc("a", 7)); err != nil {
		t.Errorf("put after lift: %v", err)
	}
	if err := b.App.Delete(ctx, k.spec.Name, valueOf("c")); err != nil {
		t.Errorf("delete after lift: %v", err)
	}
	b.wantDocuments(t, k.spec.Name, doc("a", 7), doc("new", 7), doc("d", 5))
	wantOutcomes(t, b.apply(t, tokens(k), 2, group(2, k.set("b", 9)), group(3, k.set("b", 9))), record.Stale, record.Applied)
}

// wantFenced sends what appliers send with the token k, and sees that the kind, read as
// behind, stays as it is.
func wantFenced(t *testing.T, k, behind *kind) {
	t.Helper()
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

func fixedValidator(t *testing.T, b *bench, class record.FenceClass) {
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
	if err := b.App.Insert(t.Context(), k.spec.Name, doc("late", 1)); err == nil {
		t.Error("an insert by the application was acknowledged")
	}
	// Whoever lifts it may be another process, and never saw the validator.
	ns := b.Namespace
	if b.Reopen != nil {
		ns = b.Reopen()
	}
	if err := ns.Lift(t.Context(), f); err != nil {
		t.Fatalf("lift: %v", err)
	}
	k.insert(t, doc("b", 1))
	if err := b.App.Insert(t.Context(), k.spec.Name, bad); err == nil {
		t.Error("the own validator is gone after lift")
	}
	b.wantDocuments(t, k.spec.Name, doc("a", 1), doc("b", 1))
}

func fixedLiftIdle(t *testing.T, b *bench, class record.FenceClass) {
	k := b.fixed(t)
	k.insert(t, doc("a", 1))
	f := k.stop(t, class)
	if err := b.Namespace.Lift(t.Context(), f); err != nil {
		t.Errorf("lift: %v", err)
	}
	k.insert(t, doc("b", 1))
	k.wantState(t, map[string]record.Record{"a": at("a", 1, record.Guard{}), "b": at("b", 1, record.Guard{})})
}

// After an abort the next attempt fences again, under the next name.
func fixedAgain(t *testing.T, b *bench, class record.FenceClass) {
	k := b.fixed(t)
	s := b.follow(t, b.now(t), k)
	for i := range 2 {
		f := k.stop(t, class)
		if err := b.Namespace.Fence(t.Context(), f); err != nil {
			t.Fatalf("fence %d: %v", i, err)
		}
		if err := b.App.Put(t.Context(), k.spec.Name, doc("late", i)); err == nil {
			t.Errorf("attempt %d: a put by the application was acknowledged", i)
		}
		next(t, s, marked(k, f.To))
		if err := b.Namespace.Lift(t.Context(), f); err != nil {
			t.Fatalf("lift %d: %v", i, err)
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
	h.fenced = func(error) bool { return true } // an application knows no ErrFenced
	for w := range 4 {
		h.Go(func() error {
			for i := 0; ; i++ {
				name := fmt.Sprintf("w%d-%d", w, i)
				write, n := b.App.Insert, i
				if i%2 == 1 {
					name, write = fmt.Sprintf("w%d-same", w), b.App.Put
				}
				if i%5 == 4 && class == record.FenceView {
					// This class holds deletes back too.
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

// A validator lets deletes pass: they come after the marker, flagged.
func fixedLateDelete(t *testing.T, b *bench) {
	k := b.fixed(t)
	if class, _, err := b.Namespace.Prepare(t.Context(), k.tok, record.FenceValidator); err != nil || class != record.FenceValidator {
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
	cs, _ := next(t, s, reached(k, "a"))
	if have := show(nil, cs); !slices.Equal(have, []string{"=" + f.To, "-a"}) {
		t.Errorf("changes %v", have)
	}
	k.wantState(t, map[string]record.Record{"b": at("b", 1, record.Guard{})})
}

// A target is built under a hidden name and takes the configured one at the flip, with
// its guards; an abort hides it again.
func fixedTakesName(t *testing.T, b *bench) {
	k := b.hidden(t, uniqueShape(b)...)
	b.apply(t, tokens(k), 1, group(5, k.mail("a", "m@x")), group(5, k.set("b", -1)))
	move := func(to string) {
		t.Helper()
		f := record.Fence{Class: record.FenceUUID, Token: k.tok, To: to}
		for range 2 {
			if err := b.Namespace.Fence(t.Context(), f); err != nil {
				t.Fatalf("rename to %s: %v", to, err)
			}
		}
		old := k.tok
		k.tok.Name = to
		_, err := b.Namespace.Apply(t.Context(), record.Batch{Tokens: record.Tokens{k.spec.Name: old}, Epoch: 9, Groups: []record.GroupWrite{group(9, k.set("a", 9))}})
		wantError(t, "apply with an old token", err, record.ErrFenced)
		wantOutcomes(t, b.apply(t, tokens(k), 1, group(4, k.set("a", 4)), group(4, k.set("b", 4))), record.Stale, record.Stale)
		b.wantDocuments(t, to, k.mail("a", "m@x").Doc)
	}
	move(k.spec.Name)
	if !b.NoIndexes {
		if err := b.App.Insert(t.Context(), k.spec.Name, k.mail("c", "m@x").Doc); err == nil {
			t.Error("the unique index did not survive the rename")
		}
	}
	move(record.PhysicalName(k.spec.Name, 1))
	b.wantDocuments(t, k.spec.Name)
}

func uniqueShape(b *bench) []record.Shape {
	if b.NoIndexes {
		return nil
	}
	return []record.Shape{uniqueOn("mail")}
}

// A rename never replaces what stands under the name.
func fixedNameTaken(t *testing.T, b *bench) {
	k, other := b.hidden(t), b.fixed(t)
	other.insert(t, doc("theirs", 1))
	k.put(t, "ours")
	err := b.Namespace.Fence(t.Context(), record.Fence{Class: record.FenceUUID, Token: k.tok, To: other.spec.Name})
	if err == nil || errors.Is(err, record.ErrUnknown) {
		t.Errorf("rename to a name that is taken: %v", err)
	}
	b.wantDocuments(t, other.spec.Name, doc("theirs", 1))
	b.wantDocuments(t, k.tok.Name, doc("ours", 0))
}
