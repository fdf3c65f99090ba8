package client

import (
	"bytes"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/recordio"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

var notTrue = bson.D{{Key: "$ne", Value: true}}

// statement is a checked mutation with its token.
type statement struct {
	record.Mutation
	Tok     record.Token
	Raw     bson.Raw // as stored, _id first
	whole   bson.Raw // the whole document that Match compares with, as stored
	emptyTS bool     // the server would replace an empty timestamp by the current time
}

func (c *Client) statement(toks record.Tokens, m record.Mutation) (statement, error) {
	s := statement{Mutation: m, Tok: toks[m.Kind]}
	if s.Tok.Kind == "" {
		s.Tok.Kind = m.Kind
	}
	if err := c.check(s.Tok); err != nil {
		return s, err
	}
	if m.Key == "" {
		return s, errors.New("mutation has no key")
	}
	conditions := 0
	for _, set := range []bool{m.Absent, m.Exists, m.Match != nil} {
		if set {
			conditions++
		}
	}
	switch {
	case conditions > 1:
		return s, errors.New("mutation has more than one condition")
	case m.Doc == nil && m.Absent:
		return s, errors.New("mutation deletes what must be absent")
	}
	var err error
	// An empty path stands for the whole document.
	if m.Match != nil && m.Match.Path == "" {
		if m.Match.Value.Type != bson.TypeEmbeddedDocument {
			return s, errors.New("mutation matches a whole document with an invalid document")
		}
		if s.whole, _, err = stored(m.Key, m.Match.Value.Value, nil); err != nil {
			return s, fmt.Errorf("mutation matches a document: %w", err)
		}
	}
	// A delete has no document to check.
	if m.Doc == nil {
		return s, nil
	}
	var touch []byte
	if s.whole != nil && bytes.Equal(m.Doc, m.Match.Value.Value) {
		// To the server, a write of the stored content is no write and would not conflict with a
		// concurrent one. A changing value in the guard field makes it a write.
		id := bson.NewObjectID()
		touch = id[:]
	}
	if s.Raw, s.emptyTS, err = stored(m.Key, m.Doc, touch); err != nil {
		return s, err
	}
	// Document and condition travel in one statement, which has one limit.
	if size := s.size(); size > wire.MaxStatement {
		return s, fmt.Errorf("%w: document and condition together have %d bytes, but MongoDB accepts %d: make them smaller", record.ErrOversize, size, wire.MaxStatement)
	}
	return s, nil
}

// size estimates the bytes that the statement takes in a command.
func (s statement) size() int {
	const overhead = 256
	n := len(s.Raw) + len(s.whole) + len(s.Key) + overhead
	if s.Match != nil && s.whole == nil {
		n += len(s.Match.Path) + len(s.Match.Value.Value)
	}
	return n
}

// stored returns a document as the kind stores it. If touch is not nil, it becomes the guard field.
func stored(key record.Key, doc bson.Raw, touch []byte) (out bson.Raw, emptyTS bool, err error) {
	l, err := wire.CheckDoc(doc, true)
	if err != nil {
		return nil, false, err
	}
	if len(key) > record.MaxKey {
		return nil, false, record.ErrLongKey
	}
	id, err := record.KeyOf(l.ID)
	if err != nil {
		return nil, false, err
	}
	if id != key {
		return nil, false, fmt.Errorf("document has the _id %s", id)
	}
	// A document in stored order needs no copy.
	if l.IdStart != 4 || touch != nil {
		doc = wire.AppendStored(nil, doc, l, touch)
	}
	if err := wire.CheckSize(doc, l, 0); err != nil {
		return nil, false, err
	}
	return doc, l.EmptyTS, nil
}

// live returns the filter for a live record that meets the mutation's condition.
func (s statement) live() bson.D {
	q := bson.D{{Key: "_id", Value: s.Key.Value()}, {Key: wire.GuardField + ".x", Value: notTrue}}
	switch {
	case s.Match == nil:
	case s.whole != nil:
		// The stored document may have a guard field, which the application never sees; compare
		// without it.
		record := bson.D{{Key: "$unsetField", Value: bson.D{{Key: "field", Value: wire.GuardField}, {Key: "input", Value: "$$ROOT"}}}}
		q = append(q, bson.E{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{record, bson.D{{Key: "$literal", Value: s.whole}}}}}})
	default:
		q = append(q, bson.E{Key: s.Match.Path, Value: bson.D{{Key: "$eq", Value: s.Match.Value}}})
	}
	return q
}

// filter returns the filter for the document that the statement replaces.
func (s statement) filter() bson.D {
	switch {
	case s.Absent:
		// A create replaces a tombstone only.
		return bson.D{{Key: "_id", Value: s.Key.Value()}, {Key: wire.GuardField + ".x", Value: true}}
	case s.Doc != nil && !s.Exists && s.Match == nil:
		// An unconditional write replaces whatever is there, a tombstone included.
		return bson.D{{Key: "_id", Value: s.Key.Value()}}
	default:
		return s.live()
	}
}

