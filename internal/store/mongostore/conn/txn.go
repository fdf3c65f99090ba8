package conn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

// Limits of the retries after conflicts, and of commits with an unknown outcome. A caller's earlier
// deadline applies first.
const (
	retryLimit  = 10 * time.Second
	commitLimit = 5 * time.Second
	// conflictPatience is how long conflicts count as those of live transactions.
	conflictPatience = 500 * time.Millisecond
)

// ErrAgain, when wrapped, makes transact run its body in a new transaction.
var ErrAgain = errors.New("transaction must be retried")

// Transact runs body in a majority transaction at one snapshot, and commits it. It runs body again,
// in a new transaction, after write conflicts and other transient errors, and if another process
// has killed the session, as fences do. After a while it kills conflicting transactions of
// processes that have ended. Other errors of body abort the transaction and are returned: nothing
// was written. record.ErrUnknown means that the commit may have happened.
func (n *Conn) Transact(ctx context.Context, what string, body func(context.Context) error) (err error) {
	n.endLeft(ctx) // or this one may wait for its locks
	session, err := n.Mongo.StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return fmt.Errorf("%s: start session: %w", what, err)
	}
	// End the transaction even if ctx has ended, because an open transaction blocks a fence.
	defer func() {
		endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
		defer cancel()
		if !unanswered(err) {
			session.EndSession(endCtx)
			return
		}
		n.left.add(session)
		if !NeverSent(err) { // otherwise no server can be reached
			n.endLeft(endCtx)
		}
	}()
	looked := time.Now()
	err = Retry(ctx, retryLimit, func() error {
		err := n.try(ctx, session, what, body)
		if err != nil && ctx.Err() == nil && (IsTransient(err) || errors.Is(err, ErrAgain)) {
			n.Log.Debug("transaction retried", zap.String("what", what), zap.Error(err))
			// Kill nothing at the first conflict: most conflicts are with live transactions.
			if time.Since(looked) >= conflictPatience {
				looked = time.Now()
				if _, err := n.KillAbandoned(ctx); err != nil {
					n.Log.Debug("cannot end abandoned transactions", zap.Error(err))
				}
			}
			return err
		}
		return Permanent(err)
	})
	return err
}

func (n *Conn) try(ctx context.Context, session *mongo.Session, what string, body func(context.Context) error) error {
	err := session.StartTransaction(options.Transaction().
		SetReadConcern(readconcern.Snapshot()).
		SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return fmt.Errorf("%s: start transaction: %w", what, err)
	}
	if err := body(mongo.NewSessionContext(ctx, session)); err != nil {
		// An open transaction holds locks, so abort even if ctx has ended.
		abortCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
		defer cancel()
		// The driver does not report whether the abort reached the server; see leftOpen.
		_ = session.AbortTransaction(abortCtx)
		if HasCode(err, CodeInterrupted) {
			// A fence, of any deployment on this server, has killed the transaction in its way.
			return fmt.Errorf("%w: %w", ErrAgain, err)
		}
		return err
	}
	return n.commit(ctx, session, what)
}

// commit retries the commit until its outcome is known. This is safe, because the server confirms a
// completed commit again. After a lost answer, only the error that the transaction is gone proves
// that nothing was written. A refused login or the caller's deadline proves nothing about the
// earlier attempt.
func (n *Conn) commit(ctx context.Context, session *mongo.Session, what string) error {
	unknown := false
	err := Retry(ctx, commitLimit, func() error {
		err := session.CommitTransaction(ctx)
		switch {
		case err == nil:
			return nil
		// The transaction is gone, so nothing was written, whatever came before.
		case IsTransient(err):
			unknown = false
			return Permanent(err)
		case OutcomeUnknown(err), HasCode(err, CodeTemporarilyUnavailable, CodeInterrupted):
			// These errors carry no label if the server lacked room for the commit or its session
			// was killed. The answer to the next attempt shows the outcome.
			unknown = true
			return Concealed(err)
		// An earlier attempt may have committed, so this error must not hide that.
		case unknown:
			return Permanent(Concealed(err))
		default:
			return Permanent(Classify(what+": commit", err))
		}
	})
	if err != nil && unknown {
		return fmt.Errorf("%s: commit: %w: %w", what, record.ErrUnknown, err)
	}
	return err
}
