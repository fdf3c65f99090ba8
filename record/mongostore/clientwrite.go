package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/record"
)

// maxStatements bounds one command of a transaction.
const maxStatements = 500

// Write makes all mutations or none.
func (c *Client) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	stmts := make([]statement, len(ms))
	for i, m := range ms {
		s, err := c.statement(toks, m)
		if err != nil {
			return fmt.Errorf("write %s %s: %w", m.Kind, m.Key, record.Refuse(err))
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
		// Some condition did not hold; one statement at a time shows which.
		err = c.writeAll(ctx, stmts, 1)
	}
	return err
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
	at, err := c.barrier.ask(ctx, struct{}{})
	if err != nil {
		return nil, fmt.Errorf("look for the reason: %w", err)
	}
	c.ns.seen.reach(at) // the caller that is refused finds by what
	// Both at one time, or a record that comes or goes between could look changed.
	snapshot := bson.D{{Key: "level", Value: "snapshot"}, {Key: "atClusterTime", Value: at}}
	err = reading(ctx, func() error {
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

// errShort reports that a command of several statements found fewer records than it needs.
var errShort = errors.New("a condition does not hold")

// transact is the namespace's. What it commits is in the horizon.
func (c *Client) transact(ctx context.Context, what string, body func(context.Context) error) error {
	var session *mongo.Session
	err := c.ns.transact(ctx, what, func(ctx context.Context) error {
		session = mongo.SessionFromContext(ctx)
		return body(ctx)
	})
	if err != nil {
		return err
	}
	if at := session.OperationTime(); at != nil {
		c.ns.seen.reach(*at)
	}
	return nil
}

// writeAll makes the mutations in one transaction, with at most so many statements in
// one command.
func (c *Client) writeAll(ctx context.Context, stmts []statement, most int) error {
	return c.transact(ctx, "write", func(ctx context.Context) error {
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
		size += s.size()
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
		if errors.As(err, &exception) && len(exception.WriteErrors) > 0 && !isTransient(err) && !hasCode(err, codeInterrupted) {
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
