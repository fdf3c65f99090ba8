package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// writeLimit bounds the retries of a write whose caller sets no deadline.
const writeLimit = 15 * time.Second

// sessions holds server sessions whose transaction numbers this package counts itself. The driver
// assigns no numbers to commands that run through RunCommand. The sessions never return to the
// driver's pool, where the driver's count would be too low; the server expires them.
type sessions struct {
	mu   sync.Mutex
	free []*writeSession
}

type writeSession struct {
	session *mongo.Session
	number  int64
}

func (s *sessions) take(client *mongo.Client) (*writeSession, error) {
	s.mu.Lock()
	if last := len(s.free) - 1; last >= 0 {
		w := s.free[last]
		s.free = s.free[:last]
		s.mu.Unlock()
		return w, nil
	}
	s.mu.Unlock()
	session, err := client.StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return nil, fmt.Errorf("start session: %w", err)
	}
	// Start above every number that the driver can have used, in case the session comes from its
	// pool.
	return &writeSession{session: session, number: 1 << 32}, nil
}

func (s *sessions) give(w *writeSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, w)
}

// answer is the server's answer to a write of one statement.
type answer struct {
	n       int64
	refused *mongo.WriteError // nil: the statement was executed
}

// ending is how one attempt of a write ended.
type ending int

const (
	endDone       ending = iota + 1 // a majority has the write
	endRefused                      // this attempt had no effect
	endRejected                     // like endRefused, but for the whole command
	endAgain                        // this attempt had no effect, a retry may
	endUnresolved                   // this attempt may have had an effect
)

// write sends a command with one statement until its outcome is known. It returns record.ErrUnknown
// if it has to give up with the outcome open.
func (c *Client) write(ctx context.Context, cmd bson.D) (answer, error) {
	s, err := c.sessions.take(c.ns.Mongo)
	if err != nil {
		return answer{}, err
	}
	// Retries use the same number, so the server executes the statement at most once.
	s.number++
	cmd = append(cmd,
		bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
		bson.E{Key: "txnNumber", Value: s.number})
	inSession := mongo.NewSessionContext(ctx, s.session)
	wait := conn.NewBackoff(ctx, writeLimit)
	// doubt is set once an attempt may have had an effect.
	doubt := false
	for {
		raw, err := c.ns.DB.RunCommand(inSession, cmd).Raw()
		end, writeError := endOf(err)
		switch end {
		case endDone:
			c.sessions.give(s)
			c.ns.Seen.Answered(raw)
			n, _ := raw.Lookup("n").AsInt64OK()
			if n == 0 && doubt {
				// A condition that did not hold is a refusal too, so the first attempt must not run
				// late.
				if err := c.settle(ctx, s, nil); err != nil {
					return answer{}, err
				}
			}
			return answer{n: n}, nil
		case endRefused:
			if doubt {
				if err := c.settle(ctx, s, writeError); err != nil {
					return answer{}, err
				}
			}
			c.sessions.give(s)
			c.ns.Seen.Answered(raw)
			return answer{refused: writeError}, nil
		case endRejected:
			// The server rejected this attempt, but an earlier one may still have run.
			if doubt {
				return answer{}, fmt.Errorf("%w: %w", record.ErrUnknown, err)
			}
			c.sessions.give(s)
			return answer{}, err
		case endAgain:
			// mongos sends a command again by itself, and its answer is about the last time.
			doubt = doubt || isCommandError(err) && c.routed(ctx)
		case endUnresolved:
			doubt = true
		}
		if stop := pause(ctx, wait.NextBackOff()); stop != nil {
			// Do not give the session back: its number may still be in use.
			if doubt {
				return answer{}, fmt.Errorf("%w: %w", record.ErrUnknown, errors.Join(stop, err))
			}
			return answer{}, errors.Join(stop, err)
		}
	}
}

var errGaveUp = errors.New("gave up")

