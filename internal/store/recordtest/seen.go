package recordtest

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// applySeen checks that record.Write.Seen never changes an outcome. Records are read in one state and
// written in the same or another one, once with what was read and once without.
func applySeen(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	// A record goes through these states. Each begins where the one before ends.
	states := []struct {
		name  string
		enter func(k *kind, key string)
	}{
		{"absent", func(*kind, string) {}},
		{"of a client", func(k *kind, key string) {
			if k.spec.Fixed {
				k.b.insert(t, k, key)
			}
		}},
		{"live", func(k *kind, key string) { b.apply(t, tokens(k), 1, group(2, k.set(key, 2))) }},
		{"deleted", func(k *kind, key string) { b.apply(t, tokens(k), 1, group(4, k.set(key, -1))) }},
		{"live again", func(k *kind, key string) { b.apply(t, tokens(k), 1, group(6, k.set(key, 6))) }},
		{"deleted by a client", func(k *kind, key string) {
			if k.spec.Fixed {
				k.b.remove(t, k, key)
			}
		}},
	}
	trusting, asking, other := mk(t), mk(t), mk(t)
	var cases []string
	outcomes := map[bool][]record.Outcome{}
	for _, k := range []*kind{trusting, asking} {
		toks := tokens(k, other)
		n := 0
		for seen := range states {
			for now := seen; now < len(states); now++ {
				for _, v := range []int{5, 9} {
					for _, doc := range []int{v, -1} {
						key := fmt.Sprintf("%03d", n)
						for _, s := range states[:seen+1] {
							s.enter(k, key)
						}
						n++
						ws := []record.Write{k.set(key, doc), other.set(k.spec.Name+key, v)}
						if k == trusting {
							b.see(t, toks, ws)
							cases = append(cases, fmt.Sprintf("seen %s, now %s, written %d at %d", states[seen].name, states[now].name, doc, v))
						}
						for _, s := range states[seen+1 : now+1] {
							s.enter(k, key)
						}
						outcomes[k == trusting] = append(outcomes[k == trusting], b.apply(t, toks, 1, group(v, ws...))[0].Outcome)
					}
				}
			}
		}
	}
	has, want := trusting.all(t), asking.all(t)
	for i, c := range cases {
		if got, without := outcomes[true][i], outcomes[false][i]; got != without {
			t.Errorf("%s: %s, without Seen %s", c, got, without)
		}
		key := record.StringKey(fmt.Sprintf("%03d", i))
		if has[key].Guard != want[key].Guard || has[key].Tombstone != want[key].Tombstone || string(has[key].Doc) != string(want[key].Doc) {
			t.Errorf("%s: %v %v, without Seen %v %v", c, has[key].Guard, has[key].Doc, want[key].Guard, want[key].Doc)
		}
	}
}

// see adds what is stored to writes.
func (b *bench) see(t *testing.T, toks record.Tokens, ws []record.Write) {
	t.Helper()
	req := record.ReadRequest{Tokens: toks, Guards: true, NotBefore: b.now(t).At}
	for _, w := range ws {
		req.Select = append(req.Select, record.Selector{Kind: w.Kind, Key: w.Key})
	}
	snap, err := b.Namespace.Read(t.Context(), req)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	for i := range ws {
		ws[i].Seen = &record.Record{}
		for _, r := range snap.Records {
			if r.Kind == ws[i].Kind && r.Key == ws[i].Key {
				ws[i].Seen = &r
			}
		}
	}
}

// insert adds a record as the application does.
func (b *bench) insert(t *testing.T, k *kind, key string) {
	t.Helper()
	if err := b.App.Insert(t.Context(), k.tok.Name, doc(key, 1)); err != nil {
		t.Fatal(err)
	}
}

// remove deletes a record as the application does.
func (b *bench) remove(t *testing.T, k *kind, key string) {
	t.Helper()
	if err := b.App.Delete(t.Context(), k.tok.Name, record.StringKey(key).Value()); err != nil {
		t.Fatal(err)
	}
}

// applySeenConflict checks applySeenRefused with a unique index.
func applySeenConflict(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no unique indexes")
		return
	}
	applySeenRefused(t, b, func() *kind { return mk(t, uniqueOn("mail")) }, func(k *kind) record.Write { return k.mail("new", "taken@x") })
}

// applySeenInvalid checks applySeenRefused with a validator.
func applySeenInvalid(t *testing.T, b *bench) {
	if b.NoOptions {
		t.Log("left out: the backend has no validators")
		return
	}
	mk := func() *kind {
		return b.fixed(t, record.Shape{Options: raw(bson.D{
			{Key: "validator", Value: bson.D{{Key: "mail", Value: bson.D{{Key: "$exists", Value: true}}}}},
		})})
	}
	applySeenRefused(t, b, mk, func(k *kind) record.Write { return k.set("new", 1) })
}

// applySeenRefused checks that record.Write.Seen does not make a stale group Refused. The group was
// read, and then another writer wrote a later version of it. The target refuses its new record, and
// the group is Stale all the same. Without a later version the refusal stands.
func applySeenRefused(t *testing.T, b *bench, mk func() *kind, refused func(k *kind) record.Write) {
	for _, later := range []bool{true, false} {
		for _, trust := range []bool{true, false} {
			k := mk()
			toks := tokens(k)
			wantOutcomes(t, b.apply(t, toks, 1, group(2, k.mail("old", "a@x"))), record.Applied)
			ws := []record.Write{refused(k), k.mail("old", "b@x")}
			if trust {
				b.see(t, toks, ws)
			}
			wantOutcomes(t, b.apply(t, toks, 1, group(9, k.mail("other", "taken@x"))), record.Applied)
			want := record.Refused
			if later {
				wantOutcomes(t, b.apply(t, toks, 1, group(9, k.mail("old", "c@x"))), record.Applied)
				want = record.Stale
			}
			res := b.apply(t, toks, 1, group(5, ws...), group(5, k.mail("besides", "d@x")))
			if res[0].Outcome != want || res[1].Outcome != record.Applied {
				t.Errorf("later version %t, Seen %t: %s and %s, want %s and %s", later, trust, res[0].Outcome, res[1].Outcome, want, record.Applied)
			}
		}
	}
}
