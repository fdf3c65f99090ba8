package recordtest

import (
	"bytes"
	"testing"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

var fenceTests = []test{
	{"old tokens", movers(fenceOldTokens)},
	{"old tokens of clients", withClient(fenceOldClients)},
	{"one kind of two", withClient(fencePartial)},
	{"idempotent", movers(fenceIdempotent)},
	{"late duplicate", movers(fenceLate)},
	{"at once by many", movers(fenceConcurrent)},
	{"given up before it was set", movers(fencePrevent)},
	{"given up after it was set", movers(fencePreventLate)},
	{"given up and set at once", movers(fencePreventRace)},
	{"given up when the kind is gone", movers(fencePreventGone)},
	{"another collection of the same name", withClient(fenceImpostor)},
	{"unfence of a managed kind", withClient(unfenceManaged)},
	{"clients hammer", withClient(fenceHammer)},
	{"appliers hammer", movers(fenceAppliers)},
}

// movers runs a test for a managed kind and for the hidden target of a fixed-name kind. Both are
// fenced by a rename.
func movers(run func(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind)) func(*testing.T, *bench) {
	return func(t *testing.T, b *bench) {
		t.Run("managed", func(t *testing.T) { run(t, b, b.managed) })
		if b.App == nil {
			t.Log("left out: the backend has no fixed-name kinds")
			return
		}
		t.Run("hidden", func(t *testing.T) { run(t, b, b.hidden) })
	}
}

// announce returns the fence that the Deployment would announce next.
func (k *kind) announce(t *testing.T) record.Fence {
	t.Helper()
	class := record.FenceUUID // a hidden fixed-name target is also renamed
	restore := ""
	if !k.spec.Fixed {
		var err error
		class, restore, err = k.b.prepare(t, k.tok, "")
		if err != nil {
			t.Fatalf("prepare: %v", err)
		}
	}
	return record.Fence{Class: class, Token: k.tok, To: record.PhysicalName(k.spec.Name, k.seq+1), Restore: restore}
}

// fence gives the kind its next name. It returns the token that is now old.
func (k *kind) fence(t *testing.T) record.Token {
	t.Helper()
	f := k.announce(t)
	if err := k.b.Namespace.Fence(t.Context(), f); err != nil {
		t.Fatalf("fence to %s: %v", f.To, err)
	}
	return k.moved(f)
}

func (k *kind) moved(f record.Fence) record.Token {
	old := k.tok
	k.seq++
	k.tok.Name = f.To
	return old
}

func fenceOldTokens(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.put(t, "a", "b")
	b.apply(t, tokens(k), 1, group(2, k.set("dead", -1)))
	// Every command with the old token must fail and change nothing.
	before := k.all(t)
	old := k.fence(t)
	name, err := b.Namespace.Locate(t.Context(), k.tok.ID)
	if err != nil || name != k.tok.Name {
		t.Errorf("locate: %q, %v, want %q", name, err, k.tok.Name)
	}
	ctx, ns, toks := t.Context(), b.Namespace, record.Tokens{k.spec.Name: old}
	for what, err := range map[string]error{
		"scan":            last(ns.Scan(ctx, record.ScanRequest{Token: old, Limit: 10})),
		"scan of guards":  last(ns.Scan(ctx, record.ScanRequest{Token: old, Limit: 10, Guards: true})),
		"read":            last(ns.Read(ctx, record.ReadRequest{Tokens: toks, Select: []record.Selector{k.sel("a")}})),
		"read of absent":  last(ns.Read(ctx, record.ReadRequest{Tokens: toks, Select: []record.Selector{k.sel("none")}})),
		"apply":           last(ns.Apply(ctx, record.Batch{Tokens: toks, Epoch: 9, Groups: []record.GroupWrite{group(9, k.set("a", 9))}})),
		"apply of new":    last(ns.Apply(ctx, record.Batch{Tokens: toks, Epoch: 9, Groups: []record.GroupWrite{group(9, k.set("new", 9))}})),
		"apply of delete": last(ns.Apply(ctx, record.Batch{Tokens: toks, Epoch: 9, Groups: []record.GroupWrite{group(9, k.set("b", -1))}})),
		"apply of group":  last(ns.Apply(ctx, record.Batch{Tokens: toks, Epoch: 9, Groups: []record.GroupWrite{group(9, k.set("g", 1), k.set("h", -1))}})),
		"stale apply":     last(ns.Apply(ctx, record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{group(0, k.set("a", 9))}})),
		"load":            last(ns.Load(ctx, record.Batch{Tokens: toks, Epoch: 9, Groups: []record.GroupWrite{group(9, k.set("new", 9))}})),
		"load of group":   last(ns.Load(ctx, record.Batch{Tokens: toks, Epoch: 9, Groups: []record.GroupWrite{group(9, k.set("g", 9), k.set("h", 9))}})),
		"load of known":   last(ns.Load(ctx, record.Batch{Tokens: toks, Epoch: 9, Groups: []record.GroupWrite{group(9, k.set("a", 9))}})),
	} {
		wantError(t, what+" with an old token", err, record.ErrFenced)
	}
	// Purge and Drop with an old token may succeed or fail, but must not touch the kind.
	t.Logf("purge and drop with an old token: %v, %v", ns.Purge(ctx, old), ns.Drop(ctx, old))
	wantSame(t, before, k.all(t))
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(3, k.set("a", 3)), group(1, k.set("dead", 1))), record.Applied, record.Stale)
}

