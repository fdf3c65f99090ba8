package client

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// maxStatements bounds the statements of one command in a transaction.
const maxStatements = 500

// Write makes all mutations or none. It returns record.ErrExists, ErrNotFound or ErrMismatch for a
// condition that does not hold, ErrFenced behind a fence, and ErrUnknown if the outcome stays open.
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
		// One of the conditions did not hold. One statement at a time shows which one.
		err = c.writeAll(ctx, stmts, 1)
	}
	return err
}

// writeOne makes one mutation. It starts over if the record changed between a refusal and the read
// that explains it.
func (c *Client) writeOne(ctx context.Context, s statement) error {
	for {
		if s.Absent {
			done, err := c.insert(ctx, s)
			if done || err != nil {
				return err
			}
			// The key is taken by a record, or by a tombstone that the update replaces.
		}
		cmd, err := command([]statement{s})
		if err != nil {
			return err
		}
		if s.Absent {
			// Not an upsert: if the tombstone was purged meanwhile, start over with an insert.
			cmd[1].Value = bson.A{bson.D{{Key: "q", Value: s.filter()}, {Key: "u", Value: s.replacement()}}}
		}
		a, err := c.write(ctx, cmd)
		switch {
		case err != nil:
			return rejection(err)
		case a.refused != nil && s.upserts() && !s.Absent && onID(a.refused):
			continue // two upserts inserted at the same time
		case a.refused != nil:
			return refusalOf(s, a.refused)
		// Without a condition, a delete of a missing record is done too.
		case a.n > 0, !s.conditional() && !s.Absent:
			return nil
		}
		reason, err := c.reason(ctx, s)
		if reason != nil || err != nil {
			return errors.Join(reason, err)
		}
		// The condition holds now, so try again.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// insert creates a record. done is false if the key is taken by a record or a tombstone.
func (c *Client) insert(ctx context.Context, s statement) (done bool, err error) {
	cmd, err := conn.WithUUID(keepTimestamps(bson.D{
		{Key: "insert", Value: s.Tok.Name},
		{Key: "documents", Value: bson.A{s.Raw}},
	}, s.emptyTS), s.Tok)
	if err != nil {
		return false, err
	}
	a, err := c.write(ctx, cmd)
	switch {
	case err != nil:
		return false, rejection(err)
	case a.refused == nil:
		return true, nil
	// The key is taken; the caller looks by what.
	case onID(a.refused):
		return false, nil
	default:
		return false, refusalOf(s, a.refused)
	}
}

// reason explains why a condition did not hold. It is nil if the condition holds now.
func (c *Client) reason(ctx context.Context, s statement) (reason, err error) {
	at, err := c.barrier.Ask(ctx, struct{}{})
	if err != nil {
		return nil, fmt.Errorf("look for the reason: %w", err)
	}
	c.ns.Seen.Reach(at) // the refused caller must see in later lists what refused it
	// Both reads at one time, or a record that comes or goes in between could look changed.
	snapshot := bson.D{{Key: "level", Value: "snapshot"}, {Key: "atClusterTime", Value: at}}
	err = conn.Reading(ctx, func() error {
		reason, err = c.reasonAt(ctx, s, snapshot)
		return err
	})
	return reason, conn.Classify("look for the reason", err)
}

func (c *Client) reasonAt(ctx context.Context, s statement, concern bson.D) (reason, err error) {
	// First without Match, to tell a missing record from one that does not match.
	anything := s
	anything.Match = nil
	live, err := c.find(ctx, s.Tok, anything.live(), concern)
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
	// A record that matches now has changed since, so the caller tries again.
	matching, err := c.find(ctx, s.Tok, s.live(), concern)
	if err != nil || matching != nil {
		return nil, err
	}
	return record.ErrMismatch, nil
}

// errShort reports that a command of several statements changed fewer records than it needs.
var errShort = errors.New("a condition does not hold")

// transact runs a transaction of the namespace, and raises the horizon to its commit.
func (c *Client) transact(ctx context.Context, what string, body func(context.Context) error) error {
	var session *mongo.Session
	err := c.ns.Transact(ctx, what, func(ctx context.Context) error {
		// Keep the session: its operation time is the time of the commit.
		session = mongo.SessionFromContext(ctx)
		return body(ctx)
	})
	if err != nil {
		return err
	}
	if at := session.OperationTime(); at != nil {
		c.ns.Seen.Reach(*at)
	}
	return nil
}

// writeAll makes the mutations in one transaction, with at most most statements in a command.
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

// runLength returns how many of the first statements fit in one command.
func runLength(stmts []statement, most int) int {
	first, size := stmts[0], 0
	for i, s := range stmts {
		size += s.size()
		// One command has one collection, one verb, and one rule for statements that match nothing.
		if i == most || s.Tok != first.Tok || s.deletes() != first.deletes() ||
			mustHit(s) != mustHit(first) || (i > 0 && size > wire.MaxCommandBytes) {
			return i
		}
	}
	return len(stmts)
}

// mustHit reports whether a statement fails if it changes no document.
func mustHit(s statement) bool { return s.Doc != nil || s.conditional() }

func (c *Client) writeRun(ctx context.Context, run []statement) error {
	cmd, err := command(run)
	if err != nil {
		return err
	}
	raw, err := c.ns.DB.RunCommand(ctx, cmd).Raw()
	if err != nil {
		var exception mongo.WriteException
		// An interrupted or transient transaction is retried as a whole; the statement is not to
		// blame.
		if errors.As(err, &exception) && len(exception.WriteErrors) > 0 && !conn.IsTransient(err) && !conn.HasCode(err, conn.CodeInterrupted) {
			first := exception.WriteErrors[0]
			s := run[min(max(first.Index, 0), len(run)-1)]
			return fmt.Errorf("write %s %s: %w", s.Kind, s.Key, refusalOf(s, &first))
		}
		return conn.Classify("write", err)
	}
	n, _ := raw.Lookup("n").AsInt64OK()
	// An unconditional delete may match nothing.
	if !mustHit(run[0]) || n >= int64(len(run)) {
		return nil
	}
	if len(run) > 1 {
		return errShort
	}
	s := run[0]
	reason, err := c.reasonAt(ctx, s, nil)
	if err != nil {
		return conn.Classify("write", err)
	}
	// The snapshot shows no reason, so a retry of the transaction must decide.
	if reason == nil {
		return fmt.Errorf("write %s %s: %w", s.Kind, s.Key, conn.ErrAgain)
	}
	return fmt.Errorf("write %s %s: %w", s.Kind, s.Key, reason)
}
