package integration_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	bbsv1 "dbcontroller/gen/bbs/v1"
	"dbcontroller/sample/bbs"
	"dbcontroller/upgradestate"
)

// TestStoppedServer stops a server process with three writes in its hand, past the gate
// and about to be sent to MongoDB, for the whole of a switch. When it goes on, MongoDB
// refuses all of them; each is then made exactly once on the new version, or its client
// is told that it failed.
func TestStoppedServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}"})
	tr := newTraffic(ctx, s, 2*appClients*ownDocuments)
	s.controller("controller", breakPoint{}).ready(ctx)
	stopped := s.server("stopped", 3)
	stopped.ready(ctx)
	tr.start(ctx, s.server("running", 0).ready(ctx))
	client := newBBSClient(s.http, stopped)
	late := lateWrites(ctx, t, client)
	s.awaitLevel(ctx)
	tr.awaitWrites(ctx, "v1", 20)

	raw := holdRaw(ctx, s)
	raw.try(ctx, t, 0)
	events := s.watchData(ctx, "v1")
	stopped.arm(ctx)
	for _, w := range late {
		w.send(ctx, client)
	}
	for range late {
		t.Logf("held: %s", stopped.awaitReached(ctx))
	}
	stopped.signal(ctx, syscall.SIGSTOP)
	s.begin(ctx)
	d := s.await(ctx, "the flip", flipped("v2"))
	tr.awaitWrites(ctx, "v2", 10)

	old := s.oldCollection(ctx, d)
	before := old.content(ctx, t)
	stopped.order(orderRelease)
	stopped.signal(ctx, syscall.SIGCONT)
	for _, w := range late {
		w.await(ctx, t)
	}
	raw.try(ctx, t, wrongUUID)
	if after := old.content(ctx, t); !bytes.Equal(before, after) {
		t.Errorf("%s holds other documents than before the stopped server went on", old.Name())
	}
	events.nothingAfterTheFence(ctx, t, raw.uuid)
	for _, w := range late {
		w.check(ctx, t, client)
		tr.processes.put(w.guid, w.state)
	}
	stopped.ready(ctx)
	tr.servers, tr.client = append(tr.servers, stopped), newBBSClient(s.http, append(tr.servers, stopped)...)
	tr.settle(ctx, d)
}

// late is a write that is under way while its server is stopped.
type late struct {
	name   string
	guid   string
	call   func(ctx context.Context, c *bbsClient) error
	before string // states of the process, as the ledger knows them
	after  string

	done  chan error
	state string // in the end
	index uint32 // of the modification tag before, for an update
}

// lateWrites are a create, an update and a delete, on processes that are there already
// but for the first.
func lateWrites(ctx context.Context, t *testing.T, c *bbsClient) []*late {
	t.Helper()
	made := func(guid string) process {
		p := process{guid: guid, made: 1, changed: 1}
		_, err := c.v1[0].CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: p.v1()}))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	created := process{guid: "late-create", made: 1, changed: 1}
	updated := made("late-update")
	removed := made("late-delete")
	was := updated.state()
	updated.changed = 2
	return []*late{
		{name: "create", guid: created.guid, after: created.state(), call: func(ctx context.Context, c *bbsClient) error {
			_, err := c.v1[0].CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: created.v1()}))
			return err
		}},
		{name: "update", guid: updated.guid, before: was, after: updated.state(), call: func(ctx context.Context, c *bbsClient) error {
			_, err := c.v1[0].UpdateDesiredLRP(ctx, connect.NewRequest(updateOf(updated)))
			return err
		}},
		{name: "delete", guid: removed.guid, before: removed.state(), call: func(ctx context.Context, c *bbsClient) error {
			_, err := c.v1[0].DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: removed.guid}))
			return err
		}},
	}
}

func (w *late) send(ctx context.Context, c *bbsClient) {
	w.done = make(chan error, 1)
	go func() { w.done <- w.call(ctx, c) }()
}

// await waits for what the client is told, which decides what must be there.
func (w *late) await(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case err := <-w.done:
		if w.state = w.after; err != nil {
			w.state = w.before
		}
		t.Logf("the client of the %s is told: %v", w.name, err)
	case <-ctx.Done():
		t.Fatalf("%s: %v", w.name, ctx.Err())
	}
}

// check looks the process up. An update that was made twice has counted twice.
func (w *late) check(ctx context.Context, t *testing.T, c *bbsClient) {
	t.Helper()
	res, err := c.v1[0].GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: w.guid}))
	if connect.CodeOf(err) == connect.CodeNotFound && w.state == "" {
		return
	}
	if err != nil {
		t.Errorf("%s: %v", w.name, err)
		return
	}
	if has := stateV1(res.Msg.GetDesiredLrp()); has != w.state {
		t.Errorf("%s: it holds %q, want %q", w.name, has, w.state)
	}
	changes := uint32(0)
	if w.state == w.after && w.name == "update" {
		changes = 1
	}
	if index := res.Msg.GetDesiredLrp().GetModificationTag().GetIndex(); index != changes {
		t.Errorf("%s: changed %d times, want %d", w.name, index, changes)
	}
}

// wrongUUID is how MongoDB refuses a command with the identity of a collection that has
// another name now.
const wrongUUID = 361

