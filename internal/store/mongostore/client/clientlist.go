package client

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/recordio"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

const defaultListLimit = 1000

// List returns live records with string names, in name order, up to the request's limits.
func (c *Client) List(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	what := "list " + req.Token.Name
	var records []record.Record
	var size int
	err := c.listing(ctx, req, func() { records, size = records[:0], 0 }, func(doc bson.Raw) error {
		// The cursor reuses its buffer, so keep a copy.
		doc, live, err := liveDoc(append(bson.Raw(nil), doc...))
		if err != nil || !live {
			return err
		}
		key, err := record.KeyOfDoc(doc)
		if err != nil {
			return err
		}
		records = append(records, record.Record{Kind: req.Token.Kind, Key: key, Doc: doc})
		// Stop at the byte limit here: the server knows only the limit of records.
		if req.Full(&size, doc) {
			return errEnough
		}
		return nil
	}, bson.E{Key: "filter", Value: bson.D{{Key: "_id", Value: namesOf(req)}, {Key: wire.GuardField + ".x", Value: notTrue}}})
	return records, conn.Classify(what, err)
}

// ListNames returns names in name order, including the names of tombstones. It reads only the index
// of _id, which does not show whether a document is a tombstone.
func (c *Client) ListNames(ctx context.Context, req record.ListRequest) ([]string, error) {
	what := "names of " + req.Token.Name
	var names []string
	err := c.listing(ctx, req, func() { names = names[:0] }, func(doc bson.Raw) error {
		name, ok := doc.Lookup("_id").StringValueOK()
		if ok {
			names = append(names, name)
		}
		return nil
	}, bson.E{Key: "filter", Value: bson.D{{Key: "_id", Value: namesOf(req)}}}, bson.E{Key: "projection", Value: bson.D{{Key: "_id", Value: 1}}})
	return names, conn.Classify(what, err)
}

// namesOf returns the condition on _id for the names that a list asks for. Comparisons with a
// string match strings only.
func namesOf(req record.ListRequest) bson.D {
	names := bson.D{{Key: "$gte", Value: req.Prefix}}
	if req.After != "" {
		names = append(names, bson.E{Key: "$gt", Value: req.After})
	}
	if end := recordio.Successor(req.Prefix); end != "" {
		names = append(names, bson.E{Key: "$lt", Value: end})
	}
	return names
}

// errEnough stops a find whose user needs no more documents. It is not reported.
var errEnough = errors.New("enough was read")

// listing is finding in name order.
func (c *Client) listing(ctx context.Context, req record.ListRequest, begin func(), use func(doc bson.Raw) error, selects ...bson.E) error {
	limit := limitOf(req)
	return c.finding(ctx, req.Token, begin, use, append(selects,
		bson.E{Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}},
		bson.E{Key: "hint", Value: bson.D{{Key: "_id", Value: 1}}},
		bson.E{Key: "limit", Value: limit},
		bson.E{Key: "batchSize", Value: limit})...)
}

// finding runs a find that is as recent as a list, and passes each document to use. After a
// temporary error it calls begin and starts again. An error of use is final, except errEnough.
func (c *Client) finding(ctx context.Context, tok record.Token, begin func(), use func(doc bson.Raw) error, selects ...bson.E) error {
	if err := c.check(tok); err != nil {
		return err
	}
	cmd, err := conn.WithUUID(append(append(bson.D{{Key: "find", Value: tok.Name}}, selects...), bson.E{Key: "readConcern", Value: c.ns.Seen.Concern()}), tok)
	if err != nil {
		return err
	}
	session, err := c.ns.Mongo.StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	// End the session even after ctx was cancelled, or the driver's pool loses it.
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	return conn.Reading(ctx, func() error {
		// A retry starts over: begin discards what the failed attempt has collected.
		begin()
		cursor, err := c.ns.DB.RunCommandCursor(ctx, cmd)
		if err != nil {
			return err
		}
		defer cursor.Close(context.WithoutCancel(ctx))
		for cursor.Next(ctx) {
			err := use(cursor.Current)
			if errors.Is(err, errEnough) {
				break
			}
			if err != nil {
				return conn.Permanent(err)
			}
		}
		// Only a complete find may raise the horizon.
		if at := session.OperationTime(); at != nil && cursor.Err() == nil {
			c.ns.Seen.Reach(*at)
		}
		return cursor.Err()
	})
}

// Select returns live records at one snapshot. The snapshot is not older than any write
// acknowledged before the call, except with AsList.
func (c *Client) Select(ctx context.Context, req record.SelectRequest) (found []record.Record, err error) {
	if req.AsList && len(req.Select) == 1 && !req.Select[0].Prefix {
		return c.selectOne(ctx, req.Tokens, req.Select[0])
	}
	err = c.selecting(ctx, req, func(read record.Snapshot) { found = read.Records })
	return found, err
}

// selectOne is a Select of one key with AsList. One document needs no snapshot.
func (c *Client) selectOne(ctx context.Context, toks record.Tokens, sel record.Selector) ([]record.Record, error) {
	tok := toks[sel.Kind]
	if err := c.check(tok); err != nil {
		return nil, fmt.Errorf("select: %w", err)
	}
	doc, err := c.newest(ctx, tok, sel.Key, func() (bson.Timestamp, error) { return c.ns.Seen.Time(), nil })
	if doc == nil || err != nil {
		return nil, err
	}
	return []record.Record{{Kind: sel.Kind, Key: sel.Key, Doc: doc}}, nil
}

func (c *Client) selecting(ctx context.Context, req record.SelectRequest, use func(record.Snapshot)) error {
	for _, sel := range req.Select {
		if err := c.check(req.Tokens[sel.Kind]); err != nil {
			return fmt.Errorf("select: %w", err)
		}
	}
	if len(req.Select) == 0 {
		return nil
	}
	err := conn.Reading(ctx, func() error {
		// The horizon alone is as recent as a list; otherwise wait for a new barrier.
		notBefore := c.ns.Seen.Time()
		if !req.AsList {
			var err error
			if notBefore, err = c.barrier.Ask(ctx, struct{}{}); err != nil {
				return err
			}
		}
		snap, err := c.ns.Read(ctx, record.ReadRequest{Tokens: req.Tokens, Select: req.Select, NotBefore: conn.VersionOf(notBefore), Bytes: req.Bytes})
		if err == nil {
			c.ns.Seen.Reach(conn.TimestampOf(snap.Version))
		}
		use(snap)
		return err
	})
	if err != nil {
		return fmt.Errorf("select: %w", err)
	}
	return nil
}
