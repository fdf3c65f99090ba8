package mongostore

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

var _ record.Client = (*Client)(nil)

// Client reads and writes managed kinds for a service. Its methods may be called
// concurrently.
//
// # Reads
//
// Get is linearizable: it reads, at the primary, a majority-committed state that is not
// older than a majority write which began after the call did, so that a primary that
// was deposed without knowing it cannot answer with what it still has. Such a write is
// an oplog note where the user may append one and an update of dbc_marks otherwise;
// calls that wait at the same time share one. (Read concern "linearizable" means the
// same, and waits for the journal's next flush: 100 ms where nothing else is written. A write of
// a caller that begins after the call would do, too, but beside 2,000 of them a second none came
// noticeably sooner than a write of its own.)
// Through mongos the shared write may be on another shard, and Get is majority-committed
// only. Select is like Get, at one snapshot.
//
// List, ListNames and a Select as a list spare that write. They are majority-committed and, which
// the server enforces (afterClusterTime), not before the Horizon. What they may miss is what a
// newer primary has acknowledged to other processes while the old one has not noticed that it was
// deposed, or an old one while no majority has the first entry of the new one yet. A Select as a
// list of one key is one find, as the driver's own read is.
//
// # Writes
//
// One mutation is one command under a transaction number of our own, and after a lost
// answer the very same command is sent again: the server returns the result of the first
// execution, also when a fence came between. Several mutations are one transaction.
//
// A 361 is ErrFenced. On a first attempt nothing was written, as the answer implies. On a
// repetition it means that this node does not have the first attempt, and the answer
// without a write concern error means that a majority has all that this node has: the
// fence is in every history that can be acknowledged, the first attempt is not, and
// where it still travels it will meet the fence itself. Any other refusal on a
// repetition is definite only once the transaction number is used up, so that the first
// attempt cannot run late; where that fails too the answer is ErrUnknown.
//
// # Servers that do not check collection UUIDs
//
// Tokens without an identity mean a namespace whose fences are validators. Deletes are
// then tombstones, which meet the validator, and 121 from a fence's validator is
// ErrFenced. Reads are not fenced there.
type Client struct {
	ns       *Namespace
	sessions sessions
	// barrier gives out cluster times that are later than all that was acknowledged before
	// the call.
	barrier rounds[struct{}, bson.Timestamp]
	habits  habits // of lists
}

// Client returns a client of the namespace, which must stay open. A process needs one.
func (n *Namespace) Client() *Client {
	c := &Client{ns: n}
	c.barrier.do = func(ctx context.Context, _ []struct{}) (bson.Timestamp, error) { return n.majorityNow(ctx) }
	return c
}

const readRetryLimit = 15 * time.Second

// Get returns a live record.
func (c *Client) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	if err := c.check(tok); err != nil {
		return record.Record{}, err
	}
	doc, err := c.newest(ctx, tok, key, func() (bson.Timestamp, error) { return c.barrier.ask(ctx, struct{}{}) })
	if err != nil {
		return record.Record{}, err
	}
	if doc == nil {
		return record.Record{}, fmt.Errorf("get from %s: %s: %w", tok.Name, key, record.ErrNotFound)
	}
	return record.Record{Kind: tok.Kind, Key: key, Doc: doc}, nil
}

// newest returns what a majority has of a live record, nil if there is none, at a time that is not
// before the one that notBefore returns.
func (c *Client) newest(ctx context.Context, tok record.Token, key record.Key, notBefore func() (bson.Timestamp, error)) (doc bson.Raw, err error) {
	what := "get from " + tok.Name
	p, err := placeOf(tok)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var raw bson.Raw
	err = reading(ctx, func() error {
		after, err := notBefore()
		if err != nil {
			return err
		}
		buf := getBuffer()
		defer putBuffer(buf)
		b := appendCommand(*buf, "find", p)
		b, filter := beginElement(b, bson.TypeEmbeddedDocument, "filter")
		b = endDocument(appendValueElement(b, "_id", key.Value()), filter)
		b = bsoncore.AppendInt32Element(b, "limit", 1)
		b = bsoncore.AppendBooleanElement(b, "singleBatch", true)
		*buf = endDocument(readOptions{majority: true, after: after}.append(b), 0)
		raw, err = c.ns.run(ctx, *buf)
		return err
	})
	if err != nil {
		return nil, classify(what, err)
	}
	c.ns.seen.answered(raw)
	found, _ := raw.Lookup("cursor", "firstBatch", "0").DocumentOK()
	doc, _, err = liveDoc(found)
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
	cmd, err := withUUID(cmd, tok)
	if err != nil {
		return nil, err
	}
	raw, err := c.ns.db.RunCommand(ctx, cmd).Raw()
	if err != nil {
		return nil, err
	}
	doc, _ := raw.Lookup("cursor", "firstBatch", "0").DocumentOK()
	return doc, nil
}

// reading repeats a read after errors that go away, which is always safe.
func reading(ctx context.Context, read func() error) error {
	return retry(ctx, readRetryLimit, func() error {
		err := read()
		if err == nil || ctx.Err() != nil || hasCode(err, codeUUIDMismatch) || !readAgain(err) {
			return permanent(err)
		}
		return err
	})
}

// readAgain excludes what heldUp and lookups by name make worth repeating for fences.
func readAgain(err error) bool {
	return (worthRepeating(err) || hasCode(err, codeSnapshotUnavailable)) && !isContext(err) && !hasCode(err, codeNamespaceNotFound, codeMaxTimeExpired)
}

// check refuses tokens that this client must not use.
func (c *Client) check(tok record.Token) error {
	switch {
	case tok.Name == "":
		return fmt.Errorf("kind %q has no token", tok.Kind)
	case tok.Fixed:
		return &record.UnsupportedError{
			What:   "collection " + c.ns.name + "." + tok.Name,
			Reason: "it is of a fixed-name kind, which its application reads and writes directly",
		}
	}
	return nil
}

// liveDoc strips the guard of a document and reports whether it is a record.
func liveDoc(doc bson.Raw) (bson.Raw, bool, error) {
	if doc == nil {
		return nil, false, nil
	}
	l, err := layoutOf(doc, true)
	if err != nil {
		return nil, false, err
	}
	if _, tombstone := l.guard(doc); tombstone {
		return nil, false, nil
	}
	return l.strip(doc), true, nil
}