// rawWriter holds a connection of its own, and the token of v1's processes from before
// the switch.
type rawWriter struct {
	db   *mongo.Database
	name string
	uuid bson.Binary
}

func holdRaw(ctx context.Context, s *system) rawWriter {
	s.t.Helper()
	d, err := s.record.Get(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	ns, _ := d.Namespace("v1")
	k, _ := ns.Kind(bbs.KindDesiredLRPs)
	id, err := hex.DecodeString(k.ID)
	if err != nil || len(id) != 16 {
		s.t.Fatalf("the identity of %s is %q: %v", k.Physical, k.ID, err)
	}
	c, err := mongo.Connect(options.Client().ApplyURI(s.uris["v1"]).SetMaxPoolSize(1).SetRetryWrites(false))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := c.Disconnect(context.Background()); err != nil {
			s.t.Error(err)
		}
	})
	return rawWriter{db: c.Database(s.db["v1"].Name()), name: k.Physical, uuid: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id}}
}

// try sends all kinds of writes with the token. code is what each must be refused with, 0
// for none; then the writes change nothing.
func (w rawWriter) try(ctx context.Context, t *testing.T, code int) {
	t.Helper()
	match := bson.D{{Key: "_id", Value: "raw"}}
	commands := []bson.D{
		{{Key: "update", Value: w.name}, {Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: match}, {Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "annotation", Value: "late"}}}}}}}}},
		{{Key: "delete", Value: w.name}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: match}, {Key: "limit", Value: 1}}}}},
	}
	if code != 0 {
		// Unlike the others, these would have an effect.
		live := bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "raw"}}}}
		commands = append(commands,
			bson.D{{Key: "insert", Value: w.name}, {Key: "documents", Value: bson.A{match}}},
			bson.D{{Key: "update", Value: w.name}, {Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: live}, {Key: "multi", Value: true}, {Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "annotation", Value: "late"}}}}}}}}},
			bson.D{{Key: "delete", Value: w.name}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: live}, {Key: "limit", Value: 0}}}}},
		)
	}
	for _, cmd := range commands {
		err := w.db.RunCommand(ctx, append(cmd, bson.E{Key: "collectionUUID", Value: w.uuid})).Err()
		var refusal mongo.ServerError
		switch {
		case code == 0 && err != nil:
			t.Errorf("%s before the switch: %v", cmd[0].Key, err)
		case code != 0 && (!errors.As(err, &refusal) || !refusal.HasErrorCode(code)):
			t.Errorf("late %s: %v, want error %d", cmd[0].Key, err, code)
		}
	}
}

// collection is a collection whose content can be compared.
type collection struct{ *mongo.Collection }

// oldCollection is where v1's processes are after the switch.
func (s *system) oldCollection(ctx context.Context, d upgradestate.Deployment) collection {
	s.t.Helper()
	ns, _ := d.Namespace("v1")
	k, _ := ns.Kind(bbs.KindDesiredLRPs)
	return collection{s.db["v1"].Collection(k.Physical)}
}

// content is every document, byte for byte.
func (c collection) content(ctx context.Context, t *testing.T) []byte {
	t.Helper()
	cursor, err := c.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for cursor.Next(ctx) {
		all.Write(cursor.Current)
	}
	if err := cursor.Err(); err != nil || all.Len() == 0 {
		t.Fatalf("%s has %d bytes: %v", c.Name(), all.Len(), err)
	}
	return all.Bytes()
}

// dataWatch sees every change of a database, from before a switch.
type dataWatch struct {
	db     *mongo.Database
	stream *mongo.ChangeStream
}

func (s *system) watchData(ctx context.Context, version string) dataWatch {
	s.t.Helper()
	stream, err := s.db[version].Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetShowExpandedEvents(true))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := stream.Close(context.Background()); err != nil {
			s.t.Error(err)
		}
	})
	return dataWatch{s.db[version], stream}
}

// nothingAfterTheFence makes sure that a collection was not changed after it was first
// renamed, up to now.
func (w dataWatch) nothingAfterTheFence(ctx context.Context, t *testing.T, uuid bson.Binary) {
	t.Helper()
	const sentinel = "sentinel"
	if _, err := w.db.Collection(sentinel).InsertOne(ctx, bson.D{}); err != nil {
		t.Fatal(err)
	}
	fenced, writes := false, 0
	for w.stream.Next(ctx) {
		e := w.stream.Current
		operation, _ := e.Lookup("operationType").StringValueOK()
		name, _ := e.Lookup("ns", "coll").StringValueOK()
		if name == sentinel && operation == "insert" {
			if !fenced || writes == 0 {
				t.Errorf("the stream has a rename: %v, and %d writes before it; it should have seen both", fenced, writes)
			}
			return
		}
		if _, id, ok := e.Lookup("collectionUUID").BinaryOK(); !ok || !bytes.Equal(id, uuid.Data) {
			continue
		}
		switch operation {
		case "rename":
			fenced = true
		case "insert", "update", "replace", "delete":
			if writes++; fenced {
				t.Errorf("after the fence: %s", fmt.Sprintf("%.300s", e))
			}
		}
	}
	t.Fatalf("read changes: %v", w.stream.Err())
}
