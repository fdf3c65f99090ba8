package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

// leftOpen holds the sessions of transactions whose end no server has confirmed, because the
// connection broke or the login changed before the abort. The server keeps such a transaction, and
// its locks, for a minute. A fence, the proof of a rollback, and writers of the same records would
// wait for it. The sessions stay out of the driver's pool, so that ending one never ends another's
// transaction.
type leftOpen struct {
	mu       sync.Mutex
	sessions []*mongo.Session
}

// mostLeftOpen bounds the sessions. A server that is away accepts no transactions either.
const mostLeftOpen = 1000

func (l *leftOpen) add(sessions ...*mongo.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions = append(l.sessions, sessions...)
	// Drop the oldest, whose transactions the server ends first.
	if over := len(l.sessions) - mostLeftOpen; over > 0 {
		l.sessions = append([]*mongo.Session(nil), l.sessions[over:]...)
	}
}

func (l *leftOpen) take() []*mongo.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.sessions
	l.sessions = nil
	return taken
}

// EndTransactionsOf ends the transactions that former left open because no server answered. n has
// another login of the same user, or is former itself. If it fails, it keeps the sessions for the
// next call; the server ends their transactions after a minute.
func (n *Conn) EndTransactionsOf(ctx context.Context, former *Conn) error {
	left := former.left.take()
	if len(left) == 0 {
		return nil
	}
	ids := make(bson.A, len(left))
	for i, s := range left {
		ids[i] = s.ID()
	}
	ctx, cancel := context.WithTimeout(ctx, CloseTimeout)
	defer cancel()
	// Ending one's own sessions needs no privilege.
	if err := n.Admin().RunCommand(ctx, bson.D{{Key: "killSessions", Value: ids}}).Err(); err != nil {
		former.left.add(left...)
		return fmt.Errorf("end %d abandoned transactions: %w", len(left), Concealed(err))
	}
	for _, s := range left {
		s.EndSession(ctx)
	}
	n.Log.Debug("ended abandoned transactions", zap.Int("transactions", len(left)))
	return nil
}

// endLeft ends the transactions that this namespace itself left open. Errors are only logged.
func (n *Conn) endLeft(ctx context.Context) {
	if err := n.EndTransactionsOf(ctx, n); err != nil {
		n.Log.Debug("cannot end transactions", zap.Error(err))
	}
}

// unanswered reports whether a transaction that failed with err may still be open, because no
// server has answered.
func unanswered(err error) bool {
	return err != nil && (isContext(err) || loginRefused(err) || NeverSent(err) ||
		mongo.IsNetworkError(err) || mongo.IsTimeout(err) || errors.Is(err, record.ErrUnknown))
}

// NeverSent reports whether a command never left this process: there was no connection for it. It is
// for commands that the driver does not send again by itself (RunCommand). Of others, such as a
// commit, an earlier attempt may have been sent.
func NeverSent(err error) bool {
	var selection topology.ServerSelectionError
	var queue topology.WaitQueueTimeoutError
	var cleared driver.RetryablePoolError // another's connection failed or was refused, for example
	var handshake topology.ConnectionError
	return errors.As(err, &selection) || errors.As(err, &queue) || errors.As(err, &cleared) ||
		// The driver does not export what tells this error from one of a command.
		errors.As(err, &handshake) && strings.Contains(handshake.Error(), "error occurred during connection handshake")
}
