package mongostore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

func marshaled(tb testing.TB, doc any) bson.Raw {
	tb.Helper()
	b, err := bson.Marshal(doc)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// FuzzEvent: an event of a change stream is a change of a watched kind, or a marker of one, or is
// left out, or is an error that says that the stream is over.
func FuzzEvent(f *testing.F) {
	uuid := bson.Binary{Subtype: bson.TypeBinaryUUID, Data: bytes.Repeat([]byte{7}, 16)}
	refuses := bson.D{{Key: "validator", Value: bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{fencePrefix + "orders.n2", ""}}}}}}}
	at := bson.E{Key: "clusterTime", Value: bson.Timestamp{T: 5, I: 1}}
	event := func(op, coll string, more ...bson.E) bson.D {
		return append(bson.D{{Key: "operationType", Value: op}, {Key: "ns", Value: bson.D{{Key: "coll", Value: coll}}}, {Key: "collectionUUID", Value: uuid}, at}, more...)
	}
	key := func(id any) bson.E { return bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}} }
	for _, doc := range []bson.D{
		event("insert", "orders", key("a")),
		event("delete", "users.n1", key(bson.D{{Key: "x", Value: bson.A{1, "y"}}})),
		event("update", "orders", bson.E{Key: "documentKey", Value: "x"}),
		event("insert", GuardsName("orders"), key("a"), bson.E{Key: "lsid", Value: bson.D{{Key: "id", Value: uuid}}}, bson.E{Key: "txnNumber", Value: int64(3)},
			bson.E{Key: "fullDocument", Value: bson.D{{Key: "g", Value: record.Guard{Epoch: 1}.Bytes()}}}),
		event("rename", "orders", bson.E{Key: "to", Value: bson.D{{Key: "coll", Value: "orders.n3"}}}),
		event("rename", "orders"),
		event("rename", "users.n1", bson.E{Key: "to", Value: bson.D{{Key: "coll", Value: "x"}}}),
		event("modify", "orders", bson.E{Key: "operationDescription", Value: refuses}),
		event("modify", "users.n1", bson.E{Key: "operationDescription", Value: bson.D{{Key: "validator", Value: bson.A{bson.A{fencePrefix + closingMark + "orders.n2"}}}}}),
		event("insert", marksCollection, key("orders.n4"), bson.E{Key: "fullDocument", Value: bson.D{{Key: markBlocked, Value: 1}}}),
		event("insert", marksCollection, key("others.n4"), bson.E{Key: "wallTime", Value: bson.DateTime(4)}),
		event("drop", "orders"), event("drop", "users.n1"), event("reshardCollection", "orders"), event("dropDatabase", ""), event("invalidate", ""),
		{{Key: "operationType", Value: 3}, {Key: "ns", Value: "x"}, {Key: "collectionUUID", Value: true}, {Key: "documentKey", Value: nil}},
	} {
		raw := marshaled(f, doc)
		f.Add([]byte(raw))
		f.Add([]byte(raw[:len(raw)-6]))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		watched := map[string]bool{"orders": true, "users": false}
		follows := &follower{kinds: map[string]record.Token{}, guards: map[string]string{GuardsName("orders"): "orders"}, logs: true, beside: map[written]record.Guard{}}
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

// FuzzToken: the time in a resume token is read as the server wrote it, or is unknown.
func FuzzToken(f *testing.F) {
	for _, data := range []any{"8200000005000000012B042C0100296E5A1004", "82000000050000000", "82zz00000500000001", "00", 5, ""} {
		f.Add([]byte(marshaled(f, bson.D{{Key: "_data", Value: data}})))
	}
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, token []byte) {
		at, ok := tokenTime(token)
		if !ok {
			if at != (bson.Timestamp{}) {
				t.Errorf("no time, and %v", at)
			}
			return
		}
		data := bson.Raw(token).Lookup("_data").StringValue()
		if want := fmt.Sprintf("%s%08x%08x", timestampType, at.T, at.I); !strings.HasPrefix(strings.ToLower(data), want) {
			t.Errorf("%q is read as %v", data, at)
		}
	})
}

