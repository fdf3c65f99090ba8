package sealed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

// TestNothingIsReadable: of a record nothing is stored in clear but its key and what a declared
// index reads.
func TestNothingIsReadable(t *testing.T) {
	t.Parallel()
	index, err := bson.Marshal(bson.D{
		{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "mail", Value: int32(1)}}}, {Key: "name", Value: "mail_1"}, {Key: "unique", Value: true},
		{Key: "partialFilterExpression", Value: bson.D{{Key: "$and", Value: bson.A{bson.D{{Key: "live.now", Value: true}}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{Indexes: []bson.Raw{index}})
	doc := w.put("u1", bson.E{Key: "text", Value: canary}, bson.E{Key: "mail", Value: "m@x"}, bson.E{Key: "live", Value: bson.D{{Key: "now", Value: true}}})
	is := w.stored("u1")
	if bytes.Contains(is, []byte(canary)) || sealed.Under(is) != "a001" {
		t.Errorf("stored is %s", is)
	}
	var fields []string
	elems, _ := is.Elements()
	for _, e := range elems {
		fields = append(fields, e.Key())
	}
	if got := strings.Join(fields, " "); got != "_id mail live _sealed" {
		t.Errorf("readable is %s", got)
	}
	if got, err := w.get("u1"); err != nil || !bytes.Equal(got, doc) {
		t.Errorf("read is %s, %v", got, err)
	}
	if err := w.write(record.Mutation{Kind: "users", Key: record.StringKey("u2"), Doc: docOf(t, "u2", bson.E{Key: "mail", Value: "m@x"}, bson.E{Key: "live", Value: bson.D{{Key: "now", Value: true}}})}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("the unique index does not see the record: %v", err)
	}
	// The same document is never stored the same way twice.
	before := w.stored("u1")
	w.put("u1", bson.E{Key: "text", Value: canary}, bson.E{Key: "mail", Value: "m@x"}, bson.E{Key: "live", Value: bson.D{{Key: "now", Value: true}}})
	if bytes.Equal(before, w.stored("u1")) {
		t.Error("two writes of one document can be told to be equal")
	}
}

// TestWhatWasChanged: an envelope opens at its own place alone, and unchanged.
func TestWhatWasChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001", "a002"), record.Shape{})
	w.put("u1", bson.E{Key: "text", Value: canary})
	w.put("u2", bson.E{Key: "text", Value: "other"})
	env := func(id string) bson.RawValue { return w.stored(id).Lookup(sealed.Field) }
	changed := func(at func(n int) int) bson.Binary {
		sub, data := env("u1").Binary()
		data = bytes.Clone(data)
		data[at(len(data))] ^= 1
		return bson.Binary{Subtype: sub, Data: data}
	}
	sub, data := env("u1").Binary()
	for name, tc := range map[string]struct {
		value any
		want  error
	}{
		"of another record":  {env("u2"), sealed.ErrTampered},
		"text changed":       {changed(func(n int) int { return n - 1 }), sealed.ErrTampered},
		"nonce changed":      {changed(func(int) int { return 6 }), sealed.ErrTampered},
		"under another key":  {bson.Binary{Subtype: sub, Data: append([]byte{data[0], 'a', '0', '0', '2'}, data[5:]...)}, sealed.ErrTampered},
		"under an unknown":   {bson.Binary{Subtype: sub, Data: append([]byte{data[0], 'z', '9', '9', '9'}, data[5:]...)}, sealed.ErrKey},
		"of a newer format":  {bson.Binary{Subtype: sub, Data: append([]byte{9}, data[1:]...)}, nil},
		"cut":                {bson.Binary{Subtype: sub, Data: data[:7]}, sealed.ErrTampered},
		"no envelope at all": {"text", sealed.ErrTampered},
	} {
		doc := docOf(t, "u1", bson.E{Key: sealed.Field, Value: tc.value})
		w.check(w.store.Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey("u1"), Doc: doc}}))
		_, err := w.get("u1")
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if err != nil && (strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "record u1 of users")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Nor does a plain one pass for a record.
	w.check(w.store.Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey("u1"), Doc: docOf(t, "u1")}}))
	if _, err := w.get("u1"); !errors.Is(err, sealed.ErrTampered) {
		t.Errorf("a plain record: %v", err)
	}
	if err := w.sealer.Problem(); err == nil || !errors.Is(err, sealed.ErrKey) {
		t.Errorf("the reason not to serve is %v, want the key that is unknown alone", err)
	}
	// Another version's namespace has the same kinds and keys.
	w.put("u1", bson.E{Key: "text", Value: canary})
	other := sealed.New("v2", func() *sealed.Keys { return w.keys }, w.notes).Client(w.store)
	if _, err := other.Get(t.Context(), w.tok, record.StringKey("u1")); !errors.Is(err, sealed.ErrTampered) {
		t.Errorf("read as v2: %v", err)
	}
}

