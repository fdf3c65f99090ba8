package keys

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// away is the connection to a database that does not answer.
type away struct{ keyedConnection }

func (away) Encryption(context.Context) (*sealed.Namespace, error) {
	return nil, errors.New("no reachable servers")
}

// takes reports whether the database of v1 takes a document under a key.
func (k *keyed) takes(key string) bool {
	k.t.Helper()
	d, err := k.Deployments.Get(k.t.Context())
	k.check(err)
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: sealed.Field, Value: bson.Binary{Subtype: 0x80, Data: append([]byte{1}, key...)}}})
	k.check(err)
	toks := record.Tokens{}
	for _, tok := range managed(d, "v1") {
		toks[tok.Kind] = tok
	}
	err = k.store.Write(k.t.Context(), toks, []record.Mutation{{Kind: "things", Key: record.StringKey(key), Doc: doc}})
	if err != nil && !errors.Is(err, record.ErrLabel) {
		k.t.Fatal(err)
	}
	return err == nil
}

// hold does once what the leader does every lookAtKeys for the databases themselves.
func (k *keyed) hold() error {
	k.t.Helper()
	d, err := k.Deployments.Get(k.t.Context())
	k.check(err)
	return k.holdKeys(k.t.Context(), d)
}

// TestDatabasesAreHeldToTheirKeys: a database takes what is under another key only until the leader
// looks, also in the middle of a rotation, and while the databases of other versions are away. Until
// a rotation has turned the key it is left alone: it takes both.
func TestDatabasesAreHeldToTheirKeys(t *testing.T) {
	t.Parallel()
	k := newKeyed(t, keysOf(t, "a001", "a001", "a002"))
	want := func(when string, old, now bool) {
		t.Helper()
		if o, n := k.takes("a001"), k.takes("a002"); o != old || n != now {
			t.Errorf("%s it takes a001: %t, a002: %t; want %t, %t", when, o, n, old, now)
		}
	}
	d, err := k.Deployments.Get(t.Context())
	k.check(err)
	toks := managed(d, "v1")
	loosen := func() { // as by somebody who removes a validator
		k.check(k.store.Require(t.Context(), toks, record.Label{Field: sealed.Field, Begins: [][]byte{[]byte("\x01a001"), []byte("\x01a002")}}))
	}
	k.check(k.hold())
	want("without a rotation", true, true)

	u := k.begin("r1", "a002")
	loosen()
	k.check(k.hold())
	want("before the key is turned", true, true)
	k.check(k.way.Sealer().Turn(t.Context(), "", u.ID, u.Key, nil))
	k.check(k.hold())
	want("in the rotation", false, true)

	k.finish(u.ID)
	loosen()
	k.databases["v2"] = away{}
	d = k.apply(upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{Version: "v2", Location: "mem:v2"}})
	for range d.Namespaces {
		loosen()
		if err := k.holdKeys(t.Context(), d); err == nil {
			t.Error("nothing is said of the database that is away")
		}
		want("after it", false, true)
		slices.Reverse(d.Namespaces)
	}
	delete(k.databases, "v2")
	k.begin("r2", "a001")
	loosen()
	k.check(k.hold())
	want("before the key is turned again", true, true)
}

// TestRotationShowsWhatJoins: the indexes of a kind that was made before the key was turned, and
// joins after that, see what they are over.
func TestRotationShowsWhatJoins(t *testing.T) {
	t.Parallel()
	k := newKeyed(t, keysOf(t, "off", "a001"))
	u := k.begin("r1", "a001")
	turn := func() {
		t.Helper()
		waits, err := (rotation{k.Keeper}).turn(t.Context(), u, k.way)
		if waits != "" || err != nil {
			t.Fatalf("it waits for %q, %v", waits, err)
		}
	}
	turn()
	index, err := bson.Marshal(bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "mail", Value: int32(1)}}}, {Key: "name", Value: "mail_1"}})
	k.check(err)
	tok, err := k.store.Provision(t.Context(), record.KindSpec{Name: "users", Shape: record.Shape{Indexes: []bson.Raw{index}}}, record.PhysicalName("users", 1))
	k.check(err)
	k.apply(upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: "v1", Location: "mem:v1", Kinds: []upgradestate.Kind{{Kind: "users", Physical: tok.Name, ID: tok.ID}},
	}})
	turn() // before the next kind
	if st, err := k.way.Sealer().State(t.Context()); err != nil || !slices.Equal(st.Clear["users"], []string{"mail"}) {
		t.Errorf("%+v, %v", st, err)
	}
}

// counting counts what goes through it.
type counting struct {
	record.Namespace
	scans, described, required int
}

func (c *counting) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	c.scans++
	return c.Namespace.Scan(ctx, req)
}

func (c *counting) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	c.described++
	return c.Namespace.Describe(ctx, kind, name)
}

func (c *counting) Require(ctx context.Context, toks []record.Token, l record.Label) error {
	c.required++
	return c.Namespace.Require(ctx, toks, l)
}

// TestRotationIsWrapped: what Options.Wrap puts before a database is before what a rotation reads
// and writes, too.
func TestRotationIsWrapped(t *testing.T) {
	t.Parallel()
	k := newKeyed(t, keysOf(t, "a001", "a001", "a002"))
	c := &counting{}
	k.Wrap = func(version string, ns record.Namespace) record.Namespace {
		if version != "v1" {
			t.Errorf("it is asked for %s", version)
		}
		c.Namespace = ns
		return c
	}
	u := k.begin("r1", "a002")
	_, stored, waits, err := (rotation{k.Keeper}).Begin(t.Context(), u, false)
	if waits != "" || err != nil {
		t.Fatalf("it waits for %q, %v", waits, err)
	}
	d, err := k.Deployments.Get(t.Context())
	k.check(err)
	if _, err := stored.Scan(t.Context(), record.ScanRequest{Token: managed(d, "v1")[0]}); err != nil {
		t.Error(err)
	}
	if c.scans != 1 || c.described == 0 || c.required == 0 {
		t.Errorf("through it went %d scans, %d descriptions, %d labels", c.scans, c.described, c.required)
	}
}