// last returns the error of a call and drops its answer.
func last[T any](_ T, err error) error { return err }

func fenceOldClients(t *testing.T, b *bench) {
	k := b.managed(t)
	k.put(t, "a", "b")
	old := k.fence(t)
	ctx, c, toks := t.Context(), b.Client, record.Tokens{k.spec.Name: old}
	write := func(ms ...record.Mutation) error { return c.Write(ctx, toks, ms) }
	// Prepare a write for each condition: none may reach the kind.
	create, update, matching, remove := k.mutation("new", 1), k.mutation("a", 5), k.mutation("a", 6), k.mutation("b", -1)
	create.Absent, update.Exists, remove.Exists = true, true, true
	matching.Match = &record.Match{Path: "n", Value: valueOf(int32(0))}
	for what, err := range map[string]error{
		"get":                last(c.Get(ctx, old, record.StringKey("a"))),
		"get of absent":      last(c.Get(ctx, old, record.StringKey("none"))),
		"list":               last(c.List(ctx, record.ListRequest{Token: old})),
		"names":              last(c.ListNames(ctx, record.ListRequest{Token: old})),
		"select":             last(c.Select(ctx, record.SelectRequest{Tokens: toks, Select: []record.Selector{{Kind: k.spec.Name, Key: record.StringKey("a")}}})),
		"select as a list":   last(c.Select(ctx, record.SelectRequest{Tokens: toks, Select: []record.Selector{{Kind: k.spec.Name, Key: record.StringKey("a")}}, AsList: true})),
		"create":             write(create),
		"update":             write(update),
		"compare-and-swap":   write(matching),
		"put":                write(k.mutation("a", 7)),
		"put of new":         write(k.mutation("new", 7)),
		"delete":             write(remove),
		"blind delete":       write(k.mutation("b", -1)),
		"delete of absent":   write(k.mutation("none", -1)),
		"transaction":        write(create, remove),
		"deleting many":      write(k.mutation("a", -1), k.mutation("b", -1)),
		"create of existing": write(record.Mutation{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: doc("a", 1), Absent: true}),
	} {
		wantError(t, what+" with an old token", err, record.ErrFenced)
	}
	k.wantState(t, map[string]record.Record{"a": at("a", 0, guard(1, 1)), "b": at("b", 1, guard(1, 1))})
	if err := c.Write(ctx, tokens(k), []record.Mutation{create, matching, remove}); err != nil {
		t.Errorf("write with the new token: %v", err)
	}
	if r, err := c.Get(ctx, k.tok, record.StringKey("a")); err != nil || !bytes.Equal(r.Doc, doc("a", 6)) {
		t.Errorf("get with the new token: %s, %v", r.Doc, err)
	}
}

