package recordio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// readState reads the guards of all records of the groups within the transaction. It is the first
// access to each collection and carries the collection's UUID. It therefore holds the collection
// until the transaction ends: a rename waits, or has already happened and fails this read.
func (n *Records) readState(ctx context.Context, j *job, groups []int) (state, error) {
	have := make(state, len(j.kinds))
	// One find per kind, whatever the number of groups.
	for _, kind := range j.kinds {
		keys := make([]record.Key, 0, len(groups))
		for _, g := range groups {
			for i := range j.groups[g].Writes {
				if w := &j.groups[g].Writes[i]; w.Kind == kind {
					keys = append(keys, w.Key)
				}
			}
		}
		if len(keys) == 0 {
			continue
		}
		t := j.targets[kind]
		found := make(map[record.Key]held, len(keys))
		have[kind] = found
		err := n.findKeys(ctx, t.Place, keys, ReadOptions{keysOnly: true, guards: !t.fixed}, func(doc []byte) error {
			return addHeld(found, doc, !t.fixed, func(h *held, l wire.Layout) {
				h.data = true
				h.id = l.ID
				h.guard, _ = l.Guard(doc)
			})
		})
		if err != nil {
			return nil, err
		}
		// Guards of fixed-name kinds are in the side collection, in the same snapshot.
		if !t.fixed {
			continue
		}
		// The end of the token's mark is one more key of the same find, so it costs no round trip.
		// It is in the snapshot of the transaction, unless the mark ended later. Then the write of
		// an entry conflicts with the end (fences.endAppliers), and the transaction begins anew.
		var mark record.Key
		if t.mark != "" {
			if mark, err = wire.EndedKey(t.mark); err != nil {
				return nil, err
			}
			keys = append(keys, mark)
		}
		ended := false
		err = n.findKeys(ctx, wire.Place{Coll: conn.GuardsName(kind)}, keys, ReadOptions{}, func(doc []byte) error {
			if mark != "" && wire.EndsMark(doc, mark) {
				ended = true
				return nil
			}
			return addHeld(found, doc, false, func(h *held, l wire.Layout) {
				h.side = true
				h.guard, _ = wire.GuardOf(doc)
			})
		})
		if err != nil {
			return nil, err
		}
		if ended {
			return nil, fmt.Errorf("apply to %s behind %s: the fence has ended: %w", t.Coll, t.mark, record.ErrFenced)
		}
	}
	return have, nil
}

func addHeld(found map[record.Key]held, doc []byte, managed bool, set func(*held, wire.Layout)) error {
	l, err := wire.LayoutOf(doc, managed)
	if err != nil {
		return err
	}
	key, err := record.KeyOf(l.ID)
	if err != nil {
		return err
	}
	h := found[key]
	set(&h, l)
	found[key] = h
	return nil
}

// writeGroups writes whole groups, with one command for each collection and verb. Deletes come
// first, because they free the unique values that inserts need.
func (n *Records) writeGroups(ctx context.Context, j *job, groups []int, have state, how attempt) error {
	for _, kind := range j.kinds {
		if err := n.writeKind(ctx, j, kind, groups, have, how); err != nil {
			return err
		}
	}
	return nil
}

func (n *Records) writeKind(ctx context.Context, j *job, kind string, groups []int, have state, how attempt) error {
	t := j.targets[kind]
	bypass := t.fixed && (how.bypass || slices.Contains(how.moderate, t.Coll))
	deletes := writeCommand{verb: "delete", place: t.Place}
	updates := writeCommand{verb: "update", place: t.Place, bypass: bypass}
	// No UUID here: the read of the kind's collection in this transaction already meets a fence.
	inserts := writeCommand{verb: "insert", place: t.Place, bypass: bypass}
	sideUpdates := writeCommand{verb: "update", place: wire.Place{Coll: conn.GuardsName(kind)}}
	sideInserts := writeCommand{verb: "insert", place: wire.Place{Coll: conn.GuardsName(kind)}}
	commands := []*writeCommand{&deletes, &updates, &inserts, &sideUpdates, &sideInserts}
	defer func() {
		for _, c := range commands {
			c.release()
		}
	}()
	for _, g := range groups {
		p := &j.groups[g]
		guard := p.guard.Bytes()
		for i := range p.Writes {
			w := &p.Writes[i]
			if w.Kind != kind {
				continue
			}
			h := have[kind][w.Key]
			live := w.Doc != nil
			if t.fixed {
				id := w.Key.Value()
				if h.side {
					sideUpdates.addReplace(g, id, guardWrite{side: true, id: id, guard: guard, tombstone: !live})
				} else {
					sideInserts.addInsert(g, guardWrite{side: true, id: id, guard: guard, tombstone: !live})
				}
			}
			// Managed documents carry the guard themselves; fixed-name documents must stay as they
			// are.
			write := guardWrite{doc: w.Doc, layout: p.layouts[i], id: w.Key.Value(), guard: guard, tombstone: !live}
			if t.fixed {
				write.guard = nil
			}
			// A tombstone of a fixed-name kind exists only in the side collection.
			stored := !t.fixed || live
			// A replacement that begins with a $ field would be read as an update; insert it
			// instead.
			anew := how.clear || write.layout.Dollar
			if h.data && (anew || !stored) {
				deletes.addDelete(g, h.id)
			}
			switch {
			case !stored:
			case h.data && !anew:
				if !live {
					write.id = h.id // keep the number type of the stored _id
				}
				updates.addReplace(g, h.id, write)
			default:
				inserts.addInsert(g, write)
			}
		}
	}
	// The order of commands is deletes, updates, inserts.
	for _, c := range commands {
		if err := n.runWrites(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

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
		err = writeFailure(c.verb+" "+c.place.Coll, err, part.owners)
		if r := new(refusal); errors.As(err, &r) {
			r.coll = c.place.Coll
		}
		return err
	}
	return nil
}

// writeFailure maps a failed write of a transaction to its meaning: retry, a fence, the refusal of
// one group, or an error of the server.
func writeFailure(what string, err error, owners []int) error {
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
	verdict, reason := Judge(what, we)
	switch verdict {
	case Refused:
		return &refusal{group: owners[we.Index], conflict: errors.Is(reason, record.ErrConflict), code: we.Code, answer: we.Raw, err: reason}
	case present:
		// The snapshot did not show the record, so another writer inserted it since. A new snapshot
		// shows it.
		return &existsError{group: owners[we.Index], err: reason}
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
	case 13, 24, 46, 50, 64, 91, 112, 189, 246, 262, 10058, 10107, 11600, 11601, 11602, 13388, 13435, 13436, conn.CodeOutOfDiskSpace:
		// Privileges, locks, time limits, elections, shard versions, a full disk: the same document
		// succeeds later or on another server, so it must not be parked.
		return failed, conn.RefusedError(what, we)
	default:
		return Refused, conn.RefusedError(what, we)
	}
}
