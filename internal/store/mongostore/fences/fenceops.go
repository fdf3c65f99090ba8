package fences

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
)

// partlyError reports that one or more operations of an applyOps failed, while the others were tried.
// The server does not say why. Known reasons: existsOp found no document, on purpose; and a gate has
// no document, because the server ended the command that made it halfway. Callers look at what is
// there, and try again.
type partlyError struct {
	done []bool // by operation, as the server said
	text string
}

func (e *partlyError) Error() string {
	return fmt.Sprintf("not all operations of an applyOps were done (%v): %s", e.done, e.text)
}

func partly(err error) bool {
	var e *partlyError
	return errors.As(err, &e)
}

// onlyLooked reports whether all of an applyOps was done, except for the first of each group of
// operations: existsOp, which finds no document.
func onlyLooked(err error, operations, group int) bool {
	var e *partlyError
	if !errors.As(err, &e) || len(e.done) != operations {
		return false
	}
	for i, done := range e.done {
		if !done && i%group != 0 {
			return false
		}
	}
	return true
}

func (n *Fences) applyOps(ctx context.Context, ops bson.A) error {
	return applied(n.Change(ctx, n.Admin(), bson.D{{Key: "applyOps", Value: ops}}))
}

// applyWhole is applyOps for operations between which a kind's name is free or wrong. It kills
// transactions that hold the lock up.
func (n *Fences) applyWhole(ctx context.Context, ops bson.A) error {
	return applied(n.ChangeWhole(ctx, bson.D{{Key: "applyOps", Value: ops}}))
}

// applied marks the errors of an applyOps.
func applied(err error) error {
	switch {
	case conn.HeldUp(err):
		return fmt.Errorf("%w: %w", conn.ErrWholeServer, err)
	case conn.HasCode(err, conn.CodeUnknownError):
		return partlyDone(err)
	}
	return err
}

func partlyDone(err error) error {
	partly := &partlyError{text: err.Error()}
	var command mongo.CommandError
	if !errors.As(err, &command) {
		return partly
	}
	var reply struct{ Results []bool }
	// Without the results nothing is known to be done.
	if err := rawdoc.Unmarshal(command.Raw, &reply); err == nil {
		partly.done = reply.Results
	}
	return partly
}
