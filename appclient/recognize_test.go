package appclient_test

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

const (
	ourUUID   = "0123456789abcdef0123456789abcdef"
	otherUUID = "fedcba9876543210fedcba9876543210"
)

// identifiedAt is a location whose collection has an identity.
func identifiedAt(version string, revision int64) *pb.Location {
	loc := at(version, revision)
	loc.Hosts = "db1:27017"
	loc.Kinds[0].Id = ourUUID
	return loc
}

// listed is the server's answer about a collection; without one if kind is empty.
func listed(t *testing.T, kind, uuid string) bson.D {
	t.Helper()
	batch := bson.A{}
	if kind != "" {
		info := bson.D{{Key: "readOnly", Value: false}}
		if uuid != "" {
			data, err := hex.DecodeString(uuid)
			if err != nil {
				t.Fatal(err)
			}
			info = append(info, bson.E{Key: "uuid", Value: bson.Binary{Subtype: 4, Data: data}})
		}
		batch = append(batch, bson.D{{Key: "name", Value: "packages"}, {Key: "type", Value: kind}, {Key: "options", Value: bson.D{}}, {Key: "info", Value: info}})
	}
	return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "d.$cmd.listCollections"}, {Key: "firstBatch", Value: batch}}}}
}

// TestOtherCluster: the client does not reach the collection of the location. Nothing runs there.
func TestOtherCluster(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]bson.D{
		"missing": listed(t, "", ""), "another": listed(t, "collection", otherUUID), "a view": listed(t, "view", ""),
	} {
		d := newDeployment()
		d.set(identifiedAt("v2", 1))
		app := openWith(t, answering(t, answer, answer), startController(t, d))
		var seen versions
		const want = "the data of v2 is in the cluster at db1:27017, and Mongo finds no collection dbc_v2.packages with UUID " + ourUUID + ": connect it to that cluster"
		if err := app.Write(t.Context(), seen.run); !errors.Is(err, appclient.ErrNotWritten) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: a write: %v", name, err)
		}
		if err := app.Read(t.Context(), seen.run); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: a read: %v", name, err)
		}
		if len(seen) > 0 {
			t.Errorf("%s: it runs at %v", name, seen)
		}
	}
}

// TestClusterIsRecognizedOnce: one identity is enough, and the server is asked once.
func TestClusterIsRecognizedOnce(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	loc := identifiedAt("v1", 1)
	loc.Kinds = append([]*pb.KindLocation{
		{Kind: "new", Database: "dbc_v1", Collection: "new"}, // not made yet
		{Kind: "replaced", Database: "dbc_v1", Collection: "replaced", Id: ourUUID},
	}, loc.Kinds...)
	d.set(loc)
	app := openWith(t, answering(t, listed(t, "collection", otherUUID), listed(t, "collection", ourUUID)), startController(t, d))
	var seen versions
	for range 2 { // the second one finds no answer left if it asks
		if err := app.Write(t.Context(), seen.run); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(seen, " "); got != "v1 v1" {
		t.Errorf("it runs at %s", got)
	}
}

// TestMovedBeforeItIsRecognized: the data moves while the client looks. That is no wrong cluster.
func TestMovedBeforeItIsRecognized(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	d.set(identifiedAt("v1", 1))
	client := answering(t, listed(t, "view", ""), listed(t, "collection", ourUUID))
	app, err := appclient.Open(t.Context(), appclient.Config{
		Controllers: []string{startController(t, d).server.URL}, Application: "packages",
		MongoAt: func(context.Context, appclient.Where) (*mongo.Client, error) {
			d.set(identifiedAt("v2", 2))
			return client, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var seen versions
	if err := app.Write(t.Context(), seen.run); err != nil || strings.Join(seen, " ") != "v2" {
		t.Errorf("%v: it runs at %v", err, seen)
	}
	if err := app.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFirstReadDuringASwitch: a fence hides the collection, and reads go on.
func TestFirstReadDuringASwitch(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	d.set(identifiedAt("v1", 1))
	app := openWith(t, answering(t, listed(t, "view", "")), startController(t, d))
	d.set(hold("v1", 2, 1))
	<-d.acks
	var seen versions
	if err := app.Read(t.Context(), seen.run); err != nil || strings.Join(seen, " ") != "v1" {
		t.Errorf("%v: it runs at %v", err, seen)
	}
}
