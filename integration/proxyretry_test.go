package integration_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"reflect"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/proxy/message"
)

// rawClient sends commands as they are, as a driver does that lost the answer to one and sends it again.
type rawClient struct {
	t    *testing.T
	conn net.Conn
}

func newRawClient(t *testing.T, address string) rawClient {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return rawClient{t, conn}
}

func (c rawClient) call(body bson.D) bson.M {
	c.t.Helper()
	raw, err := bson.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.conn.Write(message.Message{ID: 1, Body: raw}.Append(nil)); err != nil {
		c.t.Fatal(err)
	}
	h, rest, err := message.ReadHeader(c.conn, message.MaxMessage)
	if err != nil {
		c.t.Fatal(err)
	}
	b := make([]byte, rest)
	if _, err := io.ReadFull(c.conn, b); err != nil {
		c.t.Fatal(err)
	}
	m, err := message.Decode(h, b)
	if err != nil {
		c.t.Fatal(err)
	}
	var reply bson.M
	if err := bson.Unmarshal(m.Body, &reply); err != nil {
		c.t.Fatal(err)
	}
	for _, key := range []string{"operationTime", "$clusterTime", "opTime", "electionId", "retriedStmtId", "retriedStmtIds"} {
		delete(reply, key)
	}
	return reply
}

// TestProxyRetriedWrites: a driver loses the answer to a retryable write, and sends it again after the
// data has moved to another cluster. It gets the answer that it lost, and nothing is made twice.
func TestProxyRetriedWrites(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{
		service: "bank", lens: "lens: 1\noperations: []\n",
		kinds: "[{from: accounts, to: accounts, lens: packages.yaml}]",
		uris:  map[string]string{"v2": start(ctx, t, localmongo.Options{Own: true}).URI()},
	})
	for _, id := range []string{"one", "two", "three", "four"} {
		collections{t}.insert(s.db["v1"], "accounts", `{"_id":%q,"n":1}`, id)
	}
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	c := newRawClient(t, s.startProxy(ctx, api, "accounts"))
	database := s.db["v1"].Name()
	update := func(id string, upsert bool) bson.D {
		return bson.D{{Key: "q", Value: bson.D{{Key: "_id", Value: id}}}, {Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}}, {Key: "upsert", Value: upsert}}
	}
	doc := func(id string) bson.D { return bson.D{{Key: "_id", Value: id}, {Key: "n", Value: 0}} }
	find := func(id string, more ...bson.E) bson.D {
		return append(bson.D{{Key: "findAndModify", Value: "accounts"}, {Key: "query", Value: bson.D{{Key: "_id", Value: id}}}}, more...)
	}
	increment := bson.E{Key: "update", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}}
	type retry struct {
		name         string
		first, again bson.D
		want         bson.M // nil: the first answer
	}
	retries := []retry{
		{name: "insert", first: bson.D{{Key: "insert", Value: "accounts"}, {Key: "documents", Value: bson.A{doc("a"), doc("b")}}}},
		{
			name:  "a part of an insert",
			first: bson.D{{Key: "insert", Value: "accounts"}, {Key: "documents", Value: bson.A{doc("c"), doc("d")}}},
			again: bson.D{{Key: "insert", Value: "accounts"}, {Key: "documents", Value: bson.A{doc("c"), doc("d"), doc("e")}}},
			want:  bson.M{"n": int32(3), "ok": 1.0},
		},
		{name: "update", first: bson.D{{Key: "update", Value: "accounts"}, {Key: "updates", Value: bson.A{update("one", false), update("two", false)}}}},
		{name: "upsert", first: bson.D{{Key: "update", Value: "accounts"}, {Key: "updates", Value: bson.A{update("new", true)}}}},
		{name: "delete", first: bson.D{{Key: "delete", Value: "accounts"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: bson.D{{Key: "_id", Value: "three"}}}, {Key: "limit", Value: 1}}}}}},
		{name: "find and update, before", first: find("one", increment)},
		{name: "find and update, after", first: find("two", increment, bson.E{Key: "new", Value: true})},
		{name: "find and insert", first: find("found", increment, bson.E{Key: "upsert", Value: true}, bson.E{Key: "new", Value: true})},
		{name: "find and remove", first: find("four", bson.E{Key: "remove", Value: true})},
	}
	answers := map[string]bson.M{}
	sessions := map[string]bson.D{}
	for _, r := range retries {
		id := make([]byte, 16)
		_, _ = rand.Read(id)
		sessions[r.name] = bson.D{
			{Key: "lsid", Value: bson.D{{Key: "id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id}}}},
			{Key: "txnNumber", Value: int64(7)}, {Key: "$db", Value: database},
		}
		answers[r.name] = c.call(append(append(bson.D{}, r.first...), sessions[r.name]...))
		if answers[r.name]["ok"] != 1.0 {
			t.Fatalf("%s: %v", r.name, answers[r.name])
		}
	}
	content := func() (all []bson.M) {
		reply := c.call(bson.D{{Key: "find", Value: "accounts"}, {Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "$db", Value: database}})
		return []bson.M{{"batch": reply["cursor"]}}
	}
	before := content()
	s.beginTo(ctx, "v2")
	s.await(ctx, "the flip to v2", flipped("v2"))
	for _, r := range retries {
		again, want := r.again, r.want
		if again == nil {
			again = r.first
		}
		if want == nil {
			want = answers[r.name]
		}
		if got := c.call(append(append(bson.D{}, again...), sessions[r.name]...)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the answer was\n%v\nand is now\n%v", r.name, want, got)
		}
	}
	if got := c.call(bson.D{{Key: "delete", Value: "accounts"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: bson.D{{Key: "_id", Value: "e"}}}, {Key: "limit", Value: 1}}}}, {Key: "$db", Value: database}}); fmt.Sprint(got["n"]) != "1" {
		t.Errorf("the rest of the insert was not made: %v", got)
	}
	if after := content(); !reflect.DeepEqual(before, after) {
		t.Errorf("the data was\n%v\nand is now\n%v", before, after)
	}
}
