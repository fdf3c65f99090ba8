package changes_test

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/changes"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestMoved: a sharded cluster moves and reshards collections, and somebody drops, replaces and
// restores others, before and after a move, on the shard of the database and on another one. Only
// those that nobody but the cluster touched are followed, to the collection that has the name now.
func TestMoved(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := mongotest.Sharded(t)
	db := c.Database(t, 0)
	ns := storetest.OpenSuite(t, c.URI(), db)
	raw := c.Client().Database(db)
	for i, yes := range []bool{true, false} {
		of := ns
		if i == 1 {
			of = storetest.NewBench(t).Namespace
		}
		if moves, err := of.Moves(ctx); err != nil || moves != yes {
			t.Fatalf("moves: %v, %v, want %v", moves, err, yes)
		}
	}
	insert := func(name string) {
		t.Helper()
		if _, err := raw.Collection(name).InsertOne(ctx, bson.D{{Key: "_id", Value: "a"}}); err != nil {
			t.Fatal(err)
		}
	}
	drop := func(name string) {
		t.Helper()
		if err := raw.Collection(name).Drop(ctx); err != nil {
			t.Fatal(err)
		}
	}
	renameOver := func(name string) {
		t.Helper()
		insert("rival")
		if err := c.Client().Database("admin").RunCommand(ctx, bson.D{
			{Key: "renameCollection", Value: db + ".rival"}, {Key: "to", Value: db + "." + name}, {Key: "dropTarget", Value: true},
		}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	toOther := func(name string) {
		t.Helper()
		c.ShardRanged(t, db, name)
		c.Move(t, db, name, c.Chunks(t, db, name)[0], 1)
	}
	toks := record.Tokens{}
	// prevent leaves a collection that occupies a name, as an aborted attempt does.
	prevent := func(name string) {
		t.Helper()
		kind, _, _ := record.KindOfPhysical(name)
		f := record.Fence{Token: toks[kind], To: record.PhysicalName(kind, 90), Class: record.FenceUUID}
		if moved, err := ns.Prevent(ctx, f); moved || err != nil {
			t.Fatalf("%s: moved %v, %v", name, moved, err)
		}
	}
	// want is a part of the reason; empty: it is followed.
	cases := map[string]struct {
		want          string
		before, after func(name string) // the move of all unsharded collections
	}{
		"stays":              {"", toOther, nil},
		"moves":              {"", nil, nil},
		"stays, prevented":   {"", func(n string) { prevent(n); toOther(n) }, nil},
		"moves, prevented":   {"", prevent, nil},
		"reshards":           {"", func(n string) { c.ShardRanged(t, db, n); c.Reshard(t, db, n, bson.D{{Key: "_id", Value: "hashed"}}) }, nil},
		"dropped":            {"was dropped", func(n string) { drop(n); insert(n) }, nil},
		"dropped after it":   {"was dropped", nil, func(n string) { drop(n); insert(n) }},
		"dropped elsewhere":  {"was dropped", func(n string) { toOther(n); drop(n); insert(n) }, nil},
		"dropped once moved": {"was dropped", func(n string) { c.MoveCollection(t, db, n); drop(n); insert(n) }, nil},
		"replaced":           {"was renamed to", renameOver, nil},
		"replaced elsewhere": {"was renamed to", nil, renameOver},
		"renamed away": {"was renamed to", func(n string) {
			if err := c.Client().Database("admin").RunCommand(ctx, bson.D{
				{Key: "renameCollection", Value: db + "." + n}, {Key: "to", Value: db + ".away"},
			}).Err(); err != nil {
				t.Fatal(err)
			}
			insert(n)
		}, nil},
		"out": {"was renamed to", nil, func(n string) {
			insert("from")
			cursor, err := raw.Collection("from").Aggregate(ctx, mongo.Pipeline{{{Key: "$out", Value: n}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := cursor.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}},
	}
	ids := func() map[string]string {
		t.Helper()
		found, err := ns.List(ctx, bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, col := range found {
			out[col.Name] = col.ID()
		}
		return out
	}
	names := map[string]string{}
	for i, kind := range slices.Sorted(maps.Keys(cases)) {
		names[kind] = record.PhysicalName(kind, uint64(i+1))
		insert(names[kind])
	}
	was := ids()
	for kind, name := range names {
		toks[kind] = record.Token{Kind: kind, Name: name, ID: was[name]}
	}
	from, err := ns.Position(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for kind, tc := range cases {
		if tc.before != nil {
			tc.before(names[kind])
		}
	}
	c.MovePrimary(t, db)
	for kind, tc := range cases {
		if tc.after != nil {
			tc.after(names[kind])
		}
	}
	is := ids()
	now, broken, err := ns.Moved(ctx, from, toks)
	if err != nil {
		t.Fatal(err)
	}
	for kind, tc := range cases {
		name := names[kind]
		if strings.HasPrefix(kind, "stays") == (is[name] != was[name]) {
			t.Errorf("%s: its collection was %s and is %s", kind, was[name], is[name])
		}
		switch {
		case tc.want == "" && (now[kind].ID != is[name] || now[kind].Name != name || broken[kind] != ""):
			t.Errorf("%s: it is followed to %s, and is %s; %s", kind, now[kind].ID, is[name], broken[kind])
		case tc.want != "" && (now[kind].ID != "" || !strings.Contains(broken[kind], tc.want)):
			t.Errorf("%s: it is followed to %s; %q", kind, now[kind].ID, broken[kind])
		}
	}
	// The database goes away as a whole.
	if err := raw.Drop(ctx); err != nil {
		t.Fatal(err)
	}
	if now, broken, err := ns.Moved(ctx, from, toks); err != nil || len(now) > 0 || len(broken) != len(toks) {
		t.Errorf("after dropDatabase: %d are followed, and %d are not, %v", len(now), len(broken), err)
	}
}

// TestTrail: events in orders that a test cannot bring a cluster to produce.
func TestTrail(t *testing.T) {
	t.Parallel()
	uuid := func(n byte) bson.Binary { return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: []byte{15: n}} }
	id := func(n byte) string { return hex.EncodeToString(uuid(n).Data) }
	on := func(op string, n byte) bson.D {
		return bson.D{{Key: "operationType", Value: op}, {Key: "ns", Value: bson.D{{Key: "coll", Value: "k.n1"}}}, {Key: "collectionUUID", Value: uuid(n)}}
	}
	reshard := func(n, to byte) bson.D {
		return append(on("reshardCollection", n), bson.E{Key: "operationDescription", Value: bson.D{{Key: "reshardUUID", Value: uuid(to)}}})
	}
	occupy := func(n byte) bson.D {
		eq := bson.D{{Key: "$eq", Value: bson.A{conn.OccupiedPrefix + id(1), ""}}}
		return append(on("create", n), bson.E{Key: "operationDescription", Value: bson.D{{Key: "validator", Value: bson.D{{Key: "$expr", Value: eq}}}}})
	}
	rename := func(n byte, to string) bson.D {
		return append(on("rename", n), bson.E{Key: "to", Value: bson.D{{Key: "coll", Value: to}}})
	}
	for name, tc := range map[string]struct {
		want   string // "" is a broken trail
		events []bson.D
	}{
		"nothing":                           {id(1), nil},
		"moved twice":                       {id(3), []bson.D{on("create", 2), on("create", 3)}},
		"resharded twice":                   {id(3), []bson.D{reshard(1, 2), reshard(2, 3)}},
		"resharded and moved":               {id(3), []bson.D{reshard(1, 2), on("create", 3)}},
		"a move of before the sighting":     {id(2), []bson.D{reshard(9, 1), reshard(1, 2)}},
		"its own create of before":          {id(2), []bson.D{on("create", 1), on("create", 2)}},
		"a drop of another collection":      {id(1), []bson.D{on("drop", 7)}},
		"fenced, then moved":                {id(2), []bson.D{rename(1, "k.n2"), on("create", 2)}},
		"a rename prevented":                {id(1), []bson.D{occupy(7)}},
		"a rename prevented, all moved":     {id(2), []bson.D{occupy(7), on("create", 2), occupy(8)}},
		"an occupied name moved":            {id(1), []bson.D{occupy(7), reshard(7, 8), reshard(8, 9)}},
		"renamed away":                      {"", []bson.D{rename(1, "old"), on("create", 2)}},
		"another one renamed to its name":   {"", []bson.D{rename(7, "k.n2")}},
		"dropped":                           {"", []bson.D{on("drop", 1), on("create", 2)}},
		"dropped after a move that failed":  {"", []bson.D{on("create", 2), on("drop", 1), on("create", 3)}},
		"the copy of a failed move dropped": {"", []bson.D{on("create", 2), on("drop", 2)}},
		"another one resharded":             {"", []bson.D{reshard(7, 8)}},
		"dropped, resharded":                {"", []bson.D{on("drop", 1), on("create", 2), reshard(2, 3)}},
		"an event without identity":         {"", []bson.D{{{Key: "operationType", Value: "create"}, {Key: "ns", Value: bson.D{{Key: "coll", Value: "k.n1"}}}}}},
		"an event that is none":             {id(1), []bson.D{{{Key: "operationType", Value: 7}}}},
	} {
		tr := changes.NewTrail(record.Tokens{"k": {Kind: "k", Name: "k.n2", ID: id(1)}})
		for _, e := range tc.events {
			raw, err := bson.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			tr.Event(raw)
		}
		now, broken := tr.Result()
		if now["k"].ID != tc.want || (tc.want == "") != (broken["k"] != "") {
			t.Errorf("%s: it is %q, want %q; %q", name, now["k"].ID, tc.want, broken["k"])
		}
	}
}