// deletes reports whether the statement is a delete command. Without a collection UUID nothing
// would stop a late delete, so the statement writes a tombstone instead.
func (s statement) deletes() bool { return s.Doc == nil && s.Tok.ID != "" }

// conditional reports whether the statement requires an existing record.
func (s statement) conditional() bool { return s.Exists || s.Match != nil }

// upserts reports whether the statement may insert. Outside transactions, creates first try an
// insert, which costs half as much.
func (s statement) upserts() bool { return s.Doc != nil && !s.conditional() }

// element returns the statement as an element of an update or delete command.
func (s statement) element() bson.D {
	if s.deletes() {
		return bson.D{{Key: "q", Value: s.filter()}, {Key: "limit", Value: 1}}
	}
	e := bson.D{{Key: "q", Value: s.filter()}, {Key: "u", Value: s.replacement()}}
	if s.upserts() {
		e = append(e, bson.E{Key: "upsert", Value: true})
	}
	return e
}

func (s statement) replacement() any {
	if s.Raw != nil {
		return s.Raw
	}
	return bson.D{{Key: "_id", Value: s.Key.Value()}, {Key: wire.GuardField, Value: bson.D{{Key: "x", Value: true}}}}
}

// command returns one update or delete command for statements on one collection.
func command(stmts []statement) (bson.D, error) {
	elements, emptyTS := make(bson.A, len(stmts)), false
	for i, s := range stmts {
		elements[i] = s.element()
		emptyTS = emptyTS || s.emptyTS
	}
	verb := "update"
	if stmts[0].deletes() {
		verb = "delete"
	}
	return conn.WithUUID(keepTimestamps(bson.D{
		{Key: verb, Value: stmts[0].Tok.Name},
		{Key: verb + "s", Value: elements},
	}, emptyTS), stmts[0].Tok)
}

func keepTimestamps(cmd bson.D, emptyTS bool) bson.D {
	if emptyTS {
		cmd = append(cmd, bson.E{Key: "bypassEmptyTsReplacement", Value: true})
	}
	return cmd
}

// refusalOf maps the server's answer to one statement to an error of the contract.
func refusalOf(s statement, we *mongo.WriteError) error {
	switch we.Code {
	case conn.CodeUUIDMismatch:
		return fmt.Errorf("%w: %s", record.ErrFenced, we.Message)
	case conn.CodeValidation:
		if byFence(we) {
			return fmt.Errorf("%w: %s", record.ErrFenced, we.Message)
		}
		if conn.ByLabel(*we) {
			return record.ErrLabel
		}
		return record.Refuse(conn.InvalidError("write", *we))
	// Which record has the key decides between a refusal and a retry.
	case conn.CodeDuplicateKey:
		d := conn.DuplicateOf(we.Raw, we.Message)
		switch {
		case d.OnID && s.Absent:
			return record.ErrExists
		case d.OnID:
			return conn.ErrAgain // two upserts inserted at the same time
		}
		return conn.ConflictError(d)
	case conn.CodeDocumentTooLarge, conn.CodeResultTooLarge:
		return fmt.Errorf("%w: %w", record.ErrOversize, conn.RefusedError("write", *we))
	}
	// The other codes mean the same as in an Apply.
	verdict, err := recordio.Judge("write", *we)
	switch {
	case verdict == recordio.Refused:
		return record.Refuse(err)
	case errors.Is(err, conn.ErrTooMuch):
		return err
	// Space can be freed, so the caller may retry.
	case we.Code == conn.CodeOutOfDiskSpace:
		return &conn.UnavailableError{Shown: err}
	default:
		return conn.RefusedError("write", *we)
	}
}

// rejection maps the error of a whole command to an error of the contract.
func rejection(err error) error {
	if errors.Is(err, record.ErrUnknown) {
		return err
	}
	if conn.HasCode(err, conn.CodeOutOfDiskSpace) {
		return conn.AsUnavailable(err, conn.Classify("write", err))
	}
	return conn.Classify("write", err)
}

// onID reports whether the index of _id refused a write.
func onID(we *mongo.WriteError) bool {
	return we.Code == conn.CodeDuplicateKey && conn.DuplicateOf(we.Raw, we.Message).OnID
}

// byFence reports whether a fence's validator refused a write.
func byFence(we *mongo.WriteError) bool {
	text, _ := rawdoc.Lookup(we.Details, "details", "specifiedAs", "$expr", "$eq", "0").StringValueOK()
	return len(text) >= len(conn.FencePrefix) && text[:len(conn.FencePrefix)] == conn.FencePrefix
}
