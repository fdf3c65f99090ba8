package backfill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

const (
	// maxExamples is the number of failures that a shard keeps.
	maxExamples = 5
	// maxError bounds the text of a failure, in bytes. It is stored in the Deployment.
	maxError = 300
	// swapRecords and swapBytes bound one call of Swap, which is one transaction. A client that
	// writes one of its records waits for its end.
	swapRecords = 100
	swapBytes   = 1 << 20
	// maxTries is the number of repeated reads of a record that others keep changing.
	maxTries = 100
)

// errRestless is the failure of a record that others changed during every try.
var errRestless = errors.New("clients write it faster than the update can swap it: begin the update again at a quieter time")

// changing sends the records of a page through the task.
type changing struct {
	run      *run
	tok      record.Token
	count    upgradestate.UpdateCount
	examples []Failure
}

// records changes the records, and repeats those that others changed in the meantime. After an
// error the caller repeats the page, and already changed records meet the task again.
func (c *changing) records(ctx context.Context, rs []record.Record) error {
	c.count.Seen = int64(len(rs))
	for try := 0; len(rs) > 0; try++ {
		again, err := c.once(ctx, rs)
		if err != nil {
			return err
		}
		// Give up instead of blocking the shard: the failure is counted and shown.
		if try == maxTries {
			for _, key := range again {
				c.fail(key, errRestless)
			}
			return nil
		}
		if rs, err = c.read(ctx, again); err != nil {
			return err
		}
	}
	return nil
}

// once changes each record once, and returns the keys of records that others changed in the
// meantime.
func (c *changing) once(ctx context.Context, rs []record.Record) (again []record.Key, err error) {
	var swaps []record.Swap
	size := 0
	flush := func() error {
		if len(swaps) == 0 {
			return nil
		}
		results, err := c.run.ns.Swap(ctx, c.tok, swaps)
		if err != nil {
			return err
		}
		for i, r := range results {
			switch r.Outcome {
			case record.Applied:
				c.count.Changed++
			case record.Changed:
				again = append(again, swaps[i].Key)
			case record.Refused:
				c.fail(swaps[i].Key, r.Err)
			// A swap has no guard, so this outcome is a fault of the backend.
			case record.Stale:
				return fmt.Errorf("swap of %s: %s", swaps[i].Key, r.Outcome)
			}
		}
		swaps, size = swaps[:0], 0
		return nil
	}
	change := c.run.task.Func
	if prepare := c.run.task.Prepare; prepare != nil {
		if change, err = transform.Isolated(func() (transform.TaskFunc, error) { return prepare(ctx, rs, c.run.keys) }); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", c.run.task.Name, err)
		}
	}
	for _, r := range rs {
		if r.Err != nil {
			c.fail(r.Key, r.Err)
			continue
		}
		// A panic in a task is a failure of this record, not of the controller.
		doc, err := transform.Isolated(func() (bson.Raw, error) { return change(r) })
		switch {
		case err == nil:
		// A rotation may not give up a record because of an outage: no later run covers it.
		case ctx.Err() != nil, c.run.update.Key != "" && passes(err):
			return nil, err
		default:
			c.fail(r.Key, transform.Conceal(err, transform.Group{Records: []record.Record{r}}))
			continue
		}
		// The task changed nothing, or the record is already up to date.
		if doc = record.Stored(doc); doc == nil || bytes.Equal(doc, r.Doc) {
			continue
		}
		if len(swaps) == swapRecords || size+len(doc) > swapBytes {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		size += len(doc)
		swaps = append(swaps, record.Swap{Key: r.Key, Was: r.Doc, Doc: doc})
	}
	return again, flush()
}

// passes reports whether an error concerns the database and not the record. Rotations read the keys
// there, and no later run covers a record that this run gave up.
func passes(err error) bool {
	return errors.Is(err, record.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// read reads records in their present state. Deleted records need no update.
func (c *changing) read(ctx context.Context, keys []record.Key) ([]record.Record, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	// A plain snapshot could be older than the acknowledged write that changed the record.
	now, err := c.run.ns.Position(ctx)
	if err != nil {
		return nil, fmt.Errorf("read again: %w", err)
	}
	req := record.ReadRequest{Tokens: record.Tokens{c.tok.Kind: c.tok}, NotBefore: now.At}
	for _, key := range keys {
		req.Select = append(req.Select, record.Selector{Kind: c.tok.Kind, Key: key})
	}
	snap, err := c.run.ns.Read(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("read again: %w", err)
	}
	return snap.Records, nil
}

func (c *changing) fail(key record.Key, err error) {
	c.count.Failed++
	if len(c.examples) == maxExamples {
		return
	}
	// A panic's error has the stack in its further lines.
	text, _, _ := strings.Cut(err.Error(), "\n")
	c.examples = append(c.examples, Failure{Key: key.String(), Error: strings.ToValidUTF8(text[:min(len(text), maxError)], "")})
}
