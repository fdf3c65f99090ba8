package recordio

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// guardWrite is one document to write.
type guardWrite struct {
	doc       []byte // live document
	layout    wire.Layout
	id        bson.RawValue // of a tombstone or a side entry
	guard     []byte        // nil: the document gets no guard
	tombstone bool
	side      bool
}

func (w guardWrite) size() int { return len(w.doc) + len(w.id.Value) + wire.MaxGuardBytes }

func (w guardWrite) appendTo(dst []byte) []byte {
	switch {
	case w.side:
		return wire.AppendSide(dst, w.id, w.guard, w.tombstone)
	case w.tombstone:
		return wire.AppendTombstone(dst, w.id, w.guard)
	default:
		return wire.AppendStored(dst, w.doc, w.layout, w.guard)
	}
}

func (c *writeCommand) addInsert(owner int, w guardWrite) {
	part := c.next(owner, w.size())
	*part.buf = w.appendTo(*part.buf)
	part.emptyTS = part.emptyTS || w.layout.EmptyTS
}

func (c *writeCommand) addReplace(owner int, id bson.RawValue, w guardWrite) {
	part := c.next(owner, w.size()+len(id.Value)+wire.MaxGuardBytes)
	b := *part.buf
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = appendQuery(b, id)
	b = bsoncore.AppendHeader(b, bsoncore.TypeEmbeddedDocument, "u")
	b = w.appendTo(b)
	*part.buf = wire.EndDocument(b, start)
	part.emptyTS = part.emptyTS || w.layout.EmptyTS
}

func (c *writeCommand) addDelete(owner int, id bson.RawValue) {
	part := c.next(owner, len(id.Value)+wire.MaxGuardBytes)
	b := *part.buf
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = appendQuery(b, id)
	b = bsoncore.AppendInt32Element(b, "limit", 1)
	*part.buf = wire.EndDocument(b, start)
}

// appendQuery appends the query q for one _id.
func appendQuery(dst []byte, id bson.RawValue) []byte {
	dst, q := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "q")
	dst = appendIDQuery(dst, id)
	return wire.EndDocument(dst, q)
}

// appendIDQuery appends the condition on _id. It wraps a document in $eq, because the first field
// of the document could have the name of an operator.
func appendIDQuery(dst []byte, id bson.RawValue) []byte {
	if id.Type != bson.TypeEmbeddedDocument {
		return wire.AppendValueElement(dst, "_id", id)
	}
	dst, eq := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "_id")
	dst = wire.AppendValueElement(dst, "$eq", id)
	return wire.EndDocument(dst, eq)
}

// runWrites sends the parts of a command within a transaction. It stops at the first failure.
func (n *Records) runWrites(ctx context.Context, c *writeCommand) error {
	for _, part := range c.parts {
		_, err := n.Run(ctx, c.finish(part))
		if err == nil {
			continue
		}
		return writeFailure(c.verb, c.place.Coll, err, part.owners)
	}
	return nil
}

// writeFailure maps a failed write of a transaction to its meaning: retry, a fence, the refusal of
// one group, or an error of the server.
func writeFailure(verb, coll string, err error, owners []int) error {
	what := verb + " " + coll
	var exception mongo.WriteException
	// A transient error concerns the whole transaction. Its write errors are only symptoms.
	if conn.IsTransient(err) || !errors.As(err, &exception) || len(exception.WriteErrors) == 0 {
		return conn.Classify(what, err)
	}
	we := exception.WriteErrors[0]
	// The server named no statement of ours, so no single group can be blamed.
	if we.Index < 0 || we.Index >= len(owners) {
		return conn.Classify(what, err)
	}
	return statementFailure(verb, coll, we, owners[we.Index])
}

// statementFailure is writeFailure for one failed statement of the group owner.
func statementFailure(verb, coll string, we mongo.WriteError, owner int) error {
	verdict, reason := Judge(verb+" "+coll, we)
	switch verdict {
	case Refused:
		return &refusal{group: owner, conflict: errors.Is(reason, record.ErrConflict), coll: coll, code: we.Code, answer: we.Raw, err: reason}
	case present:
		// The snapshot did not show the record, so another writer inserted it since. A new snapshot
		// shows it.
		return &existsError{group: owner, err: reason}
	default:
		return reason
	}
}

// existsError reports that a record to insert already exists. The transaction is retried.
type existsError struct {
	group int
	err   error
}

func (e *existsError) Error() string { return e.err.Error() }
func (e *existsError) Unwrap() error { return conn.ErrAgain }

// verdict is the meaning of an error of a single write.
type verdict int

const (
	failed  verdict = iota // a problem of the server, not of the document
	Refused                // this document cannot be stored
	present                // a document with this _id exists
)

// errValidatorFence reports that a fence's validator refused a write.
var errValidatorFence = fmt.Errorf("%w: by a validator", record.ErrFenced)

// Judge returns the meaning of an error of a single write, and the error to report.
func Judge(what string, we mongo.WriteError) (verdict, error) {
	switch we.Code {
	case conn.CodeDuplicateKey:
		d := conn.DuplicateOf(we.Raw, we.Message)
		// The same _id is no conflict of values: the record exists.
		if d.OnID {
			return present, fmt.Errorf("%s: record exists", what)
		}
		return Refused, fmt.Errorf("%s: %w", what, conn.ConflictError(d))
	case conn.CodeValidation:
		// A fence's validator has its mark in the details.
		if bytes.Contains(we.Details, []byte(conn.FencePrefix)) {
			return failed, fmt.Errorf("%s: %w", what, errValidatorFence)
		}
		if conn.ByLabel(we) {
			return failed, fmt.Errorf("%s: %w", what, record.ErrLabel)
		}
		return Refused, conn.InvalidError(what, we)
	case conn.CodeTemporarilyUnavailable:
		return failed, fmt.Errorf("%s: %w: %w", what, conn.ErrNoRoom, conn.ErrAgain)
	case conn.CodeTransactionTooLarge, conn.CodeTooLargeForCache:
		return failed, fmt.Errorf("%s: %w: %s", what, conn.ErrTooMuch, we.Message)
	// Each of these means that the token can no longer write.
	case conn.CodeUUIDMismatch, conn.CodeQueryPlanKilled, conn.CodeViewWrite, conn.CodeWriteBlocked:
		return failed, fmt.Errorf("%s: %w", what, record.ErrFenced)
	case 13, 24, 46, 50, 64, 112, 246, 10058, 11601, 13388, conn.CodeOutOfDiskSpace:
		// Privileges, locks, time limits, shard versions, a full disk: the same document succeeds
		// later or on another server, so it must not be parked.
		return failed, conn.RefusedError(what, we)
	}
	// A lost shard or an election is no fault of the document either.
	if conn.Severed(we.Code) {
		return failed, conn.RefusedError(what, we)
	}
	return Refused, conn.RefusedError(what, we)
}
