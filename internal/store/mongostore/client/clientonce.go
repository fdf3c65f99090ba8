package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

var _ record.OnceClient = (*Client)(nil)

// CreateOnce creates records together with a marker, in one transaction. It reports false if the
// marker already exists. Each kind has a document for the marker in dbc_marks. Each call has a
// number, so that a call with an unknown commit finds out whether the marker is its own.
func (c *Client) CreateOnce(ctx context.Context, toks record.Tokens, marker string, records []record.Record) (made bool, err error) {
	what := "create once (" + marker + ")"
	// Check every record before the transaction, so that no locks are held for an invalid one.
	stmts := make([]statement, len(records))
	for i, r := range records {
		if r.Doc == nil {
			return false, fmt.Errorf("%s: %s %s: no document", what, r.Kind, r.Key)
		}
		// A record that exists already is no error here; the transaction leaves it out.
		if stmts[i], err = c.statement(toks, record.Mutation{Kind: r.Kind, Key: r.Key, Doc: r.Doc, Absent: true}); err != nil {
			return false, fmt.Errorf("%s: %s %s: %w", what, r.Kind, r.Key, record.Refuse(err))
		}
	}
	var marks []string
	for _, tok := range toks {
		if !tok.Fixed {
			marks = append(marks, conn.OnceID(tok, marker))
		}
	}
	slices.Sort(marks) // same order everywhere: two calls conflict at the first marker
	// The number identifies this call's marker in all of its attempts.
	call := bson.NewObjectID()
	err = conn.Retry(ctx, writeLimit, func() error {
		err := c.transact(ctx, what, func(ctx context.Context) error {
			made, err = c.createOnce(ctx, marks, call, stmts)
			return err
		})
		if errors.Is(err, record.ErrUnknown) && ctx.Err() == nil {
			return err // retry: the marker shows whether the first attempt committed
		}
		return conn.Permanent(err)
	})
	return made && err == nil, err
}

// createOnce is one attempt within a transaction.
func (c *Client) createOnce(ctx context.Context, marks []string, call bson.ObjectID, stmts []statement) (made bool, err error) {
	// Access each collection first, so that a fence fails the call even if the marker exists.
	absent, err := c.absent(ctx, stmts)
	if err != nil {
		return false, err
	}
	marked, err := c.find(ctx, record.Token{Name: conn.MarksCollection}, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: marks}}}}, nil)
	if err != nil {
		return false, conn.Classify("look for the marker", err)
	}
	if marked != nil {
		by, _ := marked.Lookup("by").ObjectIDOK()
		return by == call, nil
	}
	docs := make(bson.A, len(marks))
	for i, id := range marks {
		docs[i] = bson.D{{Key: "_id", Value: id}, {Key: "by", Value: call}}
	}
	err = c.ns.DB.RunCommand(ctx, bson.D{{Key: "insert", Value: conn.MarksCollection}, {Key: "documents", Value: docs}}).Err()
	if conn.HasCode(err, conn.CodeDuplicateKey) {
		// Another call has committed the marker since our snapshot.
		return false, fmt.Errorf("write marker: %w", conn.ErrAgain)
	}
	if err != nil {
		return false, conn.Classify("write marker", err)
	}
	for len(absent) > 0 {
		run := absent[:runLength(absent, maxStatements)]
		absent = absent[len(run):]
		err := c.writeRun(ctx, run)
		if errors.Is(err, record.ErrExists) || errors.Is(err, errShort) {
			err = fmt.Errorf("%w: %w", conn.ErrAgain, err) // the record was created since the snapshot
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// absent returns the statements whose keys hold no record. Its reads carry the UUID of each
// collection, so that a fence fails the call even if nothing is left to create.
func (c *Client) absent(ctx context.Context, stmts []statement) ([]statement, error) {
	var absent []statement
	for _, s := range stmts {
		live, err := c.find(ctx, s.Tok, s.live(), nil)
		if err != nil {
			return nil, conn.Classify("look for an existing document", err)
		}
		if live == nil {
			absent = append(absent, s)
		}
	}
	return absent, nil
}
