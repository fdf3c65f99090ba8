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

var _ record.Fencer = (*Namespace)(nil)

// Bounds of one attempt of a fence. A fence queued behind an open transaction stalls
// every operation on the collection, so it waits only briefly, and again after the
// holder was killed.
const (
	lockWait        = 250 * time.Millisecond
	concernWait     = 5 * time.Second
	fenceRetryFirst = 5 * time.Millisecond
	fenceRetryMost  = 200 * time.Millisecond
)

// Prepare chooses the fence class of a kind and returns what Unfence needs.
//
// Managed kinds get FenceUUID where the server passes the self-test of
// collectionUUID, and FenceValidator otherwise, when their tokens carry no UUID
// either. Fixed-name kinds are refused there, since nothing would distinguish their
// collection from another one under its name. Elsewhere they get what is wanted if it can
// be had; else FenceView where an atomic rename and view works with the privileges at hand
// (never through mongos), else FenceValidator; a quiet namespace takes no other one. FenceWriteBlock is only taken when
// wanted, since it stops every database of the cluster.
func (n *Namespace) Prepare(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	class, restore, err := n.chooseFence(ctx, tok, want)
	if err != nil {
		return "", "", fmt.Errorf("prepare fence of %s: %w", tok.Name, err)
	}
	return class, restore, nil
}

func (n *Namespace) chooseFence(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	if !tok.Fixed {
		return n.chooseManaged(ctx, tok, want)
	}
	if err := n.refuseFixed(ctx, tok); err != nil {
		return "", "", err
	}
	if n.quiet && want == record.FenceWriteBlock {
		if err := n.probeWriteBlock(ctx); err != nil { // it only reads
			return "", "", err
		}
	}
	if n.quiet && want != record.FenceUUID {
		want = record.FenceValidator
	}
	switch want {
	case record.FenceUUID:
		return "", "", &record.UnsupportedError{
			What:   "fence class uuid for " + n.name + "." + tok.Name,
			Reason: "the application does not send collection UUIDs; use view, validator or writeBlock",
		}
	case record.FenceWriteBlock:
		return want, "", n.probeWriteBlock(ctx)
	case record.FenceView, "":
		refused, err := n.probeView(ctx)
		if err != nil {
			return "", "", err
		}
		if refused == nil {
			return record.FenceView, "", nil
		}
		if want == record.FenceView {
			return "", "", refused
		}
		n.log.Info("view fence is not available", zap.String("kind", tok.Kind), zap.Error(refused))
	case record.FenceValidator:
	default:
		return "", "", unknownClass(want)
	}
	restore, err := n.validatorOf(ctx, tok)
	if err == nil {
		err = n.endCopy(ctx, tok)
	}
	return record.FenceValidator, restore, err
}

// refuseFixed refuses fixed-name kinds where a collection cannot be distinguished from
// another that was made under its name: stale commands would write into that one.
func (n *Namespace) refuseFixed(ctx context.Context, tok record.Token) error {
	lacks, err := n.selfTest(ctx)
	if err != nil {
		return err
	}
	reason := "its token has no collection UUID"
	if lacks != nil {
		reason = "the server does not check collection UUIDs: " + lacks.Reason
	} else if tok.ID != "" {
		return nil
	}
	return &record.UnsupportedError{What: "fixed-name kind " + n.name + "." + tok.Name, Reason: reason}
}

func (n *Namespace) chooseManaged(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	if want != "" && want != record.FenceUUID && want != record.FenceValidator {
		return "", "", &record.UnsupportedError{
			What:   fmt.Sprintf("fence class %s for %s.%s", want, n.name, tok.Name),
			Reason: "managed kinds are fenced by uuid, or by validator where the server lacks collectionUUID",
		}
	}
	lacks, err := n.selfTest(ctx)
	if err != nil {
		return "", "", err
	}
	switch {
	case lacks == nil && tok.ID != "":
		if want == record.FenceValidator {
			// Clients decide by the token, and with a UUID in it they delete for real,
			// which no validator stops.
			return "", "", &record.UnsupportedError{
				What:   fmt.Sprintf("fence class validator for %s.%s", n.name, tok.Name),
				Reason: "the server checks collection UUIDs, use class uuid, which stops deletes too",
			}
		}
		return record.FenceUUID, "", nil
	case want == record.FenceUUID && lacks != nil:
		return "", "", lacks
	case want == record.FenceUUID:
		return "", "", &record.UnsupportedError{
			What:   fmt.Sprintf("fence class uuid for %s.%s", n.name, tok.Name),
			Reason: "its token has no collection UUID",
		}
	}
	restore, err := n.validatorOf(ctx, tok)
	return record.FenceValidator, restore, err
}

