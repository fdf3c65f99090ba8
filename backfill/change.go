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
	// maxExamples is how many failures of a shard are kept.
	maxExamples = 5
	// maxError bounds the text of one, for it goes into the Deployment.
	maxError = 300
	// swapRecords and swapBytes bound one call of Swap, which is one transaction: a client
	// that writes one of its records meanwhile waits for its end.
	swapRecords = 100
	swapBytes   = 1 << 20
	// maxTries is how often a record is read again that others change all the time.
	maxTries = 100
)

// errRestless is the failure of a record that nobody could get hold of.
var errRestless = errors.New("it is written faster than it can be read and swapped: begin the update again when there is less to do")

// changing brings the records of a page through the task.
type changing struct {
	run      *run
	tok      record.Token
	count    upgradestate.UpdateCount
	examples []Failure
}

// records changes the records, and again those that were changed by others meanwhile. With
// an error the page is to be started again; what was changed then meets the task once more.
func (c *changing) records(ctx context.Context, rs []record.Record) error {
	c.count.Seen = int64(len(rs))
	for try := 0; len(rs) > 0; try++ {
		again, err := c.once(ctx, rs)
		if err != nil {
			return err
		}
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

// once returns the keys of those that were changed by others.
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
		doc, err := transform.Isolated(func() (bson.Raw, error) { return change(r) })
		switch {
		case err == nil:
		case ctx.Err() != nil, c.run.update.Key != "" && passes(err):
			return nil, err
		default:
			c.fail(r.Key, transform.Conceal(err, transform.Group{Records: []record.Record{r}}))
			continue
		}
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

// passes reports whether an error is of the database and not of the record: which key records are
// under is read there, and nobody goes over a record again that this run has given up.
func passes(err error) bool {
	return errors.Is(err, record.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// read reads records as they are now. Those that are gone need no update.
func (c *changing) read(ctx context.Context, keys []record.Key) ([]record.Record, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	// A snapshot may be older than what was acknowledged.
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
