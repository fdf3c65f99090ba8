package changes

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// FuzzEvent: an event of a change stream is a change of a watched kind, or a marker of one, or is
// left out, or is an error that says that the stream is over.
func FuzzEvent(f *testing.F) {
	uuid := bson.Binary{Subtype: bson.TypeBinaryUUID, Data: bytes.Repeat([]byte{7}, 16)}
	refuses := bson.D{{Key: "validator", Value: bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{conn.FencePrefix + "orders.n2", ""}}}}}}}
	at := bson.E{Key: "clusterTime", Value: bson.Timestamp{T: 5, I: 1}}
	event := func(op, coll string, more ...bson.E) bson.D {
		return append(bson.D{{Key: "operationType", Value: op}, {Key: "ns", Value: bson.D{{Key: "coll", Value: coll}}}, {Key: "collectionUUID", Value: uuid}, at}, more...)
	}
	key := func(id any) bson.E { return bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}} }
	for _, doc := range []bson.D{
		event("insert", "orders", key("a")),
		event("delete", "users.n1", key(bson.D{{Key: "x", Value: bson.A{1, "y"}}})),
		event("update", "orders", bson.E{Key: "documentKey", Value: "x"}),
		event("insert", conn.GuardsName("orders"), key("a"), bson.E{Key: "lsid", Value: bson.D{{Key: "id", Value: uuid}}}, bson.E{Key: "txnNumber", Value: int64(3)},
			bson.E{Key: "fullDocument", Value: bson.D{{Key: "g", Value: record.Guard{Epoch: 1}.Bytes()}}}),
		event("rename", "orders", bson.E{Key: "to", Value: bson.D{{Key: "coll", Value: "orders.n3"}}}),
		event("rename", "orders"),
		event("rename", "users.n1", bson.E{Key: "to", Value: bson.D{{Key: "coll", Value: "x"}}}),
		event("modify", "orders", bson.E{Key: "operationDescription", Value: refuses}),
		event("modify", "users.n1", bson.E{Key: "operationDescription", Value: bson.D{{Key: "validator", Value: bson.A{bson.A{conn.FencePrefix + conn.ClosingMark + "orders.n2"}}}}}),
		event("insert", conn.MarksCollection, key("orders.n4"), bson.E{Key: "fullDocument", Value: bson.D{{Key: conn.MarkBlocked, Value: 1}}}),
		event("insert", conn.MarksCollection, key("others.n4"), bson.E{Key: "wallTime", Value: bson.DateTime(4)}),
		event("drop", "orders"), event("drop", "users.n1"), event("reshardCollection", "orders"), event("dropDatabase", ""), event("invalidate", ""),
		{{Key: "operationType", Value: 3}, {Key: "ns", Value: "x"}, {Key: "collectionUUID", Value: true}, {Key: "documentKey", Value: nil}},
	} {
		raw := wire.MustMarshal(doc)
		f.Add([]byte(raw))
		f.Add([]byte(raw[:len(raw)-6]))
	}
	// The document in ns has no bytes.
	f.Add([]byte("0000\x020000000000000\x00\a\x00\x00\x000000000\x03ns\x00\x00\x00\x00\x00"))
	moved := record.Tokens{"orders": {Kind: "orders", Name: "orders", ID: hex.EncodeToString(uuid.Data), Fixed: true}, "users": {Kind: "users", Name: "users.n1", ID: "00"}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		trail := newTrail(moved)
		trail.event(raw)
		// Each kind has a present collection or a reason why it has none.
		if now, broken := trail.result(); len(now)+len(broken) != len(moved) {
			t.Errorf("%v, %v", now, broken)
		}
		watched := map[string]bool{"orders": true, "users": false}
		follows := &follower{kinds: map[string]record.Token{}, guards: map[string]string{conn.GuardsName("orders"): "orders"}, logs: true, beside: map[written]record.Guard{}}
		follows.kinds[string(uuid.Data)] = record.Token{Kind: "orders", Name: "orders", ID: hex.EncodeToString(uuid.Data), Fixed: true}
		for name, s := range map[string]*stream{
			"watch":  {kinds: watched, away: map[string]string{}},
			"follow": {follower: follows},
		} {
			var batch record.ChangeBatch
			change, ok, err := s.event(raw, &batch)
			switch {
			case err != nil && ok:
				t.Errorf("%s: a change and %v", name, err)
			case err != nil:
				if !strings.HasPrefix(err.Error(), name) {
					t.Errorf("%s: error %v", name, err)
				}
			case !ok:
				if change != (record.Change{}) {
					t.Errorf("%s: %+v is left out", name, change)
				}
			default:
				if _, known := watched[change.Kind]; !known || (change.Key == "") == (change.Marker == "") {
					t.Errorf("%s: %+v", name, change)
				}
			}
			// settle relies on one source for each change.
			if want := map[bool]int{true: 1}[ok]; name == "follow" && len(follows.batch) != want {
				t.Errorf("%d sources of a change, want %d", len(follows.batch), want)
			}
			if ok && name == "follow" {
				batch.Changes = append(batch.Changes, change)
				follows.settle(&batch)
			}
		}
	})
}