// TestKeysThatAreRefused: with keys that cannot be right nothing begins.
func TestKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	short := sealed.Key{Name: "a001", Bytes: []byte("short")}
	same := keyOf("a001")
	same.Name = "a002"
	for name, tc := range map[string]struct {
		active string
		keys   []sealed.Key
		want   string
	}{
		"active is not there": {"a002", []sealed.Key{keyOf("a001")}, "the active key a002 is not one of the keys (a001)"},
		"no active":           {"", []sealed.Key{keyOf("a001")}, "is not one of the keys"},
		"active without keys": {"a001", nil, "there are none"},
		"one name twice":      {"a001", []sealed.Key{keyOf("a001"), keyOf("a001")}, "two keys have the name a001"},
		"one key twice":       {"a001", []sealed.Key{keyOf("a001"), same}, "a001 and a002 are the same key"},
		"short key":           {"a001", []sealed.Key{short}, "has 5 bytes, want 32"},
		"long name":           {"a0001", []sealed.Key{{Name: "a0001"}}, "want a name of 4"},
		"name of signs":       {"a-01", []sealed.Key{{Name: "a-01"}}, "want a name of 4"},
		"name of letters":     {"ä01", []sealed.Key{{Name: "ä01"}}, "want a name of 4"},
		"off":                 {"off", []sealed.Key{{Name: "off"}}, "want a name of 4"},
	} {
		if _, err := sealed.NewKeys(tc.active, tc.keys...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", keysOf(t, "a001", "a001"), keysOf(t, "a001", "a001"), keysOf(t, "a001", "a001")); strings.Contains(text, "a001a001") || strings.Contains(text, fmt.Sprint([]byte("a001a0"))) {
		t.Errorf("keys are printed: %s", text)
	}
}

// TestProcessWithoutTheKey: it writes nothing and reads nothing, and says which key it is.
func TestProcessWithoutTheKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
	w.put("u1", bson.E{Key: "text", Value: canary})
	forged, err := sealed.NewKeys("a001", sealed.Key{Name: "a001", Bytes: bytes.Repeat([]byte("x"), sealed.KeySize)})
	w.check(err)
	for name, keys := range map[string]*sealed.Keys{"none": keysOf(t, ""), "another": keysOf(t, "a002", "a002"), "another of its name": forged} {
		s := sealed.New("v1", fixedKeys(keys), w.notes)
		if err := s.Check(t.Context()); !errors.Is(err, sealed.ErrKey) || !strings.Contains(err.Error(), "a001") {
			t.Errorf("%s: check: %v", name, err)
		}
		c := s.Client(w.store)
		before := w.stored("u1")
		if err := c.Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey("u1"), Doc: docOf(t, "u1")}}); !errors.Is(err, sealed.ErrKey) {
			t.Errorf("%s: write: %v", name, err)
		}
		if _, err := c.Get(t.Context(), w.tok, record.StringKey("u1")); err == nil || s.Problem() == nil {
			t.Errorf("%s: read: %v, problem %v", name, err, s.Problem())
		}
		if !bytes.Equal(before, w.stored("u1")) {
			t.Errorf("%s: something was written", name)
		}
	}
}

