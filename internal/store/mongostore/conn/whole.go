package conn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
)

// ChangeWhole is Change for a command under the lock of the whole server whose operations belong
// together. The server checks the time limit between operations too. A limit that the wait for the
// lock has used up would end the command halfway. ChangeWhole therefore has a longer limit, and after
// LockWait it kills the transactions that hold the lock up. The command then goes on at once.
//
// The server can still end the command halfway: at the longer limit, by killOp, or in a failover.
func (n *Conn) ChangeWhole(ctx context.Context, cmd bson.D) error {
	id := bson.NewObjectID() // identifies the command among the running ones
	watch, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { n.killWhileWaiting(watch, id) })
	defer watching.Wait()
	defer stop()
	_, err := n.changeWithin(ctx, n.Admin(), append(cmd, bson.E{Key: "comment", Value: id}), DoneWait)
	return err
}

// killWhileWaiting kills the transactions that hold up the lock of the whole server, as long as the
// command with a comment waits for that lock.
func (n *Conn) killWhileWaiting(ctx context.Context, comment bson.ObjectID) {
	tick := time.NewTicker(LockWait)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A command that has its lock may wait for a majority. No transaction delays that.
		waits, err := n.waitsForLock(ctx, comment)
		if err == nil && waits {
			_, err = n.killHolders(ctx, wholeServer)
		}
		if err != nil && ctx.Err() == nil {
			n.Log.Debug("cannot kill the transactions that hold up the lock of the whole server", zap.Error(err))
		}
	}
}

// waitsForLock reports whether the command with a comment waits for a lock.
func (n *Conn) waitsForLock(ctx context.Context, comment bson.ObjectID) (bool, error) {
	cursor, err := n.Admin().Aggregate(ctx, bson.A{
		bson.D{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "localOps", Value: true}}}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "command.comment", Value: comment}, {Key: "waitingForLock", Value: true}}}},
	})
	if err != nil {
		return false, fmt.Errorf("look at a running command: %w", err)
	}
	var found []bson.Raw
	if err := cursor.All(ctx, &found); err != nil {
		return false, fmt.Errorf("look at a running command: %w", err)
	}
	return len(found) > 0, nil
}