// fencePartial checks a command that covers two kinds after one was fenced. It must change nothing
// in the other.
func fencePartial(t *testing.T, b *bench) {
	k, l := b.managed(t), b.managed(t)
	k.put(t, "a")
	l.put(t, "a")
	// These tokens have the new name of k and the old one of l after the fence.
	mixed := tokens(k, l)
	l.fence(t)
	err := b.Client.Write(t.Context(), mixed, []record.Mutation{k.mutation("a", -1), k.mutation("b", 1), l.mutation("b", 1)})
	wantError(t, "transaction over a fenced kind", err, record.ErrFenced)
	_, err = b.Namespace.Apply(t.Context(), record.Batch{Tokens: mixed, Epoch: 2, Groups: []record.GroupWrite{group(1, k.set("a", 5), l.set("a", 5))}})
	wantError(t, "apply over a fenced kind", err, record.ErrFenced)
	_, err = b.Namespace.Read(t.Context(), record.ReadRequest{Tokens: mixed, Select: []record.Selector{k.sel("a"), l.sel("a")}})
	wantError(t, "read over a fenced kind", err, record.ErrFenced)
	for _, x := range []*kind{k, l} {
		x.wantState(t, map[string]record.Record{"a": at("a", 0, guard(1, 1))})
	}
	k.write(t, "b", 2)
}

func fenceIdempotent(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.put(t, "a")
	f := k.announce(t)
	// Any process may repeat the call.
	for i := range 3 {
		ns := b.Namespace
		if b.Reopen != nil {
			ns = b.Reopen()
		}
		if err := ns.Fence(t.Context(), f); err != nil {
			t.Fatalf("fence, time %d: %v", i+1, err)
		}
	}
	k.moved(f)
	k.wantState(t, map[string]record.Record{"a": at("a", 0, guard(1, 1))})
}

// fenceLate sends an old fence again, like a process that slept. That must not give the kind back a
// name that old tokens have.
func fenceLate(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.put(t, "a")
	// Keep the first announcement, and fence twice more.
	first := k.announce(t)
	k.fence(t)
	k.fence(t)
	if err := b.Namespace.Fence(t.Context(), first); err == nil {
		t.Error("a fence to a name of the past was confirmed")
	}
	if name, err := b.Namespace.Locate(t.Context(), k.tok.ID); err != nil || name != k.tok.Name {
		t.Errorf("the kind is at %q (%v), want %q", name, err, k.tok.Name)
	}
	k.wantState(t, map[string]record.Record{"a": at("a", 0, guard(1, 1))})
}

func fenceConcurrent(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	f := k.announce(t)
	g, ctx := together(t)
	for range 4 {
		g.Go(func() error { return b.Namespace.Fence(ctx, f) })
	}
	if err := g.Wait(); err != nil {
		t.Errorf("fence: %v", err)
	}
	k.moved(f)
	k.put(t, "a")
}

// fencePrevent checks that a prevented fence can never be set, by any process and however late. The
// kind stays where it is. The next fence, under another name, works.
func fencePrevent(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.put(t, "a")
	f := k.announce(t)
	if f.Class != record.FenceUUID {
		t.Logf("left out: class is %s", f.Class)
		return
	}
	for i := range 2 {
		if moved, err := b.Namespace.Prevent(t.Context(), f); err != nil || moved {
			t.Fatalf("prevent, time %d: moved %t, %v", i+1, moved, err)
		}
		if err := b.Namespace.Fence(t.Context(), f); err == nil {
			t.Fatal("a fence that was given up is confirmed")
		}
	}
	k.put(t, "b")
	k.seq++ // the name cannot be used again
	next := k.announce(t)
	if err := b.Namespace.Fence(t.Context(), next); err != nil {
		t.Fatalf("the next fence: %v", err)
	}
	// Neither the prevented fence nor the old token may work after the next fence.
	old := k.moved(next)
	if err := b.Namespace.Fence(t.Context(), f); err == nil {
		t.Error("a fence that was given up is confirmed after a later one")
	}
	if name, err := b.Namespace.Locate(t.Context(), k.tok.ID); err != nil || name != k.tok.Name {
		t.Errorf("the kind is at %q (%v), want %q", name, err, k.tok.Name)
	}
	_, err := b.Namespace.Scan(t.Context(), record.ScanRequest{Token: old, Limit: 1})
	wantError(t, "scan with an old token", err, record.ErrFenced)
	k.wantState(t, map[string]record.Record{"a": at("a", 0, guard(1, 1)), "b": at("b", 0, guard(1, 1))})
}

