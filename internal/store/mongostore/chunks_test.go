package mongostore_test

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// chunkedWorld is a database of the sharded cluster with one kind that is sharded and one that is
// not.
type chunkedWorld struct {
	*mongostore.Namespace
	t    *testing.T
	c    *mongotest.Cluster
	db   string
	toks map[string]record.Token
}

func newChunked(t *testing.T) chunkedWorld {
	t.Helper()
	c := mongotest.Sharded(t)
	db := c.Database(t, 0)
	w := chunkedWorld{storetest.OpenSuite(t, c.URI(), db), t, c, db, map[string]record.Token{}}
	for _, kind := range []string{"sharded", "other", "unsharded"} {
		tok, err := w.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
		if err != nil {
			t.Fatal(err)
		}
		w.toks[kind] = tok
	}
	c.ShardRanged(t, db, w.toks["sharded"].Name, "h")
	c.ShardRanged(t, db, w.toks["other"].Name, "h")
	return w
}

// move returns a function that moves a chunk of a collection to the shard where it is not now.
func (w chunkedWorld) move(name string) func() error {
	w.t.Helper()
	chunk := w.c.Chunks(w.t, w.db, name)[0]
	to := w.c.Shards()[0].Name
	if chunk.Shard == to {
		to = w.c.Shards()[1].Name
	}
	return func() error {
		// A shard takes part in one move at a time, and other tests move chunks, too.
		const busy = "Unable to start new balancer operation"
		err := errors.New(busy)
		for err != nil && strings.Contains(err.Error(), busy) {
			err = w.admin(bson.D{
				{Key: "moveRange", Value: w.db + "." + name},
				{Key: "min", Value: chunk.Min}, {Key: "max", Value: chunk.Max}, {Key: "toShard", Value: to},
			})
		}
		return err
	}
}

func (w chunkedWorld) admin(cmd bson.D) error {
	return w.c.Client().Database("admin").RunCommand(w.t.Context(), cmd).Err()
}

func (w chunkedWorld) permit(name string, ok bool) {
	w.t.Helper()
	if err := w.admin(bson.D{{Key: "setAllowMigrations", Value: w.db + "." + name}, {Key: "allowMigrations", Value: ok}}); err != nil {
		w.t.Fatal(err)
	}
}

// moves checks whether the cluster moves chunks of a collection.
func (w chunkedWorld) moves(name string, want bool) {
	w.t.Helper()
	err := w.move(name)()
	if want && err != nil || !want && !disallowed(err) {
		w.t.Errorf("move a chunk of %s: %v, want it moved: %v", name, err, want)
	}
}

func disallowed(err error) bool {
	return err != nil && strings.Contains(err.Error(), "migrations for this collection are disallowed")
}

func (w chunkedWorld) notes() int64 {
	w.t.Helper()
	n, err := w.c.Client().Database(w.db).Collection(conn.MarksCollection).CountDocuments(w.t.Context(),
		bson.D{{Key: "_id", Value: bson.Regex{Pattern: "^" + conn.NoteChunks}}}, options.Count())
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w chunkedWorld) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w chunkedWorld) pin() error {
	return w.PinChunks(w.t.Context(), []record.Token{w.toks["sharded"], w.toks["other"], w.toks["unsharded"]})
}

// TestPinnedChunks: chunks of kinds stay where they are until another process allows moves again,
// also after the rename by a fence. What an operator has stopped stays stopped.
func TestPinnedChunks(t *testing.T) {
	t.Parallel()
	w := newChunked(t)
	w.permit(w.toks["other"].Name, false)
	w.check(w.pin())
	w.moves(w.toks["sharded"].Name, false)
	if n := w.notes(); n != 1 {
		t.Errorf("%d notes, want one: the operator has stopped the moves of the other kind", n)
	}
	w.check(w.pin())
	to := record.PhysicalName("sharded", 2)
	w.check(w.Fence(t.Context(), record.Fence{Class: record.FenceUUID, Token: w.toks["sharded"], To: to}))
	w.moves(to, false)

	another := storetest.OpenSuite(t, w.c.URI(), w.db)
	w.check(another.UnpinChunks(t.Context()))
	w.moves(to, true)
	w.moves(w.toks["other"].Name, false)
	if n := w.notes(); n != 0 {
		t.Errorf("%d notes are left", n)
	}
	w.check(another.UnpinChunks(t.Context()))
}

// TestUnpinnedAfterADrop: the note of a collection that is gone goes as well.
func TestUnpinnedAfterADrop(t *testing.T) {
	t.Parallel()
	w := newChunked(t)
	w.check(w.pin())
	w.check(w.Drop(t.Context(), w.toks["sharded"]))
	w.check(w.UnpinChunks(t.Context()))
	w.moves(w.toks["other"].Name, true)
	if n := w.notes(); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}

// TestPinWaitsForAMove: a move that had begun before, and does not end, is named until it ends.
func TestPinWaitsForAMove(t *testing.T) {
	t.Parallel()
	w := newChunked(t)
	name := w.toks["sharded"].Name
	coll := w.c.Client().Database(w.db).Collection(name)
	_, err := coll.InsertMany(t.Context(), []any{bson.D{{Key: "_id", Value: "a"}}, bson.D{{Key: "_id", Value: "b"}}, bson.D{{Key: "_id", Value: "c"}}})
	w.check(err)
	// A move back waits until the shard has deleted what the first one left, and the shard waits for
	// this cursor.
	cursor, err := coll.Find(t.Context(), bson.D{}, options.Find().SetBatchSize(1))
	w.check(err)
	if !cursor.Next(t.Context()) {
		t.Fatal(cursor.Err())
	}
	w.check(w.move(name)())
	moved, move := make(chan error, 1), w.move(name)
	for err == nil {
		w.check(w.UnpinChunks(t.Context()))
		go func() { moved <- move() }()
		for !w.moving(name) && len(moved) == 0 {
		}
		if err = w.pin(); err == nil {
			<-moved // it had hardly begun, or had waited as long as it may
		}
	}
	if !strings.Contains(err.Error(), "the cluster still moves a chunk of "+w.db+"."+name) {
		t.Error(err)
	}
	w.check(cursor.Close(t.Context()))
	if err := <-moved; err == nil {
		t.Error("the move ends well, want it refused at its end")
	}
	w.check(w.pin())
}

// moving reports whether a chunk of a collection moves.
func (w chunkedWorld) moving(name string) bool {
	w.t.Helper()
	ops, err := w.c.Client().Database("admin").Aggregate(w.t.Context(), mongo.Pipeline{
		{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}}}},
		{{Key: "$match", Value: bson.D{{Key: "command._shardsvrMoveRange", Value: w.db + "." + name}}}},
	})
	w.check(err)
	running := ops.Next(w.t.Context())
	w.check(ops.Close(w.t.Context()))
	return running
}

// TestReplicaSetHasNoChunks: nothing is done, and nothing noted.
func TestReplicaSetHasNoChunks(t *testing.T) {
	t.Parallel()
	uri, db := mongotest.Database(t)
	ns := storetest.OpenSuite(t, uri, db)
	tok, err := ns.Provision(t.Context(), record.KindSpec{Name: "a"}, record.PhysicalName("a", 1))
	if err == nil {
		err = ns.PinChunks(t.Context(), []record.Token{tok})
	}
	if err == nil {
		err = ns.UnpinChunks(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}
