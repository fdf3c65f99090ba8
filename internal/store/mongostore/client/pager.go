package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/changes"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/recordio"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

var _ record.Pager = (*Client)(nil)

// ListWith lists records and reads the records that also selects for them, all at one snapshot. The
// find of the list chooses the snapshot. The result is as recent as a List.
func (c *Client) ListWith(ctx context.Context, toks record.Tokens, list record.ListRequest, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	if err := c.check(list.Token); err != nil {
		return nil, nil, err
	}
	most := list.Bytes
	list.Bytes = 0 // the bound refuses a larger result; the list must not be cut short
	err = conn.Reading(ctx, func() error {
		var refused error // an error that a retry does not change
		// Start the second find before the first: its wait is most of the time of a small page.
		early, end := c.sendAhead(ctx, toks, list)
		defer end()
		err := c.ns.AtSnapshot(ctx, conn.VersionOf(c.ns.Seen.Time()), func(ctx context.Context, o recordio.ReadOptions) (err error) {
			o.Bound = recordio.NewBound(most)
			if listed, o.At, err = c.ns.findList(ctx, list, o); err != nil {
				return err
			}
			byKind, kinds, err := c.withList(toks, listed, also)
			if refused = err; err != nil {
				return err
			}
			o.Near = true
			var snap record.Snapshot
			came := habitOf(list, kinds, byKind)
			// Only records of the same snapshot may be mixed; the rest is read below.
			if a := early(); a != nil && byKind[a.kind] != nil {
				snap.Records = a.take(byKind[a.kind], o.At)
				c.habits.sent(list, a.at.Equal(o.At))
				// The early find ran without the bound: it ends after one reply.
				for _, r := range snap.Records {
					if err := o.Bound.Take(r.Doc); err != nil {
						return err
					}
				}
			}
			for _, kind := range kinds {
				tok := toks[kind]
				tok.Kind = kind
				if _, err := c.ns.ReadKind(ctx, tok, byKind[kind], o, false, &snap); err != nil {
					return err
				}
			}
			with = snap.Records
			c.ns.Seen.Reach(o.At)
			c.habits.learn(list, came, len(listed), len(with))
			return nil
		})
		if refused != nil {
			return conn.Permanent(refused)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list %s: %w", list.Token.Name, err)
	}
	return listed, with, nil
}

// withList returns the selections of also by kind, checked and sorted.
func (c *Client) withList(toks record.Tokens, listed []record.Record, also func([]record.Record) ([]record.Selector, error)) (map[string]*recordio.Selection, []string, error) {
	sels, err := also(listed)
	if err != nil {
		return nil, nil, err
	}
	byKind, kinds, err := recordio.Selections(sels)
	for _, kind := range kinds {
		// Later lookups use binary search.
		slices.Sort(byKind[kind].Keys)
		if err == nil {
			err = c.check(toks[kind])
		}
	}
	return byKind, kinds, err
}

// findList runs the find of a list. It also returns the time of the snapshot.
func (n part) findList(ctx context.Context, list record.ListRequest, o recordio.ReadOptions) ([]record.Record, bson.Timestamp, error) {
	p, err := wire.PlaceOf(list.Token)
	if err != nil {
		return nil, o.At, err
	}
	limit := limitOf(list)
	rest, err := bson.Marshal(bson.D{
		{Key: "filter", Value: bson.D{{Key: "_id", Value: namesOf(list)}, {Key: wire.GuardField + ".x", Value: notTrue}}},
		{Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "hint", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "limit", Value: limit},
		{Key: "batchSize", Value: limit},
	})
	if err != nil {
		return nil, o.At, fmt.Errorf("list %s: %w", p.Coll, err)
	}
	// Splice the elements, so that both parts become one command.
	command := wire.AppendCommand(nil, "find", p)
	command = append(command, rest[4:len(rest)-1]...) // its elements only
	rs, size := wire.RecordSet{Kind: list.Token.Kind}, 0
	// recordSet strips guards; the filter has left out tombstones already.
	at, err := n.Find(ctx, p, wire.EndDocument(o.Append(command), 0), o, func(doc []byte) error {
		if err := rs.Add(doc); err != nil {
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
	return rs.Records(), at, err
}

// SelectAt reads at a snapshot that the server chooses, as recent as a List, and returns its
// version.
func (c *Client) SelectAt(ctx context.Context, req record.SelectRequest) (snap record.Snapshot, err error) {
	req.AsList = true
	err = c.selecting(ctx, req, func(read record.Snapshot) { snap = read })
	return snap, err
}

// Since returns the changes of kinds after a position, without waiting for more. It opens a change
// stream and reads its first replies. A zero position returns only the current position. Through
// mongos the result is record.UnsupportedError. A stream there reaches the present only when every
// shard has written something, which is too long for a list.
func (c *Client) Since(ctx context.Context, kinds []record.KindSpec, after record.Position) (record.ChangeBatch, error) {
	mongos, err := c.ns.IsMongos(ctx)
	if err != nil {
		return record.ChangeBatch{}, conn.Classify("changes since", err)
	}
	if mongos {
		return record.ChangeBatch{}, &record.UnsupportedError{What: "changes since a list through mongos", Reason: "the stream of a sharded cluster lags behind its shards"}
	}
	if after.IsZero() {
		now, err := c.ns.Position(ctx)
		return record.ChangeBatch{Pos: now}, err
	}
	opened, err := c.ns.Watch(ctx, after, kinds)
	if conn.HasCode(err, conn.CodeUnauthorized) {
		// Listing works without change streams, only without this optimization.
		return record.ChangeBatch{}, &record.UnsupportedError{What: "changes since a list", Reason: "the database user may not open change streams"}
	}
	if err != nil {
		return record.ChangeBatch{}, err
	}
	return changes.UpToNow(ctx, opened)
}