// TestConditions: a condition on what is in a record holds or not as if nothing were
// encrypted, and a record that goes under another key meanwhile is still the same.
func TestConditions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, keysOf(t, "a001", "a001", "a002"), record.Shape{})
		key := record.StringKey("u1")
		match := func(path string, v any) *record.Match {
			if v == nil {
				return &record.Match{Path: path, Value: bson.RawValue{Type: bson.TypeNull}}
			}
			typ, value, err := bson.MarshalValue(v)
			w.check(err)
			return &record.Match{Path: path, Value: bson.RawValue{Type: typ, Value: value}}
		}
		was := w.put("u1", bson.E{Key: "n", Value: int32(1)})
		next := docOf(t, "u1", bson.E{Key: "n", Value: int32(2)})
		for name, tc := range map[string]struct {
			m    record.Mutation
			want error
		}{
			"another value":    {record.Mutation{Doc: next, Match: match("n", int32(7))}, record.ErrMismatch},
			"a missing field":  {record.Mutation{Doc: next, Match: match("n", nil)}, record.ErrMismatch},
			"another document": {record.Mutation{Doc: next, Match: record.MatchDoc(next)}, record.ErrMismatch},
			"no record":        {record.Mutation{Key: record.StringKey("u2"), Doc: docOf(t, "u2"), Match: match("n", int32(1))}, record.ErrNotFound},
		} {
			tc.m.Kind = "users"
			if tc.m.Key == "" {
				tc.m.Key = key
			}
			if err := w.write(tc.m); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", name, err, tc.want)
			}
		}
		before := w.stored("u1")
		if err := w.write(record.Mutation{Kind: "users", Key: key, Doc: was, Match: record.MatchDoc(was)}); err != nil || !bytes.Equal(before, w.stored("u1")) {
			t.Errorf("a check: %v, and the record is another one: %t", err, !bytes.Equal(before, w.stored("u1")))
		}
		// It goes under another key right before the write, once.
		w.keys = keysOf(t, "a002", "a001", "a002")
		w.turn("r1", "a002")
		moving := &moving{OnceClient: w.store, move: w.bring}
		w.client = w.sealer.Client(moving)
		if err := w.write(record.Mutation{Kind: "users", Key: key, Doc: next, Match: match("n", int64(1))}); err != nil || moving.writes != 2 {
			t.Errorf("under another key meanwhile: %v after %d attempts", err, moving.writes)
		}
		if got, err := w.get("u1"); err != nil || !bytes.Equal(got, next) {
			t.Errorf("it holds %s, %v", got, err)
		}
	})
}

// moving is a client before whose first write something happens.
type moving struct {
	record.OnceClient
	move   func()
	writes int
}

func (m *moving) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	if m.writes++; m.writes == 1 {
		m.move()
	}
	return m.OnceClient.Write(ctx, toks, ms)
}

