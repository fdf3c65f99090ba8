package conn

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

// Time limits of one attempt of a fence. A fence that queues behind an open transaction stalls
// every operation on the collection. It therefore waits briefly, and tries again after the
// transaction was killed.
const (
	LockWait        = 250 * time.Millisecond
	DoneWait        = 4 * LockWait // of a command that must not be ended between two operations
	ConcernWait     = 5 * time.Second
	fenceRetryFirst = 5 * time.Millisecond
	fenceRetryMost  = 200 * time.Millisecond
)

// Locate returns the current name of the collection with a UUID, or record.ErrNotFound.
func (n *Conn) Locate(ctx context.Context, id string) (string, error) {
	uuid, err := CollectionUUID(id)
	if err != nil {
		return "", fmt.Errorf("locate collection: %w", err)
	}
	found, err := n.List(ctx, bson.D{{Key: "info.uuid", Value: uuid}})
	if err != nil {
		return "", fmt.Errorf("locate collection %s: %w", id, err)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("locate collection %s in %s: %w", id, n.Name, record.ErrNotFound)
	}
	return found[0].Name, nil
}

// UntilDone retries an attempt until it succeeds, fails permanently, or ctx ends. Before each
// attempt it ends transactions that this process left open, since they may hold a lock. If an
// attempt waited for a lock, UntilDone kills the transactions of others that hold the collection
// ns. An empty ns kills nothing.
func (n *Conn) UntilDone(ctx context.Context, ns string, attempt func(context.Context) error) error {
	return n.UntilDoneBy(ctx, ns, n.killHolders, attempt)
}

// UntilDoneBy is UntilDone with another function to end the transactions in the way.
func (n *Conn) UntilDoneBy(ctx context.Context, ns string, kill func(ctx context.Context, ns string) (int, error), attempt func(context.Context) error) error {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(fenceRetryFirst),
		backoff.WithMaxInterval(fenceRetryMost),
		backoff.WithMaxElapsedTime(0))
	warned := false
	for {
		n.endLeft(ctx)
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		var final *backoff.PermanentError
		if errors.As(err, &final) {
			return final.Err
		}
		// After ctx ended, report that reason below instead of its symptom.
		if ctx.Err() == nil && !WorthRepeating(err) {
			return WithPrivilege(err)
		}
		delay := wait.NextBackOff()
		if HeldUp(err) && ns != "" {
			// The command may have waited for the whole server, and not for one collection.
			by := ns
			if errors.Is(err, ErrWholeServer) {
				by = wholeServer
			}
			killed, killErr := kill(ctx, by)
			// Warn once, or a long fence would fill the log.
			if killErr != nil && !warned {
				warned = true
				n.Log.Warn("cannot kill the transactions that delay a fence",
					zap.String("collection", ns), zap.Error(killErr))
			}
			// The lock is free now: retry at once, while it is.
			if killed > 0 {
				wait.Reset()
				delay = 0
			}
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w; last attempt: %w", context.Cause(ctx), err)
		case <-timer.C:
		}
	}
}

// HeldUp reports whether a command gave up waiting for a lock. A write that waited in vain for its
// majority has the same code, but as a write concern error.
func HeldUp(err error) bool {
	var command mongo.CommandError
	if !errors.As(err, &command) {
		return false
	}
	switch command.Code {
	case codeMaxTimeExpired, codeLockTimeout, codeLockBusy, codeExceededTimeLimit:
		return true
	}
	return false
}

// WorthRepeating reports whether a retry of an idempotent command can succeed. Missing and taken
// names count, because callers decide those by looking at the collections.
func WorthRepeating(err error) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return true
	}
	return HeldUp(err) || OutcomeUnknown(err) || IsTransient(err) || server.HasErrorLabel("RetryableError") ||
		HasCode(err, CodeNamespaceNotFound, CodeNamespaceExists, CodeWriteConflict, CodeUUIDMismatch,
			CodeWriteConcernTimeout, CodeDuplicateKey, CodeBackgroundOperation, CodeConflictingOperation,
			CodeInterrupted, CodeQueryPlanKilled, CodeTemporarilyUnavailable)
}

