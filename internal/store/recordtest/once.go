package recordtest

import (
	"sync/atomic"
	"testing"

	"dbcontroller.dev/record"
)

var onceTests = []test{
	{"what is there stays, and nothing comes back", withOnce(onceLeaves)},
	{"all or nothing", withOnce(onceWhole)},
	{"the marker moves with the kinds, and goes with the last", withOnce(onceMoves)},
	{"an old token", withOnce(onceFenced)},
	{"one of several", withOnce(onceOne)},
}

func withOnce(run func(*testing.T, *bench, record.OnceClient)) func(*testing.T, *bench) {
	return func(t *testing.T, b *bench) {
		c, ok := b.Client.(record.OnceClient)
		if !ok {
			t.Log("left out: the backend's client does not create once")
			return
		}
		run(t, b, c)
	}
}

func (k *kind) start(name string, n int) record.Record {
	return record.Record{Kind: k.spec.Name, Key: record.StringKey(name), Doc: doc(name, n)}
}

// once makes one call and checks its outcome.
func once(t *testing.T, c record.OnceClient, toks record.Tokens, marker string, want bool, recs ...record.Record) {
	t.Helper()
	made, err := c.CreateOnce(t.Context(), toks, marker, recs)
	if err != nil || made != want {
		t.Errorf("create once: made %t, %v, want %t", made, err, want)
	}
}

func onceLeaves(t *testing.T, b *bench, c record.OnceClient) {
	k, l := b.managed(t), b.managed(t)
	k.put(t, "theirs") // with state 0
	b.apply(t, tokens(l), 1, group(1, l.set("dead", -1)))
	recs := []record.Record{k.start("theirs", 7), k.start("new", 1), l.start("dead", 2), l.start("new", 3)}
	once(t, c, tokens(k, l), "start", true, recs...)
	k.wantDoc(t, "theirs", 0)
	k.wantDoc(t, "new", 1)
	l.wantDoc(t, "dead", 2)
	l.wantDoc(t, "new", 3)
	ok(t, "delete", k.do(t, k.mutation("new", -1)))
	// The marker decides, so not even a new record is created.
	once(t, c, tokens(k, l), "start", false, append(recs, k.start("later", 1))...)
	k.wantDoc(t, "new", -1)
	k.wantDoc(t, "later", -1)
	once(t, c, tokens(k, l), "another", true, k.start("new", 9))
	k.wantDoc(t, "new", 9)
	list, err := c.List(t.Context(), record.ListRequest{Token: k.tok})
	if err != nil || len(list) != 2 {
		t.Errorf("a client sees %v, %v, want two records", list, err)
	}
	// A call without records must leave its marker, too.
	empty := b.managed(t)
	once(t, c, tokens(empty), "nothing is missing", true)
	once(t, c, tokens(empty), "nothing is missing", false, empty.start("a", 1))
	empty.wantDoc(t, "a", -1)
}

func onceWhole(t *testing.T, b *bench, c record.OnceClient) {
	k := b.managed(t)
	bad := record.Record{Kind: k.spec.Name, Key: record.StringKey("b"), Doc: doc("other", 1)}
	// A bad record must leave neither records nor the marker.
	if made, err := c.CreateOnce(t.Context(), tokens(k), "start", []record.Record{k.start("a", 1), bad}); err == nil || made {
		t.Errorf("a document with another _id: made %t, %v", made, err)
	}
	k.wantDoc(t, "a", -1)
	once(t, c, tokens(k), "start", true, k.start("a", 1))
	if b.NoIndexes {
		return
	}
	l := b.managed(t, uniqueOn("mail"))
	mail := func(name, mail string) record.Record {
		w := l.mail(name, mail)
		return record.Record{Kind: w.Kind, Key: w.Key, Doc: w.Doc}
	}
	_, err := c.CreateOnce(t.Context(), tokens(k, l), "unique", []record.Record{k.start("b", 1), mail("x", "m@x"), mail("y", "m@x")})
	wantError(t, "records that a unique index refuses", err, record.ErrConflict)
	k.wantDoc(t, "b", -1)
	once(t, c, tokens(k, l), "unique", true, k.start("b", 1), mail("x", "m@x"))
}

func onceMoves(t *testing.T, b *bench, c record.OnceClient) {
	k, l := b.managed(t), b.managed(t)
	once(t, c, tokens(k, l), "start", true, k.start("a", 1))
	ok(t, "delete", k.do(t, k.mutation("a", -1)))
	k.fence(t)
	l.fence(t)
	once(t, c, tokens(k, l), "start", false, k.start("a", 1))
	k.wantDoc(t, "a", -1)
	// The marker must end only when the last kind is dropped.
	// Drop the collection and create an empty one under its name.
	drop := func(k *kind) {
		t.Helper()
		name := k.tok.Name
		if err := b.Namespace.Drop(t.Context(), k.tok); err != nil {
			t.Fatal(err)
		}
		tok, err := b.Namespace.Provision(t.Context(), k.spec, name)
		if err != nil {
			t.Fatal(err)
		}
		k.tok = tok
	}
	drop(k)
	once(t, c, tokens(k, l), "start", false, k.start("a", 1))
	drop(l)
	once(t, c, tokens(k, l), "start", true, k.start("a", 1))
	k.wantDoc(t, "a", 1)
}

func onceFenced(t *testing.T, b *bench, c record.OnceClient) {
	k, l := b.managed(t), b.managed(t)
	k.put(t, "there")
	old := k.fence(t)
	toks := record.Tokens{k.spec.Name: old, l.spec.Name: l.tok}
	for what, recs := range map[string][]record.Record{
		"something to create": {l.start("a", 1), k.start("a", 1)},
		"nothing to create":   {k.start("there", 1)},
	} {
		made, err := c.CreateOnce(t.Context(), toks, what, recs)
		if wantError(t, what, err, record.ErrFenced); made {
			t.Errorf("%s: made", what)
		}
		l.wantDoc(t, "a", -1)
		k.wantDoc(t, "a", -1)
		once(t, c, tokens(k, l), what, true) // the failed call left no marker
	}
}

// onceOne lets several servers call at once. One of them must create the records. A record that a
// client deletes at once must stay deleted.
func onceOne(t *testing.T, b *bench, c record.OnceClient) {
	for range 3 {
		k, l := b.managed(t), b.managed(t)
		var won atomic.Int32
		g, ctx := together(t)
		for n := range 6 {
			g.Go(func() error {
				made, err := c.CreateOnce(ctx, tokens(k, l), "start", []record.Record{k.start("a", n), l.start("b", n)})
				if err != nil {
					return err
				}
				if made {
					won.Add(1)
				}
				// Delete the record at once. A second creation would bring it back.
				return c.Write(ctx, tokens(k, l), []record.Mutation{k.mutation("a", -1)})
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := won.Load(); n != 1 {
			t.Errorf("%d calls created", n)
		}
		k.wantDoc(t, "a", -1)
	}
}
