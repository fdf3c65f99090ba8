package mongostore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

const defaultListLimit = 1000

// List returns live records with string names, in name order.
func (c *Client) List(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	what := "list " + req.Token.Name
	var records []record.Record
	err := c.listing(ctx, req, func() { records = records[:0] }, func(doc bson.Raw) error {
		doc, live, err := liveDoc(append(bson.Raw(nil), doc...))
		if err != nil || !live {
			return err
		}
		key, err := record.KeyOfDoc(doc)
		if err != nil {
			return err
		}
		records = append(records, record.Record{Kind: req.Token.Kind, Key: key, Doc: doc})
		return nil
	}, bson.E{Key: "filter", Value: bson.D{{Key: "_id", Value: namesOf(req)}, {Key: guardField + ".x", Value: notTrue}}})
	return records, classify(what, err)
}

// ListNames returns names alone, those of tombstones included: a document that is not looked at
// does not show that it is one, and the index of _id answers alone.
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
	return names, classify(what, err)
}

// namesOf are the bounds of the names that a list asks for. Comparisons with a string select
// strings only.
func namesOf(req record.ListRequest) bson.D {
	names := bson.D{{Key: "$gte", Value: req.Prefix}}
	if req.After != "" {
		names = append(names, bson.E{Key: "$gt", Value: req.After})
	}
	if end := successor(req.Prefix); end != "" {
		names = append(names, bson.E{Key: "$lt", Value: end})
	}
	return names
}

// listing runs a find in name order to its end, again from its beginning after errors that go
// away. An error of use is final.
func (c *Client) listing(ctx context.Context, req record.ListRequest, begin func(), use func(doc bson.Raw) error, selects ...bson.E) error {
	if err := c.check(req.Token); err != nil {
		return err
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultListLimit
	}
	cmd, err := withUUID(append(append(bson.D{{Key: "find", Value: req.Token.Name}}, selects...),
		bson.E{Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}},
		bson.E{Key: "hint", Value: bson.D{{Key: "_id", Value: 1}}},
		bson.E{Key: "limit", Value: limit},
		bson.E{Key: "batchSize", Value: limit},
		bson.E{Key: "readConcern", Value: bson.D{{Key: "level", Value: "majority"}}},
	), req.Token)
	if err != nil {
		return err
	}
	return c.reading(ctx, func() error {
		begin()
		cursor, err := c.ns.db.RunCommandCursor(ctx, cmd)
		if err != nil {
			return err
		}
		defer cursor.Close(context.WithoutCancel(ctx))
		for cursor.Next(ctx) {
			if err := use(cursor.Current); err != nil {
				return permanent(err)
			}
		}
		return cursor.Err()
	})
}

// Select returns live records at one snapshot, which is not older than what was acknowledged
// before the call, unless it is asked for as a list.
func (c *Client) Select(ctx context.Context, req record.SelectRequest) ([]record.Record, error) {
	for _, sel := range req.Select {
		if err := c.check(req.Tokens[sel.Kind]); err != nil {
			return nil, fmt.Errorf("select: %w", err)
		}
	}
	if len(req.Select) == 0 {
		return nil, nil
	}
	var found []record.Record
	err := c.reading(ctx, func() error {
		read := record.ReadRequest{Tokens: req.Tokens, Select: req.Select}
		if !req.AsList {
			at, err := c.barrier.ask(ctx, struct{}{})
			if err != nil {
				return err
			}
			read.NotBefore = versionOf(at)
		}
		snap, err := c.ns.Read(ctx, read)
		found = snap.Records
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("select: %w", err)
	}
	return found, nil
}
