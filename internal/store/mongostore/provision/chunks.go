package provision

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// A rename or collMod of a sharded collection waits for a running move of one of its chunks: up to 10 s
// if the receiving shard waits until it has deleted what an earlier move left there. So before a switch
// moves are stopped. The balancer begins none then, and a move by hand is refused when it ends. The cluster keeps that setting with the collection, also when it
// is renamed. A note in dbc_marks, by the collection's UUID, says that this project stopped them. It
// is written before the command and deleted after the opposite one, so that any later process can
// allow moves again.

// pinsAtOnce bounds the commands that run at the same time. The config servers serialize them.
const pinsAtOnce = 4

// moveWait bounds the wait for running moves, and moveLook is the time between two looks at them.
const (
	moveWait = 5 * time.Second
	moveLook = 50 * time.Millisecond
)

const codeNamespaceNotSharded = 118

// chunked is a sharded collection in the config database.
type chunked struct {
	Namespace string      `bson:"_id"`
	UUID      bson.Binary `bson:"uuid"`
	Permit    *bool       `bson:"permitMigrations"`
}

func (c chunked) id() string   { return hex.EncodeToString(c.UUID.Data) }
func (c chunked) pinned() bool { return c.Permit != nil && !*c.Permit }

// PinChunks stops moves of chunks of sharded collections. It waits for running ones, for 5 s, and
// returns an error if one still runs; the caller repeats the call. It changes nothing on a replica set, for unsharded
// collections, and where somebody else has stopped the moves. If the user lacks the privilege, it
// logs a warning, and fences wait for moves.
func (n *Collections) PinChunks(ctx context.Context, toks []record.Token) error {
	mongos, err := n.IsMongos(ctx)
	if err != nil || !mongos || len(toks) == 0 {
		return err
	}
	ids := make(bson.A, 0, len(toks))
	for _, tok := range toks {
		uuid, err := conn.CollectionUUID(tok.ID)
		if err != nil {
			return fmt.Errorf("stop moves of chunks of %s.%s: %w", n.Name, tok.Name, err)
		}
		ids = append(ids, uuid)
	}
	sharded, err := n.chunked(ctx, ids)
	if err != nil {
		return fmt.Errorf("stop moves of chunks in %s: %w", n.Name, err)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(pinsAtOnce)
	for _, c := range sharded {
		if !c.pinned() {
			g.Go(func() error { return n.pin(gctx, c) })
		}
	}
	err = g.Wait()
	if conn.HasCode(err, conn.CodeUnauthorized) {
		n.Log.Warn("cannot stop moves of chunks: the switch waits for a running one, for seconds; "+
			"grant moveChunk on the database (the role from 'dbcontroller roles' has it)", zap.String("location", n.Location()), zap.Error(err))
		return nil
	}
	if err != nil {
		return err
	}
	return n.awaitMoves(ctx, sharded)
}

func (n *Collections) pin(ctx context.Context, c chunked) error {
	note := bson.D{{Key: "$set", Value: bson.D{{Key: "name", Value: strings.TrimPrefix(c.Namespace, n.Name+".")}}}}
	err := n.Note(ctx, conn.NoteChunks+c.id(), note)
	if err == nil {
		err = n.permitMoves(ctx, c, false)
	}
	// If this process paused before the command, another one may have deleted the note meanwhile.
	// Without a note moves would stay stopped for good.
	if err == nil {
		err = n.Note(ctx, conn.NoteChunks+c.id(), note)
	}
	if err != nil {
		return fmt.Errorf("stop moves of chunks of %s: %w", c.Namespace, err)
	}
	return nil
}

// permitMoves allows or stops moves of a collection. A collection that is not sharded any more has
// no moves.
func (n *Collections) permitMoves(ctx context.Context, c chunked, permit bool) error {
	err := n.Admin().RunCommand(ctx, bson.D{{Key: "setAllowMigrations", Value: c.Namespace}, {Key: "allowMigrations", Value: permit}}).Err()
	if conn.HasCode(err, codeNamespaceNotSharded) {
		return nil
	}
	return err
}

// awaitMoves waits for the moves that run now, at most moveWait, and returns an error with their
// collections if one remains. Who moves chunks by hand may begin another move meanwhile. It is
// refused at its end, so nothing waits for it here.
func (n *Collections) awaitMoves(ctx context.Context, of []chunked) error {
	first, err := n.runningMoves(ctx, of)
	if err != nil || len(first) == 0 {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, moveWait)
	defer cancel()
	for {
		select {
		case <-bounded.Done():
		case <-time.After(moveLook):
		}
		now, err := n.runningMoves(bounded, of)
		if bounded.Err() != nil {
			names := slices.Sorted(maps.Values(first))
			return fmt.Errorf("the cluster still moves a chunk of %s: the switch begins after it", strings.Join(slices.Compact(names), ", "))
		}
		if err != nil {
			return err
		}
		maps.DeleteFunc(first, func(op, _ string) bool { return now[op] == "" })
		if len(first) == 0 {
			return nil
		}
	}
}

// runningMoves returns the running moves of chunks of these collections: the collection by operation.
func (n *Collections) runningMoves(ctx context.Context, of []chunked) (map[string]string, error) {
	if len(of) == 0 {
		return nil, nil
	}
	names := make(bson.A, len(of))
	for i, c := range of {
		names[i] = c.Namespace
	}
	cursor, err := n.Admin().Aggregate(ctx, bson.A{
		bson.D{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}}}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "command._shardsvrMoveRange", Value: bson.D{{Key: "$in", Value: names}}}}}},
		bson.D{{Key: "$project", Value: bson.D{{Key: "opid", Value: 1}, {Key: "name", Value: "$command._shardsvrMoveRange"}}}},
	})
	var found []struct {
		Op   string `bson:"opid"` // with the shard, through mongos
		Name string `bson:"name"`
	}
	if err == nil {
		err = conn.All(ctx, cursor, &found)
	}
	if conn.HasCode(err, conn.CodeUnauthorized) {
		return nil, nil // without inprog the fence waits instead
	}
	if err != nil {
		return nil, fmt.Errorf("look for moves of chunks in %s: %w", n.Name, err)
	}
	moves := map[string]string{}
	for _, f := range found {
		moves[f.Op] = f.Name
	}
	return moves, nil
}