// Admin returns the database for server commands, some of which accept only local reads.
func (n *Conn) Admin() *mongo.Database {
	return n.Mongo.Database("admin", options.Database().SetReadConcern(readconcern.Local()))
}

// MajorityWithin returns the write concern majority with a time limit.
func MajorityWithin(d time.Duration) bson.D {
	return bson.D{{Key: "w", Value: "majority"}, {Key: "wtimeout", Value: d.Milliseconds()}}
}

// CollectionUUID returns the UUID of a token as commands carry it.
func CollectionUUID(id string) (bson.Binary, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 {
		return bson.Binary{}, fmt.Errorf("collection id %q is not a UUID", id)
	}
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: b}, nil
}

// Rename renames a collection of this database.
func (n *Conn) Rename(ctx context.Context, from, to string) error {
	// Never with dropTarget: a taken name is an error.
	return n.Change(ctx, n.Admin(), bson.D{
		{Key: "renameCollection", Value: n.Name + "." + from},
		{Key: "to", Value: n.Name + "." + to},
	})
}

// Change sends a DDL command that waits only briefly for locks, with majority write concern.
func (n *Conn) Change(ctx context.Context, db *mongo.Database, cmd bson.D) error {
	_, err := n.changeWithin(ctx, db, cmd, LockWait)
	return err
}

// ChangeReply is Change, but it also returns the server's reply. The reply is nil if none arrived.
func (n *Conn) ChangeReply(ctx context.Context, db *mongo.Database, cmd bson.D) (bson.Raw, error) {
	return n.changeWithin(ctx, db, cmd, LockWait)
}

// changeWithin is Change with another limit. The server counts the wait for locks, the operations and
// the wait for a majority. The end of the latter is a write concern error.
func (n *Conn) changeWithin(ctx context.Context, db *mongo.Database, cmd bson.D, limit time.Duration) (bson.Raw, error) {
	// Hide the deadline: the driver would add a maxTimeMS of its own for it.
	timeless, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return db.RunCommand(timeless, append(cmd,
		bson.E{Key: "writeConcern", Value: MajorityWithin(ConcernWait)},
		bson.E{Key: "maxTimeMS", Value: limit.Milliseconds()})).Raw()
}

// ErrWholeServer marks a command that gave up waiting for the lock of the whole server.
var ErrWholeServer = errors.New("open transactions delay the lock of the whole server")

// DropNamed drops the collection or view with a name. A missing one is no error.
func (n *Conn) DropNamed(ctx context.Context, name string) error {
	err := n.DB.RunCommand(ctx, bson.D{
		{Key: "drop", Value: name}, {Key: "writeConcern", Value: MajorityWithin(ConcernWait)},
	}).Err()
	if HasCode(err, CodeNamespaceNotFound) {
		return nil
	}
	return err
}

// DeleteMarks deletes documents of dbc_marks.
func (n *Conn) DeleteMarks(ctx context.Context, filter bson.D) error {
	return n.DB.RunCommand(ctx, bson.D{
		{Key: "delete", Value: MarksCollection},
		{Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: filter}, {Key: "limit", Value: 0}}}},
		{Key: "writeConcern", Value: MajorityWithin(ConcernWait)},
	}).Err()
}

// WithUUID adds the UUID of a token to a command. It adds none if the token has none.
func WithUUID(cmd bson.D, tok record.Token) (bson.D, error) {
	if tok.ID == "" {
		return cmd, nil
	}
	uuid, err := CollectionUUID(tok.ID)
	if err != nil {
		return nil, err
	}
	return append(cmd, bson.E{Key: "collectionUUID", Value: uuid}), nil
}

// CodeIndexNotFound is the error of a collMod or dropIndexes for a missing index.
const CodeIndexNotFound = 27
