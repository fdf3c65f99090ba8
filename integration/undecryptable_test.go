package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/examples/bbs"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/refusal"
)

const (
	damagedGUID = "damaged-process"
	strangeGUID = "strange-process"
	// lostKey is in no set of keys.
	lostKey = "z999"
)

// TestUndecryptable upgrades records of which one was damaged in the database and another one is
// under a key that nobody has. Both are parked by name, with what to do and nothing of what they
// hold, and the switch waits. The one goes along once it was restored, the other stays behind once
// it was waived: neither the upgrade, nor reverse sync, nor the rollback touches what is stored
// of it, so that it can still be restored.
func TestUndecryptable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[]", encryption: map[string]string{
		"v1": keysSection("a001", "a001"), "v2": keysSection("b001", "b001"),
	}})
	s.makeKeys("a001", "b001")
	controller := s.controller("controller", breakPoint{}).ready(ctx)
	server := s.server("server", 0).ready(ctx)
	client := newBBSClient(s.http, server)
	for i, guid := range []string{damagedGUID, strangeGUID, "good-0", "good-1", "good-2"} {
		if _, err := client.v1[0].CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{
			DesiredLrp: process{guid: guid, made: int64(i), changed: int64(i)}.v1(),
		})); err != nil {
			t.Fatal(err)
		}
	}
	api, _ := controller.addresses()
	dbc := func(args ...string) result {
		t.Helper()
		res := execute(ctx, t, nil, append(args, "--server", api)...)
		if strings.Contains(res.stdout+res.stderr, held) {
			t.Errorf("%v shows what records hold: %+v", args, res)
		}
		return res
	}

	stored := s.damage(ctx, damagedGUID, func(envelope []byte) { envelope[len(envelope)/2] ^= 1 })
	s.damage(ctx, strangeGUID, func(envelope []byte) { copy(envelope[1:], lostKey) })
	strange := s.asStored(ctx, strangeGUID)
	for guid, want := range map[string]refusal.Reason{damagedGUID: refusal.Unreadable, strangeGUID: refusal.KeyMissing} {
		_, err := client.v1[0].GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: guid}))
		if reason, _ := refusal.Of(err); reason != want || !strings.Contains(err.Error(), guid) || strings.Contains(err.Error(), held) {
			t.Errorf("reading %s: reason %q, %v; want %q", guid, reason, err, want)
		}
	}

	s.begin(ctx)
	var parked string
	eventually(ctx, t, "both are parked", func() error {
		if parked = dbc("parked").stdout; !strings.Contains(parked, damagedGUID) || !strings.Contains(parked, strangeGUID) {
			return errors.New(parked)
		}
		return nil
	})
	for _, want := range []string{"does not decrypt with key a001: the record was changed or moved", "with key " + lostKey, "add the file of " + lostKey} {
		if !strings.Contains(parked, want) {
			t.Errorf("parked does not say %q:\n%s", want, parked)
		}
	}
	t.Log(parked)
	s.waitsForParked(ctx, dbc, 2)
	if ps, err := s.record.ParkedNow(ctx); err != nil || len(ps) != 2 {
		t.Errorf("parked: %+v, %v", ps, err)
	}

	// A backup has the one.
	if _, err := s.desired(ctx).ReplaceOne(ctx, bson.D{{Key: "_id", Value: damagedGUID}}, stored); err != nil {
		t.Fatal(err)
	}
	s.waitsForParked(ctx, dbc, 1)
	dbc("parked", "waive", "--kind", bbs.KindDesiredLRPs, "--key", damagedGUID).refuses(t, damagedGUID)
	if res := dbc("parked", "waive", "--kind", bbs.KindDesiredLRPs, "--key", strangeGUID); res.code != 0 {
		t.Fatalf("waive: %+v", res)
	}
	s.await(ctx, "the flip", flipped("v2"))
	s.hasAllBut(ctx, client, strangeGUID)
	s.awaitSync(ctx)
	if res := dbc("verify"); res.code != 0 || !strings.Contains(res.stdout, "0 different, 1 waived") || !strings.Contains(res.stdout, strangeGUID+" (waived)") {
		t.Errorf("verify says %+v, want that v1 has one more, which was waived", res)
	}
	if now := s.asStored(ctx, strangeGUID); !bytes.Equal(now, strange) {
		t.Errorf("what v1 has of %s was %s, and after the switch it is %s", strangeGUID, strange, now)
	}

	s.beginTo(ctx, "v1")
	s.await(ctx, "the rollback", flipped("v1"))
	if now := s.asStored(ctx, strangeGUID); !bytes.Equal(now, strange) {
		t.Errorf("what v1 has of %s was %s, and after the rollback it is %s", strangeGUID, strange, now)
	}
	for _, c := range []*child{controller, server} {
		if strings.Contains(c.output(), held) {
			t.Errorf("the log of %s has what records hold", c.name)
		}
	}
	kvs, _, err := s.etcd.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		if strings.HasPrefix(kv.Key, s.record.Root()) && bytes.Contains(kv.Value, []byte(held)) {
			t.Errorf("what records hold is in etcd, in %s", kv.Key)
		}
	}
}