// UnpinChunks allows the moves again that PinChunks of any process stopped. It may be repeated.
func (n *Collections) UnpinChunks(ctx context.Context) error {
	mongos, err := n.IsMongos(ctx)
	if err != nil || !mongos {
		return err
	}
	marks := n.DB.Collection(conn.MarksCollection, options.Collection().SetReadConcern(readconcern.Majority()))
	cursor, err := marks.Find(ctx, bson.D{{Key: "_id", Value: bson.Regex{Pattern: "^" + conn.NoteChunks}}}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	var notes []struct {
		ID string `bson:"_id"`
	}
	if err == nil {
		err = conn.All(ctx, cursor, &notes)
	}
	if err != nil {
		return fmt.Errorf("find stopped moves of chunks in %s: %w", n.Name, err)
	}
	if len(notes) == 0 {
		return nil
	}
	ids := make(bson.A, 0, len(notes))
	for _, note := range notes {
		uuid, err := conn.CollectionUUID(strings.TrimPrefix(note.ID, conn.NoteChunks))
		if err == nil { // others may write anything into the database
			ids = append(ids, uuid)
		}
	}
	sharded, err := n.chunked(ctx, ids)
	if err != nil {
		return fmt.Errorf("allow moves of chunks in %s: %w", n.Name, err)
	}
	there := map[string]chunked{}
	for _, c := range sharded {
		there[conn.NoteChunks+c.id()] = c
	}
	var errs []error
	for _, note := range notes {
		// A collection that was dropped has nothing to allow.
		if c, ok := there[note.ID]; ok && c.pinned() {
			if err := n.permitMoves(ctx, c, true); err != nil {
				errs = append(errs, fmt.Errorf("allow moves of chunks of %s: %w", c.Namespace, err))
				continue
			}
		}
		if err := n.DeleteMarks(ctx, bson.D{{Key: "_id", Value: note.ID}}); err != nil {
			errs = append(errs, fmt.Errorf("delete mark %s: %w", note.ID, err))
		}
	}
	return errors.Join(errs...)
}

// chunked returns the sharded collections of this database with these UUIDs.
func (n *Collections) chunked(ctx context.Context, ids bson.A) ([]chunked, error) {
	cursor, err := n.Mongo.Database("config").Collection("collections").Find(ctx, bson.D{
		{Key: "_id", Value: bson.D{{Key: "$gte", Value: n.Name + "."}, {Key: "$lt", Value: n.Name + "/"}}},
		{Key: "uuid", Value: bson.D{{Key: "$in", Value: ids}}},
		{Key: "unsplittable", Value: bson.D{{Key: "$ne", Value: true}}}, // not sharded; listed because it was moved
	})
	var found []chunked
	if err == nil {
		err = conn.All(ctx, cursor, &found)
	}
	return found, err
}
