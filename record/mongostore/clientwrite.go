package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller/record"
)

// maxStatements bounds one command of a transaction.
const maxStatements = 500

var notTrue = bson.D{{Key: "$ne", Value: true}}

// statement is a mutation with its token, checked.
type statement struct {
	record.Mutation
	tok     record.Token
	doc     bson.Raw // as stored: _id first
	emptyTS bool     // the server would replace an empty timestamp by the present time
}

// Write makes all mutations or none.
func (c *Client) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	stmts := make([]statement, len(ms))
	for i, m := range ms {
		s, err := c.statement(toks, m)
		if err != nil {
			return fmt.Errorf("write %s %s: %w", m.Kind, m.Key, err)
		}
		stmts[i] = s
	}
	switch len(stmts) {
	case 0:
		return nil
	case 1:
		if err := c.writeOne(ctx, stmts[0]); err != nil {
			return fmt.Errorf("write %s %s: %w", ms[0].Kind, ms[0].Key, err)
		}
		return nil
	}
	err := c.writeAll(ctx, stmts, maxStatements)
	if errors.Is(err, errShort) {
		// Some condition did not hold; one statement at a time tells which.
		err = c.writeAll(ctx, stmts, 1)
	}
	return err
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
	case m.Match != nil && m.Match.Path == "":
		return s, errors.New("mutation matches no field")
	case m.Doc == nil:
		return s, nil
	}
	l, err := checkDoc(m.Doc)
	if err != nil {
		return s, err
	}
	key, err := record.KeyOf(l.id)
	if err != nil {
		return s, err
	}
	if key != m.Key {
		return s, fmt.Errorf("document has the _id %s", key)
	}
	s.doc, s.emptyTS = bson.Raw(m.Doc), l.emptyTS
	if l.idStart != 4 {
		s.doc = appendStored(nil, m.Doc, l, nil)
	}
	return s, nil
}