// TestLife: a namespace is encrypted, brought under another key and decrypted again, during
// a server that learns of it from the database alone.
func TestLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, keysOf(t, ""), record.Shape{})
		server := sealed.New("v1", fixedKeys(keysOf(t, "a001", "a001", "a002")), w.notes).Client(w.store)
		toks := record.Tokens{"users": w.tok}
		w.adopt(sealed.New("v1", fixedKeys(keysOf(t, sealed.Off, "a001", "a002")), w.notes))
		n := 0
		put := func() {
			n++
			id := fmt.Sprint("s", n)
			w.check(server.Write(t.Context(), toks, []record.Mutation{{Kind: "users", Key: record.StringKey(id), Doc: docOf(t, id, bson.E{Key: "text", Value: canary})}}))
		}
		under := func(step string, want map[string]int) {
			t.Helper()
			got := map[string]int{}
			w.check(record.ScanPages(t.Context(), w.store, w.tok, 0, func(p record.Page) error {
				for _, r := range p.Records {
					got[sealed.Under(r.Doc)]++
				}
				return nil
			}))
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: records are under %v, want %v", step, got, want)
			}
			rs, err := server.List(t.Context(), record.ListRequest{Token: w.tok})
			w.check(err)
			for _, r := range rs {
				if text, _ := r.Doc.Lookup("text").StringValueOK(); text != canary {
					t.Errorf("%s: %s holds %s", step, r.Key, r.Doc)
				}
			}
		}
		put()
		under("never encrypted", map[string]int{sealed.Off: 1})
		for _, step := range []struct{ active, run string }{{"a001", "r1"}, {"a002", "r2"}, {sealed.Off, "r3"}, {"a002", "r4"}} {
			w.keys = keysOf(t, step.active, "a001", "a002")
			w.turn(step.run, step.active)
			if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "" {
				t.Errorf("to %s: the promise stands while records are brought there: %+v, %v", step.active, st, err)
			}
			put() // at once, by what is known from before
			w.bring()
			w.check(w.sealer.Finish(t.Context(), "another run"))
			if st, _ := w.sealer.State(t.Context()); st.Promised() != "" {
				t.Errorf("to %s: another run made the promise", step.active)
			}
			w.check(w.sealer.Finish(t.Context(), step.run))
			put()
			under("to "+step.active, map[string]int{step.active: n})
			if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != step.active || len(st.InUse()) != 1 {
				t.Errorf("to %s: %+v, %v", step.active, st, err)
			}
		}
	})
}

// TestOwnField: a document with a field of our name is refused, encrypted or not.
func TestOwnField(t *testing.T) {
	t.Parallel()
	for _, keys := range []*sealed.Keys{keysOf(t, ""), keysOf(t, "a001", "a001")} {
		w := newWorld(t, keys, record.Shape{})
		key, doc := record.StringKey("u1"), docOf(t, "u1", bson.E{Key: sealed.Field, Value: 1})
		toks := record.Tokens{"users": w.tok}
		if err := w.write(record.Mutation{Kind: "users", Key: key, Doc: doc}); !errors.Is(err, record.ErrReserved) || !strings.Contains(err.Error(), sealed.Field) {
			t.Errorf("write: %v", err)
		}
		b := record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{
			{Group: "u1", Version: record.Version{1}, Writes: []record.Write{{Kind: "users", Key: key, Doc: doc}}},
			{Group: "u2", Version: record.Version{1}, Writes: []record.Write{{Kind: "users", Key: record.StringKey("u2"), Doc: docOf(t, "u2")}}},
		}}
		for name, write := range map[string]func(context.Context, record.Batch) ([]record.Result, error){"apply": w.ns.Apply, "load": w.ns.Load} {
			rs, err := write(t.Context(), b)
			if err != nil || rs[0].Outcome != record.Refused || !errors.Is(rs[0].Err, record.ErrReserved) || rs[1].Outcome == record.Refused {
				t.Errorf("%s: %v, %v", name, rs, err)
			}
		}
		was := w.put("u3")
		rs, err := w.ns.Swap(t.Context(), w.tok, []record.Swap{{Key: record.StringKey("u3"), Was: was, Doc: docOf(t, "u3", bson.E{Key: sealed.Field, Value: 1})}})
		if err != nil || rs[0].Outcome != record.Refused {
			t.Errorf("swap: %v, %v", rs, err)
		}
		if _, err := w.client.CreateOnce(t.Context(), toks, "m", []record.Record{{Kind: "users", Key: key, Doc: doc}}); !errors.Is(err, record.ErrReserved) {
			t.Errorf("create once: %v", err)
		}
	}
}