// waitsForParked waits until so many records hold up the upgrade, and get deployment says so.
func (s *system) waitsForParked(ctx context.Context, dbc func(args ...string) result, n int) {
	s.t.Helper()
	eventually(ctx, s.t, fmt.Sprintf("the upgrade waits for %d parked", n), func() error {
		ps, err := s.record.ParkedNow(ctx)
		if err != nil || len(ps) != n {
			return fmt.Errorf("parked %+v, %w", ps, errors.Join(err, errTooFew))
		}
		if text := dbc("get", "deployment").stdout; !strings.Contains(text, "INITIAL_SYNCING") || !strings.Contains(text, "parked") {
			return errors.New(text)
		}
		return nil
	})
}

// desired is the collection that the current version v1 has its processes in.
func (s *system) desired(ctx context.Context) *mongo.Collection {
	s.t.Helper()
	d, err := s.record.Get(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	ns, _ := d.Namespace("v1")
	for _, k := range ns.Kinds {
		if k.Kind == bbs.KindDesiredLRPs {
			return s.db["v1"].Collection(k.Physical)
		}
	}
	s.t.Fatalf("v1 has no processes: %+v", ns)
	return nil
}

// asStored is what v1 has of a process.
func (s *system) asStored(ctx context.Context, guid string) bson.Raw {
	s.t.Helper()
	doc, err := s.desired(ctx).FindOne(ctx, bson.D{{Key: "_id", Value: guid}}).Raw()
	if err != nil {
		s.t.Fatalf("%s: %v", guid, err)
	}
	return doc
}

// damage changes the envelope of a process in the database, and returns what was stored.
func (s *system) damage(ctx context.Context, guid string, by func(envelope []byte)) bson.Raw {
	s.t.Helper()
	was := s.asStored(ctx, guid)
	subtype, envelope := was.Lookup(sealed.Field).Binary()
	envelope = bytes.Clone(envelope)
	by(envelope)
	_, err := s.desired(ctx).UpdateByID(ctx, guid, bson.D{{Key: "$set", Value: bson.D{{Key: sealed.Field, Value: bson.Binary{Subtype: subtype, Data: envelope}}}}})
	if err != nil {
		s.t.Fatal(err)
	}
	return was
}

// hasAllBut checks which processes clients see.
func (s *system) hasAllBut(ctx context.Context, client *bbsClient, left string) {
	s.t.Helper()
	v1, v2, err := client.list(ctx, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, guid := range []string{damagedGUID, strangeGUID, "good-0", "good-1", "good-2"} {
		_, in1 := v1[guid]
		_, in2 := v2[guid]
		if want := guid != left; in1 != want || in2 != want {
			s.t.Errorf("%s is there in v1: %t, in v2: %t, want %t", guid, in1, in2, want)
		}
	}
}