// live is the filter of the record as the mutation's condition wants it.
func (s statement) live() bson.D {
	q := bson.D{{Key: "_id", Value: s.Key.Value()}, {Key: guardField + ".x", Value: notTrue}}
	if s.Match != nil {
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

// writeOne makes one mutation. It starts over where the record changed between a
// refusal and the look at its reason.
func (c *Client) writeOne(ctx context.Context, s statement) error {
	for {
		if s.Absent {
			done, err := c.insert(ctx, s)
			if done || err != nil {
				return err
			}
			// There is something: a record, or a tombstone that the update replaces.
		}
		cmd, err := command([]statement{s})
		if err != nil {
			return err
		}
		if s.Absent {
			// Not an upsert here: what is absent now was purged, and starts over.
			cmd[1].Value = bson.A{bson.D{{Key: "q", Value: s.filter()}, {Key: "u", Value: s.replacement()}}}
		}
		a, err := c.write(ctx, cmd)
		switch {
		case err != nil:
			return rejection(err)
		case a.refused != nil && s.upserts() && !s.Absent && onID(a.refused):
			continue // two upserts met
		case a.refused != nil:
			return refusalOf(s, a.refused)
		case a.n > 0, !s.conditional() && !s.Absent:
			return nil
		}
		reason, err := c.reason(ctx, s)
		if reason != nil || err != nil {
			return errors.Join(reason, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// insert creates a record; done is false where its key is taken by whatever.
func (c *Client) insert(ctx context.Context, s statement) (done bool, err error) {
	cmd, err := withUUID(keepTimestamps(bson.D{
		{Key: "insert", Value: s.tok.Name},
		{Key: "documents", Value: bson.A{s.doc}},
	}, s.emptyTS), s.tok)
	if err != nil {
		return false, err
	}
	a, err := c.write(ctx, cmd)
	switch {
	case err != nil:
		return false, rejection(err)
	case a.refused == nil:
		return true, nil
	case onID(a.refused):
		return false, nil
	default:
		return false, refusalOf(s, a.refused)
	}
}

// reason looks why a condition did not hold. It is nil where the condition holds now.
func (c *Client) reason(ctx context.Context, s statement) (reason, err error) {
	at, err := c.barrier.wait(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for the reason: %w", err)
	}
	// Both at one time, or a record that comes or goes between could look changed.
	snapshot := bson.D{{Key: "level", Value: "snapshot"}, {Key: "atClusterTime", Value: at}}
	err = c.reading(ctx, func() error {
		reason, err = c.reasonAt(ctx, s, snapshot)
		return err
	})
	return reason, classify("look for the reason", err)
}

func (c *Client) reasonAt(ctx context.Context, s statement, concern bson.D) (reason, err error) {
	anything := s
	anything.Match = nil
	live, err := c.find(ctx, s.tok, anything.live(), concern)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Absent && live != nil:
		return record.ErrExists, nil
	case s.Absent:
		return nil, nil
	case live == nil:
		return record.ErrNotFound, nil
	case s.Match == nil:
		return nil, nil
	}
	matching, err := c.find(ctx, s.tok, s.live(), concern)
	if err != nil || matching != nil {
		return nil, err
	}
	return record.ErrMismatch, nil
}

// errShort says that a command of several statements found fewer records than it needs.
var errShort = errors.New("a condition does not hold")

// writeAll makes the mutations in one transaction, with at most so many statements in
// one command.
func (c *Client) writeAll(ctx context.Context, stmts []statement, most int) error {
	return c.ns.transact(ctx, "write", func(ctx context.Context) error {
		for rest := stmts; len(rest) > 0; {
			run := rest[:runLength(rest, most)]
			rest = rest[len(run):]
			if err := c.writeRun(ctx, run); err != nil {
				return err
			}
		}
		return nil
	})
}

// runLength is how many statements from the first on can be one command.
func runLength(stmts []statement, most int) int {
	first, size := stmts[0], 0
	for i, s := range stmts {
		size += len(s.doc) + 256
		if i == most || s.tok != first.tok || s.deletes() != first.deletes() ||
			mustHit(s) != mustHit(first) || (i > 0 && size > maxCommandBytes) {
			return i
		}
	}
	return len(stmts)
}

// mustHit reports whether a statement that changes no document has failed.
func mustHit(s statement) bool { return s.Doc != nil || s.conditional() }

func (c *Client) writeRun(ctx context.Context, run []statement) error {
	cmd, err := command(run)
	if err != nil {
		return err
	}
	raw, err := c.ns.db.RunCommand(ctx, cmd).Raw()
	if err != nil {
		var exception mongo.WriteException
		if errors.As(err, &exception) && len(exception.WriteErrors) > 0 && !isTransient(err) {
			first := exception.WriteErrors[0]
			s := run[min(max(first.Index, 0), len(run)-1)]
			return fmt.Errorf("write %s %s: %w", s.Kind, s.Key, refusalOf(s, &first))
		}
		return classify("write", err)
	}
	n, _ := raw.Lookup("n").AsInt64OK()
	if !mustHit(run[0]) || n >= int64(len(run)) {
		return nil
	}
	if len(run) > 1 {
		return errShort
	}
	s := run[0]
	reason, err := c.reasonAt(ctx, s, nil)
	if err != nil {
		return classify("write", err)
	}
	if reason == nil {
		return fmt.Errorf("write %s %s: %w", s.Kind, s.Key, errAgain)
	}
	return fmt.Errorf("write %s %s: %w", s.Kind, s.Key, reason)
}

// refusalOf maps what the server said of one statement.
func refusalOf(s statement, we *mongo.WriteError) error {
	switch we.Code {
	case codeUUIDMismatch:
		return fmt.Errorf("%w: %s", record.ErrFenced, we.Message)
	case codeValidation:
		if byFence(we) {
			return fmt.Errorf("%w: %s", record.ErrFenced, we.Message)
		}
		return fmt.Errorf("the collection's validator refuses the record: %w", we)
	case codeDuplicateKey:
		d := duplicateOf(we.Raw, we.Message)
		switch {
		case d.onID && s.Absent:
			return record.ErrExists
		case d.onID:
			return errAgain // two upserts met
		}
		return conflictError(d)
	default:
		return we
	}
}

// rejection maps the error of a whole command.
func rejection(err error) error {
	if errors.Is(err, record.ErrUnknown) {
		return err
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
