package integration_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/examples/bbs"
	"dbcontroller.dev/upgradestate"
)

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

// refusesLate makes sure that the application's collection of a version takes no writes
// under its own name any longer, as far as its fence class goes.
func (s *system) refusesLate(ctx context.Context, d upgradestate.Deployment, version string) {
	s.t.Helper()
	ns, _ := d.Namespace(version)
	k, _ := ns.Kind(packagesKind)
	c := s.db[version].Collection(packagesKind)
	match := bson.D{{Key: "_id", Value: packageKey(0)}}
	_, inserted := c.InsertOne(ctx, bson.D{})
	_, updated := c.UpdateOne(ctx, match, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: -1}}}})
	errs := map[string]error{"insert": inserted, "update": updated}
	if k.Fence != "validator" { // which lets deletes pass, and says so
		_, errs["delete"] = c.DeleteOne(ctx, match)
	}
	for what, err := range errs {
		if !refused(err) {
			s.t.Errorf("late %s by the application, behind a fence of class %s: %v", what, k.Fence, err)
		}
	}
}