// pause waits for d. It returns an error if no time is left for another attempt. A negative d means
// that the backoff has ended.
func pause(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d < 0 {
		return errGaveUp
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// settle makes the refusal of a retry definite, or returns record.ErrUnknown. why is nil if a
// condition did not hold.
func (c *Client) settle(ctx context.Context, s *writeSession, why *mongo.WriteError) error {
	var refused error
	if why != nil {
		refused = why
	}
	switch {
	// The retry may have reached another shard than the first attempt. Sessions, and so transaction
	// numbers, belong to one shard.
	case c.routed(ctx):
		return fmt.Errorf("%w: an earlier attempt may have run on another shard: %w", record.ErrUnknown, errors.Join(errNoAnswer, refused))
	// A fence is definite by itself: see Client.
	case why != nil && why.Code == conn.CodeUUIDMismatch:
		return nil
	default:
		return c.useUp(ctx, s, refused)
	}
}

var errNoAnswer = errors.New("its answer was lost")

// routed reports whether commands go through mongos. It is true if no server answers that question.
func (c *Client) routed(ctx context.Context) bool {
	mongos, err := c.ns.IsMongos(ctx)
	return mongos || err != nil
}

// isCommandError reports whether a server answered that a whole command failed.
func isCommandError(err error) bool {
	var command mongo.CommandError
	return errors.As(err, &command)
}

// useUp makes the transaction number of an earlier attempt, whose answer was lost, unusable. If
// that attempt is still on its way, it can no longer run.
func (c *Client) useUp(ctx context.Context, s *writeSession, why error) error {
	// A higher number in the same session invalidates every lower one.
	s.number++
	err := c.ns.DB.RunCommand(mongo.NewSessionContext(ctx, s.session), bson.D{
		{Key: "update", Value: conn.MarksCollection},
		{Key: "updates", Value: bson.A{bson.D{
			// Spread the documents, so that clients that lost the same server do not queue.
			{Key: "q", Value: bson.D{{Key: "_id", Value: fmt.Sprintf("settled/%d", rand.IntN(64))}}},
			{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}}}},
			{Key: "upsert", Value: true},
		}}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
		{Key: "txnNumber", Value: s.number},
	}).Err()
	if err != nil {
		return fmt.Errorf("%w: %w", record.ErrUnknown, errors.Join(why, err))
	}
	return nil
}

// endOf classifies the result of one attempt to write one statement.
func endOf(err error) (ending, *mongo.WriteError) {
	if err == nil {
		return endDone, nil
	}
	var exception mongo.WriteException
	if errors.As(err, &exception) {
		// Without a majority, neither a success nor a refusal counts.
		if exception.WriteConcernError != nil {
			if len(exception.WriteErrors) > 0 {
				return endAgain, nil // a node refused that may have been deposed
			}
			return endUnresolved, nil
		}
		if len(exception.WriteErrors) > 0 {
			first := exception.WriteErrors[0]
			switch {
			// A rename killed it in mid-flight, for example; the next attempt meets the fence.
			case first.Code == conn.CodeQueryPlanKilled, first.Code == conn.CodeWriteConflict, first.Code == conn.CodeTemporarilyUnavailable:
				return endAgain, nil
			// mongos lost the shard, which may have executed the statement. Its shard knows the
			// transaction number, so a retry is safe.
			case conn.Severed(first.Code), first.Code == conn.CodeInterrupted:
				return endUnresolved, nil
			}
			return endRefused, &first
		}
	}
	switch {
	// Only another login helps, and the caller may have one.
	case conn.IsLoginRefused(err):
		return endRejected, nil
	// Before the look for an answer, because the driver shows some of these errors as answers.
	case conn.NeverSent(err):
		return endAgain, nil
	}
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return endUnresolved, nil // no answer came
	}
	switch {
	// With this label the server guarantees that nothing was written.
	case server.HasErrorLabel("NoWritesPerformed"):
		return endAgain, nil
	// The server returns these codes before it runs the statement.
	case conn.HasCode(err, conn.CodeNotWritablePrimary, conn.CodeNotPrimaryNoSecondaryOk, conn.CodeTemporarilyUnavailable):
		return endAgain, nil
	case conn.OutcomeUnknown(err), conn.WorthRepeating(err) && !conn.HasCode(err, conn.CodeUUIDMismatch, conn.CodeNamespaceNotFound):
		return endUnresolved, nil
	default:
		return endRejected, nil
	}
}
