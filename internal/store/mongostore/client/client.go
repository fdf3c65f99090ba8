package client

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/changes"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/recordio"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

var _ record.Client = (*Client)(nil)

// Client reads and writes managed kinds for a service. Its methods may be called concurrently.
//
// # Reads
//
// Get is linearizable. It reads a majority-committed state at the primary, not older than a
// majority write that began after the call. A deposed primary that does not know it yet can
// complete no such write, so it cannot answer with old data. The write is an oplog note if the user
// may append one, else an update of dbc_marks. Calls that wait at the same time share one write.
//
// Read concern "linearizable" gives the same guarantee, but waits for the next flush of the
// journal: 100 ms on an idle server. Another caller's write that begins after the call would serve
// as well. Measured beside 2,000 such writes per second, waiting for one was not noticeably faster.
//
// Through mongos the shared write may reach another shard, so Get is only majority-committed there.
// Select is like Get, at one snapshot.
//
// List, ListNames and a Select with AsList skip that write. They are majority-committed and not
// older than the Horizon, which the server enforces with afterClusterTime. They can miss writes
// that a newer primary acknowledged to other processes, in two cases: the old primary has not
// noticed that it was deposed, or no majority has the first entry of the new primary yet. A Select
// of one key with AsList is one find, like the driver's own read.
//
// # Writes
//
// One mutation is one command with a transaction number that the Client assigns. After a lost
// answer the Client sends the same command again. The server then returns the result of the first
// execution, even if a fence came in between. Several mutations are one transaction.
//
// Error 361 is ErrFenced. On a first attempt, the answer shows that nothing was written. On a
// retry, it shows that this node does not have the first attempt. If the answer has no write
// concern error, a majority has everything that this node has. The fence is then in every history
// that can be acknowledged, and the first attempt is not. If the first attempt is still on its way,
// it will meet the fence too.
//
// Any other refusal of a retry is definite only once the Client has used up the transaction number,
// so that the first attempt cannot run late. If that fails too, the result is ErrUnknown.
//
// Through mongos no refusal of a retry is definite, and the result is ErrUnknown. A fence changes
// where mongos sends a command: once no sharded collection has the name, the primary shard of the
// database answers 361, and knows nothing of a first attempt on another shard. Nor can a
// transaction number be used up there. A retry that reaches the same shard is still confirmed. If
// mongos loses a shard, it reports an error of the statement, although the shard may have executed
// it. Such an error counts as a lost answer (conn.Severed).
//
// # Servers that do not check collection UUIDs
//
// Tokens without a UUID belong to a namespace whose fences are validators. Deletes then write
// tombstones, which meet the validator. Error 121 from a fence's validator is ErrFenced. Reads are
// not fenced there.
type Client struct {
	ns       part
	sessions sessions
	// barrier returns cluster times later than every write acknowledged before the call.
	barrier conn.Rounds[struct{}, bson.Timestamp]
	habits  habits // of lists; see find.go
}

// part is what a client needs of a namespace.
type part struct {
	*conn.Conn
	*recordio.Records
	*changes.Feed
}

// New returns a client. One client serves a whole process.
func New(conn *conn.Conn, records *recordio.Records, feed *changes.Feed) *Client {
	c := &Client{ns: part{conn, records, feed}}
	c.barrier.Do = func(ctx context.Context, _ []struct{}) (bson.Timestamp, error) { return conn.MajorityNow(ctx) }
	return c
}

// Get returns a live record, or record.ErrNotFound. See Client for how recent it is.
func (c *Client) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	if err := c.check(tok); err != nil {
		return record.Record{}, err
	}
	doc, err := c.newest(ctx, tok, key, func() (bson.Timestamp, error) { return c.barrier.Ask(ctx, struct{}{}) })
	if err != nil {
		return record.Record{}, err
	}
	if doc == nil {
		return record.Record{}, fmt.Errorf("get from %s: %s: %w", tok.Name, key, record.ErrNotFound)
	}
	return record.Record{Kind: tok.Kind, Key: key, Doc: doc}, nil
}

// newest returns the majority-committed live record of a key, nil if there is none. The state is
// not older than the time that notBefore returns.
func (c *Client) newest(ctx context.Context, tok record.Token, key record.Key, notBefore func() (bson.Timestamp, error)) (doc bson.Raw, err error) {
	what := "get from " + tok.Name
	p, err := wire.PlaceOf(tok)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var raw bson.Raw
	err = conn.Reading(ctx, func() error {
		// Ask for the time again on each retry: it must be later than the failover that caused it.
		after, err := notBefore()
		if err != nil {
			return err
		}
		buf := wire.GetBuffer()
		defer wire.PutBuffer(buf)
		b := wire.AppendCommand(*buf, "find", p)
		b, filter := wire.BeginElement(b, bson.TypeEmbeddedDocument, "filter")
		b = wire.EndDocument(wire.AppendValueElement(b, "_id", key.Value()), filter)
		b = bsoncore.AppendInt32Element(b, "limit", 1)
		b = bsoncore.AppendBooleanElement(b, "singleBatch", true)
		*buf = wire.EndDocument(recordio.ReadOptions{Majority: true, After: after}.Append(b), 0)
		raw, err = c.ns.Run(ctx, *buf)
		return err
	})
	if err != nil {
		return nil, conn.Classify(what, err)
	}
	// Later lists of this process must not be older than this read.
	c.ns.Seen.Answered(raw)
	found, err := wire.First(raw)
	if err == nil {
		doc, _, err = liveDoc(found)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return doc, nil
}

// find returns one document, nil if there is none.
func (c *Client) find(ctx context.Context, tok record.Token, filter, concern bson.D) (bson.Raw, error) {
	cmd := bson.D{
		{Key: "find", Value: tok.Name},
		{Key: "filter", Value: filter},
		{Key: "limit", Value: 1},
		{Key: "singleBatch", Value: true},
	}
	if concern != nil {
		cmd = append(cmd, bson.E{Key: "readConcern", Value: concern})
	}
	// Without the UUID, a fence would not stop this read.
	cmd, err := conn.WithUUID(cmd, tok)
	if err != nil {
		return nil, err
	}
	raw, err := c.ns.DB.RunCommand(ctx, cmd).Raw()
	if err != nil {
		return nil, err
	}
	return wire.First(raw)
}

// check refuses tokens that a Client must not use.
func (c *Client) check(tok record.Token) error {
	switch {
	case tok.Name == "":
		return fmt.Errorf("kind %q has no token", tok.Kind)
	case tok.Fixed:
		return &record.UnsupportedError{
			What:   "collection " + c.ns.Name + "." + tok.Name,
			Reason: "it has a fixed-name kind, which its application reads and writes directly",
		}
	}
	return nil
}

// liveDoc strips the guard of a document. It returns false if the document is a tombstone.
func liveDoc(doc bson.Raw) (bson.Raw, bool, error) {
	if doc == nil {
		return nil, false, nil
	}
	l, err := wire.LayoutOf(doc, true)
	if err != nil {
		return nil, false, err
	}
	if _, tombstone := l.Guard(doc); tombstone {
		return nil, false, nil
	}
	return l.Strip(doc), true, nil
}