// Fence executes and confirms the announced operation. It tries until ctx ends. Whatever
// became of an attempt (no answer, a failover, an expired write concern) is resolved
// by looking where the identity is and by majority writes after that.
//
// A fence that was removed is not taken up again: To of another attempt is another one.
func (n *Namespace) Fence(ctx context.Context, f record.Fence) error {
	if err := n.fence(ctx, f); err != nil {
		return fmt.Errorf("fence %s.%s to %s: %w", n.name, f.Token.Name, f.To, err)
	}
	return nil
}

func (n *Namespace) fence(ctx context.Context, f record.Fence) error {
	if f.Token.Name == "" || f.To == "" {
		return errors.New("needs a collection name and a name to fence it to")
	}
	if f.Ends != "" {
		err := n.untilDone(ctx, "", func(ctx context.Context) error { return n.closeFence(ctx, f.Token.Name, f.Ends) })
		if err != nil {
			return err
		}
	}
	switch f.Class {
	case record.FenceUUID, "":
		return n.fenceRename(ctx, f)
	case record.FenceView:
		if _, _, hidden := record.KindOfPhysical(f.Token.Name); hidden {
			// No application knows a hidden name: a view is not needed.
			return n.fenceRename(ctx, f)
		}
		return n.fenceView(ctx, f)
	case record.FenceValidator:
		return n.fenceValidator(ctx, f)
	case record.FenceWriteBlock:
		return n.fenceWriteBlock(ctx, f)
	default:
		return unknownClass(f.Class)
	}
}

// Unfence gives a fixed-name kind back to its application.
func (n *Namespace) Unfence(ctx context.Context, f record.Fence) error {
	var err error
	switch f.Class {
	case record.FenceUUID, "":
		return nil
	case record.FenceView:
		err = n.unfenceView(ctx, f)
	case record.FenceValidator:
		err = n.unfenceValidator(ctx, f)
	case record.FenceWriteBlock:
		err = n.unfenceWriteBlock(ctx, f)
	default:
		err = unknownClass(f.Class)
	}
	if err != nil {
		return fmt.Errorf("remove fence of %s.%s: %w", n.name, f.Token.Name, err)
	}
	return nil
}

// Locate returns the present name of a collection; record.ErrNotFound if there is none.
func (n *Namespace) Locate(ctx context.Context, id string) (string, error) {
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

// untilDone repeats an attempt until it succeeds, fails for good, or ctx ends. What this
// process has left open is ended first: it may hold what the attempt needs. Transactions of
// others that hold the collection ns, unless that is empty, are killed when an attempt waited
// for them.
func (n *Namespace) untilDone(ctx context.Context, ns string, attempt func(context.Context) error) error {
	return n.untilDoneBy(ctx, ns, n.killHolders, attempt)
}

// untilDoneBy is untilDone with another way to end what holds up an attempt.
func (n *Namespace) untilDoneBy(ctx context.Context, ns string, kill func(ctx context.Context, ns string) (int, error), attempt func(context.Context) error) error {
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
		if ctx.Err() == nil && !worthRepeating(err) {
			return withPrivilege(err)
		}
		delay := wait.NextBackOff()
		if heldUp(err) && ns != "" {
			by := ns
			if errors.Is(err, errWholeServer) {
				by = wholeServer
			}
			killed, killErr := kill(ctx, by)
			if killErr != nil && !warned {
				warned = true
				n.log.Warn("cannot kill the transactions that hold up a fence",
					zap.String("collection", ns), zap.Error(killErr))
			}
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

// heldUp reports that a command gave up waiting for a lock. A write that waited in vain
// for its majority reports the same with the same code, but as a write concern error.
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

// worthRepeating reports whether an error of an idempotent command can go away. Names
// that are missing or taken are decided by looking, not by the error.
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

func unknownClass(class record.FenceClass) error {
	return &record.UnsupportedError{What: fmt.Sprintf("fence class %q", class), Reason: "MongoDB has uuid, view, validator and writeBlock"}
}

// admin runs commands of the server, some of which read nothing but locally.
func (n *Namespace) admin() *mongo.Database {
	return n.client.Database("admin", options.Database().SetReadConcern(readconcern.Local()))
}

func majorityWithin(d time.Duration) bson.D {
	return bson.D{{Key: "w", Value: "majority"}, {Key: "wtimeout", Value: d.Milliseconds()}}
}

// collectionUUID is the identity of a token as commands carry it.
func collectionUUID(id string) (bson.Binary, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 {
		return bson.Binary{}, fmt.Errorf("collection id %q is not a UUID", id)
	}
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: b}, nil
}