// FuzzListed: what an application's administrator declares in a collection or a view is read as a
// fence of ours, or as the application's.
func FuzzListed(f *testing.F) {
	validator := bson.D{{Key: "n", Value: bson.D{{Key: "$gt", Value: 1}}}}
	deep := bson.D{{Key: "$lookup", Value: bson.D{{Key: "from", Value: "a"}}}}
	for range 120 {
		deep = bson.D{{Key: "$facet", Value: bson.A{deep}}}
	}
	for _, options := range []bson.D{
		{{Key: "validator", Value: bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{fencePrefix + "orders.n1", ""}}}}}}},
		{{Key: "validator", Value: validator}, {Key: "validationLevel", Value: "moderate"}, {Key: "validationAction", Value: 5}},
		{{Key: "validator", Value: passTombstones(marshaled(f, validator))}},
		{{Key: "validator", Value: bson.D{{Key: "$or", Value: bson.A{1, validator}}}}},
		{{Key: "viewOn", Value: "orders"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "$comment", Value: fencePrefix + retiredMark + "orders.n1"}}}}}}},
		{{Key: "viewOn", Value: 1}, {Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$lookup", Value: bson.D{{Key: "from", Value: "a"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$unionWith", Value: "b"}}}}}}},
			bson.D{{Key: "$unionWith", Value: bson.D{{Key: "coll", Value: "c"}}}}, bson.D{{Key: "$graphLookup", Value: bson.D{{Key: "from", Value: 5}}}}, "x",
		}}},
		{{Key: "pipeline", Value: bson.A{deep}}},
	} {
		f.Add("view", []byte(marshaled(f, options)))
		f.Add("collection", []byte(marshaled(f, options)))
	}
	f.Add("collection", []byte{5, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, kind string, options []byte) {
		c := collection{Name: "orders", Type: kind, Options: options}
		if mark := c.fenceMark(); mark != "" && !bytes.Contains(options, []byte(fencePrefix+mark)) {
			t.Errorf("mark %q", mark)
		} else if c.retired() && (kind != "view" || !strings.HasPrefix(mark, retiredMark)) {
			t.Errorf("%s with mark %q is retired", kind, mark)
		}
		names := []string{c.viewOn()}
		if stages, ok := c.Options.Lookup("pipeline").ArrayOK(); ok {
			names = append(names, readsOf(bson.Raw(stages), 0)...)
		}
		for _, name := range names {
			if !bytes.Contains(options, []byte(name)) {
				t.Errorf("it reads %q, which it does not name", name)
			}
		}
		// The event of a collMod has the same options.
		if mark := fenceMark(options); mark != "" && (strings.HasPrefix(mark, closingMark) || !bytes.Contains(options, []byte(fencePrefix+mark))) {
			t.Errorf("an event with mark %q", mark)
		}
		validator, ok := c.Options.Lookup("validator").DocumentOK()
		if !ok || validate(validator) != nil {
			return
		}
		inner := withoutTombstones(validator)
		if !bytes.Equal(inner, validator) && !bytes.Equal(marshaled(t, passTombstones(inner)), validator) {
			t.Errorf("%s is taken for the wrapper of %s", validator, inner)
		}
		if got := withoutTombstones(marshaled(t, passTombstones(validator))); !bytes.Equal(got, validator) {
			t.Errorf("%s came back as %s", validator, got)
		}
	})
}

// FuzzDetails: the explanation of a refused document names fields, and none of its values.
func FuzzDetails(f *testing.F) {
	missing := func(names bson.A) bson.D {
		return bson.D{{Key: "operatorName", Value: "$jsonSchema"}, {Key: "schemaRulesNotSatisfied", Value: bson.A{
			bson.D{{Key: "operatorName", Value: "required"}, {Key: "missingProperties", Value: names}},
			bson.D{{Key: "operatorName", Value: "properties"}, {Key: "propertiesNotSatisfied", Value: bson.A{bson.D{
				{Key: "propertyName", Value: "size"}, {Key: "details", Value: bson.A{bson.D{
					{Key: "operatorName", Value: "bsonType"}, {Key: "consideredValue", Value: "secret"}, {Key: "specifiedAs", Value: bson.D{{Key: "bsonType", Value: "int"}}},
				}}},
			}}}},
		}}}
	}
	f.Add([]byte(marshaled(f, missing(bson.A{"name", "at"}))))
	f.Add([]byte(marshaled(f, missing(bson.A{"name", 5, nil, bson.D{}}))))
	f.Add([]byte{9, 0, 0, 0, 2})
	f.Fuzz(func(t *testing.T, details []byte) {
		fields := unfit(details, "", 0)
		if len(fields) > 20 {
			t.Errorf("%d fields", len(fields))
		}
		for _, field := range fields {
			if !strings.HasSuffix(field, " is missing") && !strings.HasSuffix(field, ")") {
				t.Errorf("field %q", field)
			}
		}
		if validate(details) != nil {
			return
		}
		// An element that quotes the document changes nothing.
		quoted := marshaled(t, bson.D{{Key: "consideredValue", Value: bson.Raw(details)}, {Key: "consideredValues", Value: bson.A{bson.Raw(details)}}})
		if fields := unfit(quoted, "p", 0); len(fields) > 0 {
			t.Errorf("%s shows %q", quoted, fields)
		}
	})
}

// FuzzGuard: a document's guard is one that Apply wrote, or none, and the rest of the document
// remains.
func FuzzGuard(f *testing.F) {
	guard := record.Guard{Epoch: 3, Version: record.Version{1}}
	stored := marshaled(f, bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: "b"}})
	l, err := layoutOf(stored, true)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendStored(nil, stored, l, guard.Bytes()))
	f.Add(appendTombstone(nil, l.id, guard.Bytes()))
	f.Add(appendSide(nil, l.id, guard.Bytes(), true))
	f.Add([]byte(marshaled(f, bson.D{{Key: guardField, Value: bson.D{{Key: "g", Value: "x"}, {Key: "x", Value: 1}}}, {Key: guardField, Value: 1}})))
	f.Add([]byte(stored[:9]))
	f.Fuzz(func(t *testing.T, doc []byte) {
		g, tombstone := guardOf(doc)
		l, err := layoutOf(doc, true)
		if err != nil {
			if !errors.Is(err, errMalformed) {
				t.Errorf("error %v", err)
			}
			return
		}
		if l.idStart != 0 {
			side := appendSide(nil, l.id, g.Bytes(), tombstone)
			if again, dead := guardOf(side); again != g || dead != tombstone {
				t.Errorf("%+v, %t is read again as %+v, %t", g, tombstone, again, dead)
			}
		}
		in, dead := l.guard(doc)
		if l.dbcStart == 0 && (in != record.Guard{} || dead) {
			t.Errorf("%+v, %t without a guard", in, dead)
		}
		rest := l.strip(bytes.Clone(doc))
		if _, err := layoutOf(rest, true); err != nil || len(rest) != len(doc)-(l.dbcEnd-l.dbcStart) {
			t.Errorf("%x without its guard is %x: %v", doc, rest, err)
		}
	})
}
