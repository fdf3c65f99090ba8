package etcdstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/record"
)

// everything is all keys of an etcd below a prefix, with their values.
func everything(t *testing.T, conn *etcdconn.Conn, prefix string) (all []string) {
	t.Helper()
	resp, err := conn.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		all = append(all, string(kv.Key)+"="+string(kv.Value))
	}
	return all
}

func put(t *testing.T, conn *etcdconn.Conn, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, err := conn.Put(t.Context(), key, "theirs"); err != nil {
			t.Fatal(err)
		}
	}
}

// lives makes a namespace that has a record.
func lives(t *testing.T, s *etcdstore.Store, o record.Owner) record.Token {
	t.Helper()
	tok := provisioned(t, s, "k")
	_, err := s.Load(t.Context(), record.Batch{Epoch: 1, Tokens: record.Tokens{"k": tok}, Groups: []record.GroupWrite{
		{Group: "a", Writes: []record.Write{{Kind: "k", Key: record.StringKey("a"), Doc: raw(t, bson.D{{Key: "_id", Value: "a"}})}}},
	}})
	if err == nil {
		err = errors.Join(s.Claim(t.Context(), tok, o), s.PutMark(t.Context(), record.Mark{Owner: o, Body: raw(t, bson.D{})}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func raw(t *testing.T, d bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestClearLeavesOthers: below the prefix of a version that is retired may be another service,
// or an application. What is theirs stays, to the last key, wherever it is.
func TestClearLeavesOthers(t *testing.T) {
	conn := connect(t, startEtcd(t))
	mine, theirs := record.Owner{Deployment: "a", Version: "v1"}, record.Owner{Deployment: "b", Version: "v1"}
	for _, prefix := range []string{"/bbs/eu/", "/bbs/d/", "/bbs/xx/d/"} { // from before they were refused
		lives(t, at(t, conn, prefix), theirs)
		put(t, conn, prefix+"i")
	}
	put(t, conn, "/bbs/settings", "/bbs/d", "/bbs/d/x/y", "/bbs/ii", "/bbs/z/k", "/bbs/s/x", "/bbs/scratches", "/bbs/", "/bbs0")
	others := everything(t, conn, "/bbs")

	s := at(t, conn, "/bbs/")
	tok := lives(t, s, mine)
	put(t, conn, "/bbs/i", "/bbs/x/"+tok.ID+"/late")
	with := everything(t, conn, "/bbs")
	if left, err := s.Clear(t.Context()); err != nil || !slices.Contains(left, tok.Name) || !slices.Equal(everything(t, conn, "/bbs"), with) {
		t.Errorf("while a kind is there: left %q, %v; there are %q", left, err, everything(t, conn, "/bbs"))
	}
	if err := s.Drop(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	put(t, conn, "/bbs/x/"+tok.ID+"/late") // of a fence that was sent before
	put(t, conn, "/bbs/u")                 // of a Nudge whose process died before it took it away
	left, err := s.Clear(t.Context())
	if err != nil || !strings.Contains(strings.Join(left, " "), "/bbs/eu/") {
		t.Errorf("left %q, %v", left, err)
	}
	if now := everything(t, conn, "/bbs"); !slices.Equal(now, others) {
		t.Errorf("there are\n%q\nand of others were\n%q", now, others)
	}
}

// TestDropScratchLeavesOthers: it may be thrown away, and what somebody has put there since not.
func TestDropScratchLeavesOthers(t *testing.T) {
	conn := connect(t, startEtcd(t))
	s := at(t, conn, "/bbs_dbcrehearsal/")
	if err := s.ClaimScratch(t.Context()); err != nil {
		t.Fatal(err)
	}
	lives(t, s, record.Owner{Deployment: "a", Version: "v1"})
	put(t, conn, "/bbs_dbcrehearsal/eu/k")
	if err := s.DropScratch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := everything(t, conn, "/bbs"); !slices.Equal(now, []string{"/bbs_dbcrehearsal/eu/k=theirs"}) {
		t.Errorf("there are %q", now)
	}
}

// TestPrefixesApart: of two namespaces of which one would be below the other only one begins,
// whatever the order, and none where somebody has keys. The user need not see what is above.
func TestPrefixesApart(t *testing.T) {
	secured := startSecured(t)
	conn := secured.root
	begins := func(s *etcdstore.Store) error {
		_, err := s.Identify(t.Context())
		if checked := s.Check(t.Context()); (checked == nil) != (err == nil) {
			t.Errorf("the check says %v, and it ends with: %v", checked, err)
		}
		if _, surveyed := s.Survey(t.Context()); err != nil && (surveyed == nil || !strings.Contains(err.Error(), surveyed.Error())) {
			t.Errorf("a plan that only reads is told %v, and it ends with: %v", surveyed, err)
		}
		return err
	}
	allowed := func(prefix string) {
		t.Helper()
		if err := begins(at(t, conn, prefix)); err != nil {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	refused := func(prefix, why string) {
		t.Helper()
		before := everything(t, conn, prefix)
		err := begins(at(t, conn, prefix))
		if unsupported := new(record.UnsupportedError); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %s", prefix, err, why)
		}
		if !slices.Equal(everything(t, conn, prefix), before) {
			t.Errorf("%s: it was refused, and something is changed", prefix)
		}
	}
	allowed("/bbs/")
	allowed("/bbs/") // again
	allowed("/bbs2/")
	refused("/bbs/eu/", "another namespace has all keys below /bbs/")
	refused("/bbs/d/", "another namespace has all keys below /bbs/")
	allowed("/shop/eu/v1/")
	refused("/shop/", "there are other keys below it already, /shop/eu/")
	put(t, conn, "/own/d/x")
	refused("/own/", "there are other keys below it already, /own/d/")
	put(t, conn, "/app/i") // it only looks like one
	allowed("/app/v1/")
	if err := at(t, conn, "/old_dbcrehearsal/").ClaimScratch(t.Context()); err != nil {
		t.Fatal(err)
	}
	allowed("/old_dbcrehearsal/")
	refused("/old_dbcrehearsal/v1/", "are deleted")

	secured.application(t, "narrow", "/bbs/us/", "/app/ping")
	if err := begins(at(t, secured.login(t, "narrow"), "/bbs/us/")); err != nil {
		t.Errorf("a user who may not read above: %v", err)
	}

	for i := range 20 {
		outer := fmt.Sprintf("/race/%d/", i)
		var g errgroup.Group
		var errs [2]error
		for j, prefix := range []string{outer, outer + "eu/"} {
			s := at(t, conn, prefix)
			g.Go(func() error { _, errs[j] = s.Identify(t.Context()); return nil })
		}
		if _ = g.Wait(); (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("round %d: %v and %v", i, errs[0], errs[1])
		}
	}
}
