package mongostore

import (
	"bytes"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/record"
)

var notTrue = bson.D{{Key: "$ne", Value: true}}

// statement is a mutation with its token, checked.
type statement struct {
	record.Mutation
	tok     record.Token
	doc     bson.Raw // as stored: _id first
	whole   bson.Raw // what Match compares the whole document with, as stored
	emptyTS bool     // the server would replace an empty timestamp by the present time
}

func (c *Client) statement(toks record.Tokens, m record.Mutation) (statement, error) {
	s := statement{Mutation: m, tok: toks[m.Kind]}
	if s.tok.Kind == "" {
		s.tok.Kind = m.Kind
	}
	if err := c.check(s.tok); err != nil {
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
	if m.Match != nil && m.Match.Path == "" {
		if m.Match.Value.Type != bson.TypeEmbeddedDocument {
			return s, errors.New("mutation matches a whole document with what is none")
		}
		if s.whole, _, err = stored(m.Key, m.Match.Value.Value, nil); err != nil {
			return s, fmt.Errorf("mutation matches a document: %w", err)
		}
	}
	if m.Doc == nil {
		return s, nil
	}
	var touch []byte
	if s.whole != nil && bytes.Equal(m.Doc, m.Match.Value.Value) {
		// A write of what is there already is none to the server, and would not meet a
		// concurrent one. A guard that is none makes it one.
		id := bson.NewObjectID()
		touch = id[:]
	}
	if s.doc, s.emptyTS, err = stored(m.Key, m.Doc, touch); err != nil {
		return s, err
	}
	if size := s.size(); size > maxStatement {
		return s, fmt.Errorf("%w: document and condition have %d bytes, and MongoDB takes %d together: make them smaller", record.ErrOversize, size, maxStatement)
	}
	return s, nil
}

// size is about what the statement has in a command.
func (s statement) size() int {
	const overhead = 256
	n := len(s.doc) + len(s.whole) + len(s.Key) + overhead
	if s.Match != nil && s.whole == nil {
		n += len(s.Match.Path) + len(s.Match.Value.Value)
	}
	return n
}

// stored is a document of a key as it is stored, with touch as its guard unless it is nil.
func stored(key record.Key, doc bson.Raw, touch []byte) (out bson.Raw, emptyTS bool, err error) {
	l, err := checkDoc(doc, true)
	if err != nil {
		return nil, false, err
	}
	if len(key) > record.MaxKey {
		return nil, false, record.ErrLongKey
	}
	id, err := record.KeyOf(l.id)
	if err != nil {
		return nil, false, err
	}
	if id != key {
		return nil, false, fmt.Errorf("document has the _id %s", id)
	}
	if l.idStart != 4 || touch != nil {
		doc = appendStored(nil, doc, l, touch)
	}
	if err := checkSize(doc, l, 0); err != nil {
		return nil, false, err
	}
	return doc, l.emptyTS, nil
}

// live is the filter of the record as the mutation's condition wants it.
func (s statement) live() bson.D {
	q := bson.D{{Key: "_id", Value: s.Key.Value()}, {Key: guardField + ".x", Value: notTrue}}
	switch {
	case s.Match == nil:
	case s.whole != nil:
		record := bson.D{{Key: "$unsetField", Value: bson.D{{Key: "field", Value: guardField}, {Key: "input", Value: "$$ROOT"}}}}
		q = append(q, bson.E{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{record, bson.D{{Key: "$literal", Value: s.whole}}}}}})
	default:
		q = append(q, bson.E{Key: s.Match.Path, Value: bson.D{{Key: "$eq", Value: s.Match.Value}}})
	}
	return q
}

// filter selects what the statement replaces.
func (s statement) filter() bson.D {
	switch {
	case s.Absent:
		return bson.D{{Key: "_id", Value: s.Key.Value()}, {Key: guardField + ".x", Value: true}}
	case s.Doc != nil && !s.Exists && s.Match == nil:
		return bson.D{{Key: "_id", Value: s.Key.Value()}}
	default:
		return s.live()
	}
}

// deletes reports whether the statement is a delete to the server, too. Without a
// collection UUID nothing would stop a late one, so it is a tombstone there.
func (s statement) deletes() bool { return s.Doc == nil && s.tok.ID != "" }

// conditional reports whether the statement must find a record.
func (s statement) conditional() bool { return s.Exists || s.Match != nil }

// upserts reports whether the statement may insert; outside transactions creates are
// inserts first, which cost half as much.
func (s statement) upserts() bool { return s.Doc != nil && !s.conditional() }

// element is the statement as part of an update or delete command.
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
	if s.doc != nil {
		return s.doc
	}
	return bson.D{{Key: "_id", Value: s.Key.Value()}, {Key: guardField, Value: bson.D{{Key: "x", Value: true}}}}
}

// command is an update or delete command of statements on one collection.
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
	return withUUID(keepTimestamps(bson.D{
		{Key: verb, Value: stmts[0].tok.Name},
		{Key: verb + "s", Value: elements},
	}, emptyTS), stmts[0].tok)
}

func keepTimestamps(cmd bson.D, emptyTS bool) bson.D {
	if emptyTS {
		cmd = append(cmd, bson.E{Key: "bypassEmptyTsReplacement", Value: true})
	}
	return cmd
}

// refusalOf maps what the server answered to one statement.
func refusalOf(s statement, we *mongo.WriteError) error {
	switch we.Code {
	case codeUUIDMismatch:
		return fmt.Errorf("%w: %s", record.ErrFenced, we.Message)
	case codeValidation:
		if byFence(we) {
			return fmt.Errorf("%w: %s", record.ErrFenced, we.Message)
		}
		if byLabel(*we) {
			return record.ErrLabel
		}
		return record.Refuse(invalidError("write", *we))
	case codeDuplicateKey:
		d := duplicateOf(we.Raw, we.Message)
		switch {
		case d.onID && s.Absent:
			return record.ErrExists
		case d.onID:
			return errAgain // two upserts met
		}
		return conflictError(d)
	case codeDocumentTooLarge, codeResultTooLarge:
		return fmt.Errorf("%w: %w", record.ErrOversize, refusedError("write", *we))
	}
	verdict, err := judge("write", *we)
	switch {
	case verdict == refused:
		return record.Refuse(err)
	case errors.Is(err, errTooMuch):
		return err
	case we.Code == codeOutOfDiskSpace:
		return &unavailableError{err}
	default:
		return refusedError("write", *we)
	}
}

// rejection maps the error of a whole command.
func rejection(err error) error {
	if errors.Is(err, record.ErrUnknown) {
		return err
	}
	if hasCode(err, codeOutOfDiskSpace) {
		return asUnavailable(err, classify("write", err))
	}
	return classify("write", err)
}

// onID reports whether a refusal is about the key.
func onID(we *mongo.WriteError) bool {
	return we.Code == codeDuplicateKey && duplicateOf(we.Raw, we.Message).onID
}

// byFence reports whether the validator that refused is a fence's.
func byFence(we *mongo.WriteError) bool {
	text, _ := we.Details.Lookup("details", "specifiedAs", "$expr", "$eq", "0").StringValueOK()
	return len(text) >= len(fencePrefix) && text[:len(fencePrefix)] == fencePrefix
}
