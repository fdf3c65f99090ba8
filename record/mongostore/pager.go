package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var _ record.Pager = (*Client)(nil)

// ListWith lists with a find that chooses the snapshot, at which everything else is read.
func (c *Client) ListWith(ctx context.Context, toks record.Tokens, list record.ListRequest, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	if err := c.check(list.Token); err != nil {
		return nil, nil, err
	}
	most := list.Bytes
	list.Bytes = 0 // nothing is cut
	err = reading(ctx, func() error {
		var refused error // which another try does not change
		early, end := c.sendAhead(ctx, toks, list)
		defer end()
		err := c.ns.atSnapshot(ctx, versionOf(c.ns.seen.time()), func(ctx context.Context, o readOptions) (err error) {
			o.bound = newBound(most)
			if listed, o.at, err = c.ns.findList(ctx, list, o); err != nil {
				return err
			}
			byKind, kinds, err := c.withList(toks, listed, also)
			if refused = err; err != nil {
				return err
			}
			o.near = true
			var snap record.Snapshot
			came := habitOf(list, kinds, byKind)
			if a := early(); a != nil && byKind[a.kind] != nil {
				snap.Records = a.take(byKind[a.kind], o.at)
				c.habits.sent(list, a.at.Equal(o.at))
			}
			for _, kind := range kinds {
				tok := toks[kind]
				tok.Kind = kind
				if _, err := c.ns.readKind(ctx, tok, byKind[kind], o, false, &snap); err != nil {
					return err
				}
			}
			with = snap.Records
			c.ns.seen.reach(o.at)
			c.habits.learn(list, came, len(listed), len(with))
			return nil
		})
		if refused != nil {
			return permanent(refused)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list %s: %w", list.Token.Name, err)
	}
	return listed, with, nil
}

// withList is what is to be read with a list.
func (c *Client) withList(toks record.Tokens, listed []record.Record, also func([]record.Record) ([]record.Selector, error)) (map[string]*selection, []string, error) {
	sels, err := also(listed)
	if err != nil {
		return nil, nil, err
	}
	byKind, kinds, err := selections(sels)
	for _, kind := range kinds {
		slices.Sort(byKind[kind].keys)
		if err == nil {
			err = c.check(toks[kind])
		}
	}
	return byKind, kinds, err
}

// findList is the find of a list, and the time of its snapshot.
func (n *Namespace) findList(ctx context.Context, list record.ListRequest, o readOptions) ([]record.Record, bson.Timestamp, error) {
	p, err := placeOf(list.Token)
	if err != nil {
		return nil, o.at, err
	}
	limit := limitOf(list)
	rest, err := bson.Marshal(bson.D{
		{Key: "filter", Value: bson.D{{Key: "_id", Value: namesOf(list)}, {Key: guardField + ".x", Value: notTrue}}},
		{Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "hint", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "limit", Value: limit},
		{Key: "batchSize", Value: limit},
	})
	if err != nil {
		return nil, o.at, fmt.Errorf("list %s: %w", p.coll, err)
	}
	command := appendCommand(nil, "find", p)
	command = append(command, rest[4:len(rest)-1]...) // its elements
	rs, size := recordSet{kind: list.Token.Kind}, 0
	at, err := n.find(ctx, p, endDocument(o.append(command), 0), o, func(doc []byte) error {
		if err := rs.add(doc); err != nil {
			return err
		}
		if list.Full(&size, doc) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rs.records(), at, err
}

// SelectAt reads at the snapshot that the server chooses.
func (c *Client) SelectAt(ctx context.Context, req record.SelectRequest) (snap record.Snapshot, err error) {
	req.AsList = true
	err = c.selecting(ctx, req, func(read record.Snapshot) { snap = read })
	return snap, err
}

// Since asks a change stream for what there is. Behind mongos a stream comes to the present only
// when every shard has written something, which is too long for a list to wait.
func (c *Client) Since(ctx context.Context, kinds []record.KindSpec, after record.Position) (record.ChangeBatch, error) {
	mongos, err := c.ns.isMongos(ctx)
	if err != nil {
		return record.ChangeBatch{}, classify("changes since", err)
	}
	if mongos {
		return record.ChangeBatch{}, &record.UnsupportedError{What: "changes since a list through mongos", Reason: "a stream of a sharded cluster is behind its shards"}
	}
	if after.IsZero() {
		now, err := c.ns.Position(ctx)
		return record.ChangeBatch{Pos: now}, err
	}
	opened, err := c.ns.Watch(ctx, after, kinds)
	if hasCode(err, codeUnauthorized) {
		return record.ChangeBatch{}, &record.UnsupportedError{What: "changes since a list", Reason: "the database user may not open change streams"}
	}
	if err != nil {
		return record.ChangeBatch{}, err
	}
	defer opened.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the server ends it by itself
	s := opened.(*stream)                          //nolint:forcetypeassert // our own
	var all record.ChangeBatch
	for {
		batch, err := s.Next(ctx) // what the reply that opened the stream holds; it waits for nothing
		if err != nil {
			return record.ChangeBatch{}, err
		}
		all.Changes, all.Wall = append(all.Changes, batch.Changes...), max(all.Wall, batch.Wall)
		if !s.ahead && s.cs.RemainingBatchLength() == 0 && !s.reply.full() {
			s.advance()
			all.Pos = record.Position{At: versionOf(s.at)}
			return all, nil
		}
	}
}
