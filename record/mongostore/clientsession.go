package mongostore

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
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"dbcontroller.dev/record"
)

// writeLimit bounds the repetitions of a write whose caller sets no deadline.
const writeLimit = 15 * time.Second

// sessions holds server sessions whose transaction numbers we count ourselves, because
// commands that are run by hand get none from the driver. They never go back to the
// driver's own pool, whose count would be behind; the server forgets them by itself.
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
	// Above all numbers that the driver can have used, should it have taken the session
	// out of its pool.
	return &writeSession{session: session, number: 1 << 32}, nil
}

func (s *sessions) give(w *writeSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, w)
}

// answer is what the server said of a write of one statement.
type answer struct {
	n       int64
	refused *mongo.WriteError // nil: it was executed
}

// ending classifies the end of one attempt.
type ending int

const (
	endDone       ending = iota + 1 // and a majority has it
	endRefused                      // this attempt had no effect
	endRejected                     // as refused, for the command as a whole
	endAgain                        // this attempt had no effect, another may
	endUnresolved                   // it may have had an effect
)

// write sends a command with one statement until its outcome is known.
func (c *Client) write(ctx context.Context, cmd bson.D) (answer, error) {
	s, err := c.sessions.take(c.ns.client)
	if err != nil {
		return answer{}, err
	}
	s.number++
	cmd = append(cmd,
		bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
		bson.E{Key: "txnNumber", Value: s.number})
	inSession := mongo.NewSessionContext(ctx, s.session)
	wait := newBackoff(ctx, writeLimit)
	doubt := false
	for {
		raw, err := c.ns.db.RunCommand(inSession, cmd).Raw()
		end, writeError := endOf(err)
		switch end {
		case endDone:
			c.sessions.give(s)
			c.ns.seen.answered(raw)
			n, _ := raw.Lookup("n").AsInt64OK()
			if n == 0 && doubt {
				// A condition that did not hold is a refusal, too.
				if err := c.useUp(ctx, s, nil); err != nil {
					return answer{}, err
				}
			}
			return answer{n: n}, nil
		case endRefused:
			if doubt && writeError.Code != codeUUIDMismatch {
				if err := c.useUp(ctx, s, writeError); err != nil {
					return answer{}, err
				}
			}
			c.sessions.give(s)
			c.ns.seen.answered(raw)
			return answer{refused: writeError}, nil
		case endRejected:
			if doubt {
				return answer{}, fmt.Errorf("%w: %w", record.ErrUnknown, err)
			}
			c.sessions.give(s)
			return answer{}, err
		case endAgain:
		case endUnresolved:
			doubt = true
		}
		if stop := pause(ctx, wait.NextBackOff()); stop != nil {
			// The session goes, too: its number may still be in use.
			if doubt {
				return answer{}, fmt.Errorf("%w: %w", record.ErrUnknown, errors.Join(stop, err))
			}
			return answer{}, errors.Join(stop, err)
		}
	}
}

var errGaveUp = errors.New("gave up")

// pause waits, or says why there is no time left for another attempt. Stop is negative.
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

// useUp makes the transaction number of an earlier attempt, whose answer was lost,
// unusable: if that attempt is still on its way, it cannot run any longer.
func (c *Client) useUp(ctx context.Context, s *writeSession, why error) error {
	s.number++
	err := c.ns.db.RunCommand(mongo.NewSessionContext(ctx, s.session), bson.D{
		{Key: "update", Value: marksCollection},
		{Key: "updates", Value: bson.A{bson.D{
			// Spread, so that clients that lost the same server do not queue.
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

// endOf classifies the end of one attempt at a write of one statement.
func endOf(err error) (ending, *mongo.WriteError) {
	if err == nil {
		return endDone, nil
	}
	var exception mongo.WriteException
	if errors.As(err, &exception) {
		if exception.WriteConcernError != nil {
			if len(exception.WriteErrors) > 0 {
				return endAgain, nil // refused by a node that may not be the one that counts
			}
			return endUnresolved, nil
		}
		if len(exception.WriteErrors) > 0 {
			first := exception.WriteErrors[0]
			switch first.Code {
			case codeQueryPlanKilled, codeWriteConflict, codeTemporarilyUnavailable:
				// Killed by a rename in mid-flight, say; the next attempt meets the fence.
				return endAgain, nil
			}
			return endRefused, &first
		}
	}
	var server mongo.ServerError
	if !errors.As(err, &server) {
		if neverSent(err) {
			return endAgain, nil
		}
		return endUnresolved, nil
	}
	switch {
	case server.HasErrorLabel("NoWritesPerformed"):
		return endAgain, nil
	case hasCode(err, codeNotWritablePrimary, codeNotPrimaryNoSecondaryOk, codeTemporarilyUnavailable):
		return endAgain, nil
	case outcomeUnknown(err), worthRepeating(err) && !hasCode(err, codeUUIDMismatch, codeNamespaceNotFound):
		return endUnresolved, nil
	default:
		return endRejected, nil
	}
}

// neverSent reports whether a command did not leave this process.
func neverSent(err error) bool {
	var selection topology.ServerSelectionError
	var queue topology.WaitQueueTimeoutError
	var cleared driver.RetryablePoolError // no connection was had: another one's login was refused, say
	return errors.As(err, &selection) || errors.As(err, &queue) || errors.As(err, &cleared)
}
