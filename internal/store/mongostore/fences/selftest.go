package fences

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// scratchLimit bounds the removal of a scratch collection, which happens even if the caller's
// context has ended.
const scratchLimit = 10 * time.Second

// Scratch creates a collection with a random name. done drops it under either name that probes give
// it.
func (n *probes) Scratch(ctx context.Context) (c conn.Collection, done func(), err error) {
	name := conn.ScratchName + randomHex()
	done = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scratchLimit)
		defer cancel()
		for _, left := range []string{name, name + ".n1"} {
			if err := n.DropNamed(ctx, left); err != nil {
				n.Log.Warn("cannot drop scratch collection", zap.String("collection", left), zap.Error(err))
			}
		}
	}
	// The server creates it even if the caller leaves meanwhile, possibly after done has dropped
	// it. So wait for the answer.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), scratchLimit)
	defer cancel()
	err = n.DB.RunCommand(making, bson.D{
		{Key: "create", Value: name}, {Key: "writeConcern", Value: conn.MajorityWithin(conn.ConcernWait)},
	}).Err()
	if err != nil {
		done()
		return c, nil, fmt.Errorf("create scratch collection: %w", conn.WithPrivilege(err))
	}
	found, err := n.CollectionNamed(ctx, name)
	if err == nil && found == nil {
		err = errors.New("scratch collection is gone")
	}
	if err != nil {
		done()
		return c, nil, err
	}
	return *found, done, nil
}

// doneHere ignores a missing majority acknowledgement for a completed operation. Nothing depends on
// a scratch collection.
func doneHere(err error) error {
	var we mongo.WriteException
	if errors.As(err, &we) && we.WriteConcernError != nil && len(we.WriteErrors) == 0 {
		return nil
	}
	return err
}

// OnScratch retries an operation on a scratch collection while it waits for a lock or for the
// shards. A busy server is no reason not to start.
func OnScratch(ctx context.Context, do func() error) error {
	for {
		err := doneHere(do())
		if !conn.HeldUp(err) && !conn.HasCode(err, conn.CodeConflictingOperation) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(conn.LockWait):
		}
	}
}

// RenameScratch renames a scratch collection. A rename that gave up waiting may still happen,
// because mongos only stops waiting and the shards continue. So RenameScratch looks at the result,
// and a retry finds nothing left to do.
func (n *probes) RenameScratch(ctx context.Context, from, to string) error {
	err := doneHere(n.Rename(ctx, from, to))
	if err == nil || conn.HasCode(err, conn.CodeUnauthorized) {
		return err
	}
	renamed, lookErr := n.CollectionNamed(ctx, to)
	switch {
	case lookErr != nil:
		return errors.Join(err, lookErr)
	case renamed != nil:
		return nil
	default:
		return err
	}
}

func randomHex() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return hex.EncodeToString(b[:])
}

// OtherUUID returns a UUID that no collection has.
func OtherUUID() bson.Binary {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: b}
}

// selfTest checks whether the server refuses commands with a wrong collectionUUID. It tests all
// four commands, because no version of the stable API contains the option. It returns the reason if
// the server does not, or an error if it could not find out.
func (n *probes) selfTest(ctx context.Context) (*record.UnsupportedError, error) {
	return n.tested.Ask(ctx, n.trySelf)
}

func (n *probes) trySelf(ctx context.Context) (*record.UnsupportedError, error) {
	c, done, err := n.Scratch(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	doc := bson.D{{Key: "_id", Value: 1}}
	uuid := bson.E{Key: "collectionUUID", Value: OtherUUID()}
	insert := bson.D{{Key: "insert", Value: c.Name}, {Key: "documents", Value: bson.A{doc}}}
	if err := n.DB.RunCommand(ctx, insert).Err(); err != nil {
		return nil, fmt.Errorf("write to scratch collection: %w", conn.WithPrivilege(err))
	}
	commands := []bson.D{
		{{Key: "insert", Value: c.Name}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: 2}}}}},
		{{Key: "update", Value: c.Name}, {Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: doc}, {Key: "u", Value: bson.D{{Key: "_id", Value: 1}, {Key: "changed", Value: true}}}}}}},
		{{Key: "delete", Value: c.Name}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: doc}, {Key: "limit", Value: 1}}}}},
		{{Key: "find", Value: c.Name}, {Key: "filter", Value: doc}},
	}
	for _, cmd := range commands {
		lacks, err := n.wantMismatch(ctx, append(cmd, uuid))
		if lacks != nil || err != nil {
			return lacks, err
		}
	}
	// Refusing is not enough: the commands must also have had no effect.
	raw, err := n.DB.RunCommand(ctx, bson.D{{Key: "find", Value: c.Name}}).Raw()
	if err != nil {
		return nil, fmt.Errorf("read scratch collection: %w", err)
	}
	docs, _ := rawdoc.Lookup(raw, "cursor", "firstBatch").ArrayOK()
	// The document must be unchanged, and alone.
	if values, err := docs.Values(); err != nil || len(values) != 1 || len(values[0].Value) != 14 {
		return n.lacksUUID("a refused command had an effect"), nil
	}
	return nil, nil
}

// wantMismatch sends a command with a wrong collectionUUID. It returns nil, nil if the server
// refuses it.
func (n *probes) wantMismatch(ctx context.Context, cmd bson.D) (*record.UnsupportedError, error) {
	err := n.DB.RunCommand(ctx, cmd).Err()
	switch {
	case err == nil:
		return n.lacksUUID(cmd[0].Key + " ignores collectionUUID"), nil
	case conn.HasCode(err, conn.CodeUUIDMismatch):
		return nil, nil
	case conn.WorthRepeating(err):
		return nil, fmt.Errorf("self-test: %w", err)
	default:
		return n.lacksUUID(cmd[0].Key + " refuses collectionUUID: " + err.Error()), nil
	}
}

func (n *probes) lacksUUID(reason string) *record.UnsupportedError {
	return &record.UnsupportedError{What: "fence class uuid in " + n.Name, Reason: reason}
}

// checksUUIDs is the part of the self-test without a scratch collection: whether the server
// understands a find with a collectionUUID. If not, tokens carry no UUID.
func (n *probes) checksUUIDs(ctx context.Context, _ []struct{}) (bool, error) {
	lacks, err := n.wantMismatch(ctx, bson.D{
		{Key: "find", Value: conn.ScratchName + "none"}, {Key: "limit", Value: 1}, {Key: "collectionUUID", Value: OtherUUID()},
	})
	return lacks == nil, err
}