// fencePreventLate checks that Prevent does not undo a fence that has happened.
func fencePreventLate(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.put(t, "a")
	f := k.announce(t)
	if f.Class != record.FenceUUID {
		t.Logf("left out: class is %s", f.Class)
		return
	}
	k.fence(t)
	// Prevent must report that the rename has happened.
	if moved, err := b.Namespace.Prevent(t.Context(), f); err != nil || !moved {
		t.Errorf("prevent of a fence in force: moved %t, %v", moved, err)
	}
	k.wantState(t, map[string]record.Record{"a": at("a", 0, guard(1, 1))})
}

// fencePreventGone checks that Prevent of a dropped kind returns ErrNotFound.
func fencePreventGone(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	f := k.announce(t)
	if f.Class != record.FenceUUID {
		t.Logf("left out: class is %s", f.Class)
		return
	}
	if err := b.Namespace.Drop(t.Context(), k.tok); err != nil {
		t.Fatal(err)
	}
	_, err := b.Namespace.Prevent(t.Context(), f)
	wantError(t, "prevent", err, record.ErrNotFound)
}

// fencePreventRace checks that concurrent calls that set and prevent one fence all get the same
// answer.
func fencePreventRace(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	for range 5 {
		k := mk(t)
		k.put(t, "a")
		f := k.announce(t)
		if f.Class != record.FenceUUID {
			t.Logf("left out: class is %s", f.Class)
			return
		}
		var g errgroup.Group
		var fenced, moved [3]bool
		ctx := bounded(t)
		for i := range fenced {
			g.Go(func() error { fenced[i] = b.Namespace.Fence(ctx, f) == nil; return nil })
			g.Go(func() (err error) { moved[i], err = b.Namespace.Prevent(ctx, f); return err })
		}
		if err := g.Wait(); err != nil {
			t.Fatalf("prevent: %v", err)
		}
		name, err := b.Namespace.Locate(ctx, k.tok.ID)
		if err != nil {
			t.Fatal(err)
		}
		// All answers must agree with the collection's name.
		happened := name == f.To
		for i := range fenced {
			if fenced[i] != happened || moved[i] != happened {
				t.Errorf("the kind is at %s; fenced %v, moved %v", name, fenced, moved)
			}
		}
	}
}

// fenceImpostor checks that a new collection under the old name does not accept the old token.
func fenceImpostor(t *testing.T, b *bench) {
	k := b.managed(t)
	k.put(t, "a")
	old := k.fence(t)
	tok, err := b.Namespace.Provision(t.Context(), k.spec, old.Name)
	if err != nil {
		t.Fatal(err)
	}
	if tok.ID == old.ID {
		t.Fatal("two collections have one identity")
	}
	err = b.Client.Write(t.Context(), record.Tokens{k.spec.Name: old}, []record.Mutation{k.mutation("a", 5)})
	wantError(t, "write with an old token", err, record.ErrFenced)
	_, err = b.Namespace.Scan(t.Context(), record.ScanRequest{Token: old, Limit: 1})
	wantError(t, "scan with an old token", err, record.ErrFenced)
	// The writes with the old token must not have reached the new collection.
	impostor := &kind{b: b, spec: k.spec, tok: tok}
	impostor.wantState(t, nil)
	if err := b.Namespace.Drop(t.Context(), tok); err != nil {
		t.Errorf("drop: %v", err)
	}
	k.wantState(t, map[string]record.Record{"a": at("a", 0, guard(1, 1))})
}

// unfenceManaged checks that a managed kind is never given back, so its old tokens stay invalid.
func unfenceManaged(t *testing.T, b *bench) {
	k := b.managed(t)
	k.put(t, "a")
	f := k.announce(t)
	if f.Class != record.FenceUUID {
		t.Logf("left out: managed kinds have class %s", f.Class)
		return
	}
	old := k.fence(t)
	if err := b.Namespace.Unfence(t.Context(), f); err != nil {
		t.Errorf("unfence: %v", err)
	}
	err := b.Client.Write(t.Context(), record.Tokens{k.spec.Name: old}, []record.Mutation{k.mutation("a", 5)})
	wantError(t, "write with an old token after unfence", err, record.ErrFenced)
	k.wantState(t, map[string]record.Record{"a": at("a", 0, guard(1, 1))})
}
