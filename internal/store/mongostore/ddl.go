package mongostore

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
	lockWait        = 250 * time.Millisecond
	concernWait     = 5 * time.Second
	fenceRetryFirst = 5 * time.Millisecond
	fenceRetryMost  = 200 * time.Millisecond
)

// Locate returns the current name of the collection with a UUID, or record.ErrNotFound.
func (n *Conn) Locate(ctx context.Context, id string) (string, error) {
	uuid, err := collectionUUID(id)
	if err != nil {
		return "", fmt.Errorf("locate collection: %w", err)
	}
	found, err := n.list(ctx, bson.D{{Key: "info.uuid", Value: uuid}})
	if err != nil {
		return "", fmt.Errorf("locate collection %s: %w", id, err)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("locate collection %s in %s: %w", id, n.name, record.ErrNotFound)
	}
	return found[0].Name, nil
}

// untilDone retries an attempt until it succeeds, fails permanently, or ctx ends. Before each
// attempt it ends transactions that this process left open, since they may hold a lock. If an
// attempt waited for a lock, untilDone kills the transactions of others that hold the collection
// ns. An empty ns kills nothing.
func (n *Conn) untilDone(ctx context.Context, ns string, attempt func(context.Context) error) error {
	return n.untilDoneBy(ctx, ns, n.killHolders, attempt)
}

// untilDoneBy is untilDone with another function to end the transactions in the way.
func (n *Conn) untilDoneBy(ctx context.Context, ns string, kill func(ctx context.Context, ns string) (int, error), attempt func(context.Context) error) error {
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
		if ctx.Err() == nil && !worthRepeating(err) {
			return withPrivilege(err)
		}
		delay := wait.NextBackOff()
		if heldUp(err) && ns != "" {
			// The command may have waited for the whole server, and not for one collection.
			by := ns
			if errors.Is(err, errWholeServer) {
				by = wholeServer
			}
			killed, killErr := kill(ctx, by)
			// Warn once, or a long fence would fill the log.
			if killErr != nil && !warned {
				warned = true
				n.log.Warn("cannot kill the transactions that delay a fence",
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

// heldUp reports whether a command gave up waiting for a lock. A write that waited in vain for its
// majority has the same code, but as a write concern error.
func heldUp(err error) bool {
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

// worthRepeating reports whether a retry of an idempotent command can succeed. Missing and taken
// names count, because callers decide those by looking at the collections.
func worthRepeating(err error) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return true
	}
	return heldUp(err) || outcomeUnknown(err) || isTransient(err) || server.HasErrorLabel("RetryableError") ||
		hasCode(err, codeNamespaceNotFound, codeNamespaceExists, codeWriteConflict, codeUUIDMismatch,
			codeWriteConcernTimeout, codeDuplicateKey, codeBackgroundOperation, codeConflictingOperation,
			codeInterrupted, codeNotWritablePrimary, codeNotPrimaryNoSecondaryOk, codeNotPrimaryOrSecondary,
			codeInterruptedAtShutdown, codeInterruptedReplState, codeShutdownInProgress, codePrimarySteppedDown,
			codeHostUnreachable, codeNetworkTimeout, codeQueryPlanKilled, codeTemporarilyUnavailable)
}

// admin returns the database for server commands, some of which accept only local reads.
func (n *Conn) admin() *mongo.Database {
	return n.client.Database("admin", options.Database().SetReadConcern(readconcern.Local()))
}

func majorityWithin(d time.Duration) bson.D {
	return bson.D{{Key: "w", Value: "majority"}, {Key: "wtimeout", Value: d.Milliseconds()}}
}

// collectionUUID returns the UUID of a token as commands carry it.
func collectionUUID(id string) (bson.Binary, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 {
		return bson.Binary{}, fmt.Errorf("collection id %q is not a UUID", id)
	}
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: b}, nil
}

func (n *Conn) rename(ctx context.Context, from, to string) error {
	// Never with dropTarget: a taken name is an error.
	return n.change(ctx, n.admin(), bson.D{
		{Key: "renameCollection", Value: n.name + "." + from},
		{Key: "to", Value: n.name + "." + to},
	})
}

// change sends a DDL command that waits only briefly for locks, with majority write concern.
func (n *Conn) change(ctx context.Context, db *mongo.Database, cmd bson.D) error {
	// Hide the deadline: the driver would add a maxTimeMS of its own for it.
	timeless, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return db.RunCommand(timeless, append(cmd,
		bson.E{Key: "writeConcern", Value: majorityWithin(concernWait)},
		bson.E{Key: "maxTimeMS", Value: lockWait.Milliseconds()})).Err()
}

// errWholeServer marks a command that gave up waiting for the lock of the whole server.
var errWholeServer = errors.New("open transactions delay the lock of the whole server")

// dropNamed drops the collection or view with a name. A missing one is no error.
func (n *Conn) dropNamed(ctx context.Context, name string) error {
	err := n.db.RunCommand(ctx, bson.D{
		{Key: "drop", Value: name}, {Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Err()
	if hasCode(err, codeNamespaceNotFound) {
		return nil
	}
	return err
}

// deleteMarks deletes documents of dbc_marks.
func (n *Conn) deleteMarks(ctx context.Context, filter bson.D) error {
	return n.db.RunCommand(ctx, bson.D{
		{Key: "delete", Value: marksCollection},
		{Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: filter}, {Key: "limit", Value: 0}}}},
		{Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Err()
}

// withUUID adds the UUID of a token to a command. It adds none if the token has none.
func withUUID(cmd bson.D, tok record.Token) (bson.D, error) {
	if tok.ID == "" {
		return cmd, nil
	}
	uuid, err := collectionUUID(tok.ID)
	if err != nil {
		return nil, err
	}
	return append(cmd, bson.E{Key: "collectionUUID", Value: uuid}), nil
}

// codeIndexNotFound is the error of a collMod or dropIndexes for a missing index.
const codeIndexNotFound = 27
