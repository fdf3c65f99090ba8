package mongostore

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

// How long conflicts, and commits whose end is not known, are tried again before the
// caller hears of it. A caller's deadline comes first.
const (
	retryLimit  = 10 * time.Second
	commitLimit = 5 * time.Second
	// conflictPatience is how long conflicts are taken for those of the living.
	conflictPatience = 500 * time.Millisecond
)

// errAgain, wrapped, makes transact run its body in a new transaction.
var errAgain = errors.New("transaction must be tried again")

// transact runs body in a majority transaction at one snapshot and commits it. The body
// is run again, in a new transaction, after write conflicts and other transient errors,
// and when somebody has killed the session, as fences do with what holds them up.
// Conflicts with what a process that is gone has left behind are ended after a while.
// Its other errors abort and are returned as they are: nothing was written. ErrUnknown
// means that the commit may have happened.
func (n *Namespace) transact(ctx context.Context, what string, body func(context.Context) error) (err error) {
	n.endLeft(ctx) // or this one may wait for it
	session, err := n.client.StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return fmt.Errorf("%s: start session: %w", what, err)
	}
	// An open transaction blocks a fence, so it is ended even when ctx is over.
	defer func() {
		endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if !unanswered(err) {
			session.EndSession(endCtx)
			return
		}
		n.left.add(session)
		if !neverSent(err) { // or there is nobody to ask
			n.endLeft(endCtx)
		}
	}()
	looked := time.Now()
	err = retry(ctx, retryLimit, func() error {
		err := n.try(ctx, session, what, body)
		if err != nil && ctx.Err() == nil && (isTransient(err) || errors.Is(err, errAgain)) {
			n.log.Debug("transaction tried again", zap.String("what", what), zap.Error(err))
			if time.Since(looked) >= conflictPatience {
				looked = time.Now()
				if _, err := n.killAbandoned(ctx); err != nil {
					n.log.Debug("cannot end abandoned transactions", zap.Error(err))
				}
			}
			return err
		}
		return permanent(err)
	})
	return err
}

func (n *Namespace) try(ctx context.Context, session *mongo.Session, what string, body func(context.Context) error) error {
	err := session.StartTransaction(options.Transaction().
		SetReadConcern(readconcern.Snapshot()).
		SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return fmt.Errorf("%s: start transaction: %w", what, err)
	}
	if err := body(mongo.NewSessionContext(ctx, session)); err != nil {
		abortCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		// The driver does not say whether it has reached the server; see leftOpen.
		_ = session.AbortTransaction(abortCtx)
		if hasCode(err, codeInterrupted) {
			// A fence, of whatever deployment on this server, has ended what held it up.
			return fmt.Errorf("%w: %w", errAgain, err)
		}
		return err
	}
	return n.commit(ctx, session, what)
}

// commit asks for the commit until its end is known, which is safe: a commit that
// happened is confirmed again. Once an answer is lost, only that the transaction is gone
// says that nothing was written: neither a login that is refused then nor the caller's
// deadline says anything of what was asked before.
func (n *Namespace) commit(ctx context.Context, session *mongo.Session, what string) error {
	unknown := false
	err := retry(ctx, commitLimit, func() error {
		err := session.CommitTransaction(ctx)
		switch {
		case err == nil:
			return nil
		case isTransient(err):
			unknown = false
			return permanent(err)
		case outcomeUnknown(err), hasCode(err, codeTemporarilyUnavailable, codeInterrupted):
			// A commit that was refused for want of room, or whose session was killed, bears no
			// label. What became of the transaction is the answer to the next attempt.
			unknown = true
			return concealed(err)
		case unknown:
			return permanent(concealed(err))
		default:
			return permanent(classify(what+": commit", err))
		}
	})
	if err != nil && unknown {
		return fmt.Errorf("%s: commit: %w: %w", what, record.ErrUnknown, err)
	}
	return err
}
