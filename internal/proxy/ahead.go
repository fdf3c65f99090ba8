package proxy

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/appclient"
	"dbcontroller.dev/internal/proxy/upstream"
)

// A fence ends the cursors that are open, and no driver begins a read again by itself. So before the proxy
// acknowledges a hold, it reads the open cursors to their end. Clients get the rest from its memory.

const (
	// mostAhead bounds the bytes that are read ahead for one cursor.
	mostAhead = 16 << 20
	// mostAheadOfAll bounds them for all cursors.
	mostAheadOfAll = 128 << 20
	// batchAhead is the most that a server puts into one reply: the longest document and some room.
	batchAhead = longestBody
	// cursorsAtOnce bounds the cursors that are read at a time.
	cursorsAtOnce = 4
	// keptAhead is the time after which an unused rest is dropped. Servers end unused cursors after it, too.
	keptAhead = 10 * time.Minute
)

// expect prepares a cursor of a command to be read ahead. Streams and other cursors that wait for news have no
// end. by is the query that this one goes on with; nil: it is a new one.
func (p *Proxy) expect(c command, reply bsoncore.Document, by *ordered, one *cursor) {
	id := cursorOf(reply)
	if id == 0 || one.watches || one.moves == nil {
		return
	}
	if v, err := c.msg.Body.LookupErr("tailable"); err == nil {
		if tails, ok := v.BooleanOK(); !ok || tails {
			return
		}
	}
	b := bsoncore.NewDocumentBuilder().AppendInt64("getMore", id).AppendString("collection", c.collection)
	more, err := one.names.Command(c.inherit(b).AppendString("$db", c.database).Build())
	if err != nil {
		return
	}
	one.user = c.user
	if by == nil {
		by = orderOf(c)
	}
	one.rest = &rest{cursor: *one, more: more, by: by.delivered(reply), release: p.ahead.Release, faults: &p.faults, reading: make(chan struct{}, 1)}
}

// readAhead reads a cursor to its end. It returns false if that was not possible. What it has read by then
// stays.
func (p *Proxy) readAhead(ctx context.Context, r *rest) bool {
	if r.lock(ctx) != nil {
		return false
	}
	defer r.unlock()
	for r.usable() {
		if !p.readBatch(r) {
			return false
		}
	}
	return r.whole()
}

// readBatch reads one batch of a cursor. It returns false if no further one can be read now.
func (p *Proxy) readBatch(r *rest) bool {
	if !p.ahead.TryAcquire(batchAhead) {
		return false
	}
	kept := false
	defer func() {
		if !kept {
			p.ahead.Release(batchAhead)
		}
	}()
	// The client may be gone, but the documents of a lost reply are lost for all.
	reply, _, err := p.exchange(p.life, r.cursor.user, r.cursor.cluster, upstream.Want{At: r.cursor.server}, request(r.more))
	if err != nil {
		r.lose()
	}
	if err == nil && codeOf(reply) == codeCursorNotFound {
		r.die()
	}
	if err != nil || !succeeded(reply) {
		return false
	}
	docs, err := batchOf(reply)
	if err != nil {
		return false
	}
	kept = true
	r.add(docs, batchAhead, cursorOf(reply) == 0)
	return len(docs) > 0 || cursorOf(reply) == 0 // otherwise it waits for news
}

// finishReads reads the open cursors of a place to their end, for the grace of a switch at most.
func (p *Proxy) finishReads(d *deployed, epoch int64) {
	rests := p.cursors.rests(d, epoch)
	if len(rests) == 0 {
		return
	}
	turns := make(chan struct{}, cursorsAtOnce)
	var g sync.WaitGroup
	for _, r := range rests {
		g.Add(1)
		p.spawn("a cursor that is read ahead", func() {
			defer g.Done()
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
			case <-p.life.Done():
				return
			}
			// It may have ended while it waited for its turn.
			if d.app.Epoch() != epoch || p.readAhead(p.life, r.rest) {
				return
			}
			p.log.Debug("a cursor was not read to its end before a switch", slog.String("collection", r.cursor.names.Place))
			p.cursors.bury(r.id, r.rest)
		}, r.lose)
	}
	done := make(chan struct{})
	p.spawn("the end of cursors", func() {
		defer close(done)
		g.Wait()
	}, nil)
	grace := time.NewTimer(p.cfg.Grace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
	}
}

// holdUntilRead keeps a hold from being acknowledged until the open cursors are read. It counts as a write that
// is in flight between switches.
func (p *Proxy) holdUntilRead(d *deployed) {
	begun := sync.OnceFunc(func() { close(d.reads) })
	defer begun()
	for p.closing.Err() == nil {
		var err error
		fault := p.faults.run("a hold", func() {
			err = d.app.Write(p.closing, func(_ context.Context, at appclient.Place) error {
				begun()
				return p.readBeforeHold(d, at.Epoch)
			})
		})
		begun() // also where no place is known yet
		if err == nil && fault == nil {
			continue
		}
		retry := time.NewTimer(holdRetry)
		select {
		case <-p.closing.Done():
		case <-retry.C:
		}
		retry.Stop()
	}
}

// awaitReader waits until the next hold waits for open cursors. A hold that is there already does not.
func (d *deployed) awaitReader(ctx context.Context) {
	for {
		held, changed := d.app.Holding()
		if held {
			return
		}
		select {
		case <-d.reads:
			return
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// readBeforeHold waits for a hold, and reads the open cursors of a place then.
func (p *Proxy) readBeforeHold(d *deployed, epoch int64) error {
	for {
		held, changed := d.app.Holding()
		switch {
		case d.app.Epoch() != epoch: // too late
			return nil
		case held:
			p.finishReads(d, epoch)
			return nil
		}
		select {
		case <-p.closing.Done():
			return nil
		case <-changed:
		}
	}
}

// holdRetry is the pause after the place of the data could not be found.
const holdRetry = time.Second

// next serves a client from what was read ahead. It returns nil if there is nothing.
func (p *Proxy) next(c command, id int64, r *rest) bsoncore.Document {
	docs, end, ok := r.take(number(c.msg.Body, "batchSize"))
	if !ok {
		return nil
	}
	if len(docs) > 0 {
		r.by = r.by.after(int64(len(docs)), docs[len(docs)-1])
	}
	if end {
		p.cursors.drop(c.user, id)
		id = 0
	}
	return bsoncore.NewDocumentBuilder().AppendDocument("cursor", c.batch(docs, id)).AppendDouble("ok", 1).Build()
}

// openRest is what belongs to an open cursor.
type openRest struct {
	*rest
	id   owned
	used time.Time
}

// rests returns what belongs to the open cursors of a place, the most recently used one first: if the grace ends
// before all are read, those are left that their clients need least. Cursors that are dead, or that nobody has used for
// long, are left out.
func (c *cursors) rests(d *deployed, epoch int64) (out []openRest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, one := range c.open {
		if one.rest != nil && one.moves == d && one.epoch == epoch && time.Since(one.used) <= keptAhead && one.rest.usable() {
			out = append(out, openRest{one.rest, id, one.used})
		}
	}
	slices.SortFunc(out, func(a, b openRest) int { return b.used.Compare(a.used) })
	return out
}

// bury forgets a cursor if it is of no further use. A query by _id goes on at the next place, and keeps its cursor.
func (c *cursors) bury(id owned, r *rest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[id].rest == r && r.hopeless() {
		r.discard()
		delete(c.open, id)
	}
}