// TestShapesThatCannotBe: a validator, and an index over everything, would have to read what
// is encrypted.
func TestShapesThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
	of := func(d bson.D) bson.Raw {
		raw, err := bson.Marshal(d)
		w.check(err)
		return raw
	}
	for name, shape := range map[string]record.Shape{
		"validator":  {Options: of(bson.D{{Key: "validator", Value: bson.D{{Key: "n", Value: 1}}}})},
		"wildcard":   {Indexes: []bson.Raw{of(bson.D{{Key: "key", Value: bson.D{{Key: "$**", Value: 1}}}, {Key: "name", Value: "all"}})}},
		"text index": {Indexes: []bson.Raw{of(bson.D{{Key: "key", Value: bson.D{{Key: "_fts", Value: "text"}}}, {Key: "name", Value: "all"}, {Key: "weights", Value: bson.D{{Key: "$**", Value: 1}}}})}},
	} {
		_, err := w.ns.Provision(t.Context(), record.KindSpec{Name: "k", Shape: shape}, record.PhysicalName("k", 0))
		if unsupported := new(record.UnsupportedError); !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnreadableIsAlone: a record that is not what was written does not keep those who park it
// from the others, and is in no list that goes on without it.
func TestUnreadableIsAlone(t *testing.T) {
	t.Parallel()
	for name, junk := range map[string]bson.Binary{
		"junk":                      {Subtype: 0x80, Data: bytes.Repeat([]byte{0xee}, 60)},
		"a forged name of a key":    {Subtype: 0x80, Data: append([]byte("\x01z999"), make([]byte, 60)...)},
		"an envelope that is wrong": {Subtype: 0x80, Data: append([]byte("\x01a001"), make([]byte, 60)...)},
	} {
		w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
		for i := range 20 {
			w.put(fmt.Sprintf("u%02d", i), bson.E{Key: "text", Value: canary})
		}
		bad := record.StringKey("u07")
		toks := record.Tokens{"users": w.tok}
		w.check(w.store.Write(t.Context(), toks, []record.Mutation{{Kind: "users", Key: bad, Doc: docOf(t, "u07", bson.E{Key: sealed.Field, Value: junk})}}))
		ns := w.sealer.Namespace(w.store)
		page, err := ns.Scan(t.Context(), record.ScanRequest{Token: w.tok, Limit: 100})
		snap, errRead := ns.Read(t.Context(), record.ReadRequest{Tokens: toks, Select: []record.Selector{{Kind: "users", Key: bad}, {Kind: "users", Key: record.StringKey("u08")}}})
		if err != nil || errRead != nil || len(page.Records) != 20 || len(snap.Records) != 2 {
			t.Errorf("%s: a scan has %d records, %v; a read %d, %v", name, len(page.Records), err, len(snap.Records), errRead)
		}
		for _, r := range append(page.Records, snap.Records...) {
			only := bytes.Equal(r.Doc, docOf(t, "u07"))
			if is := r.Key == bad; is != errors.Is(r.Err, record.ErrUnreadable) || is != (r.Err != nil) || is != only {
				t.Errorf("%s: %s is %s, %v", name, r.Key, r.Doc, r.Err)
			}
		}
		if rs, err := w.client.List(t.Context(), record.ListRequest{Token: w.tok}); !errors.Is(err, record.ErrUnreadable) || len(rs) != 0 {
			t.Errorf("%s: a list has %d records, %v", name, len(rs), err)
		}
		if rs, err := w.client.List(t.Context(), record.ListRequest{Token: w.tok, After: "u07"}); err != nil || len(rs) != 12 {
			t.Errorf("%s: a list of others has %d records, %v", name, len(rs), err)
		}
		// A condition on it is refused for certain, and nothing is written over it.
		err = w.write(record.Mutation{Kind: "users", Key: bad, Doc: docOf(t, "u07"), Match: record.MatchDoc(docOf(t, "u07"))})
		if !errors.Is(err, record.ErrUnreadable) {
			t.Errorf("%s: a write that compares: %v", name, err)
		}
	}
}
