package proxy

import (
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/address"

	"dbcontroller.dev/internal/proxy/names"
	"dbcontroller.dev/internal/proxy/upstream"
)

// cursor is an open cursor of a client: the server that has it, and the names in its replies.
type cursor struct {
	id       int64 // at its server. Its client has another one if a query went on at another place
	user     *user // who opened it
	cluster  *upstream.Cluster
	server   address.Address
	names    *names.Map // nil: of a collection that does not move
	moves    *deployed  // nil: as for names, or of a transaction, which stays
	epoch    int64      // of the place
	revision int64      // of the place when the cursor was opened
	watches  bool       // a change stream
	hides    bool       // as in place
	rest     *rest      // nil: it is not read ahead
	used     time.Time
}

// moved reports whether the data is no longer at the place of a cursor.
func (c cursor) moved() bool { return c.moves != nil && c.moves.app.Epoch() != c.epoch }

// moving reports whether it has moved or is about to.
func (c cursor) moving() bool {
	if c.moves == nil {
		return false
	}
	held, _ := c.moves.app.Holding()
	return held || c.moved()
}

// renamed reports whether a fence may have renamed the collection since the cursor was opened.
func (c cursor) renamed() bool {
	return c.moves != nil && c.hides && c.moves.app.Revision() != c.revision
}

// cursors holds the open cursors of all clients. Servers choose their ids at random. A user finds only its own.
type cursors struct {
	mu   sync.Mutex
	open map[owned]cursor
}

// owned is a cursor of a user.
type owned struct {
	user *user
	id   int64
}

// forgotten is the time after which an unused cursor is forgotten. Servers end it earlier.
const forgotten = time.Hour

// mostCursors bounds the cursors that are known.
const mostCursors = 100_000

func (c *cursors) keep(id int64, one cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[owned]cursor{}
	}
	if one.id == 0 {
		one.id = id
	}
	one.used = time.Now()
	c.open[owned{one.user, id}] = one
	if len(c.open) > mostCursors {
		c.forget()
	}
}

// forget removes the cursors that were not used for long. If there are few, it removes a tenth of all, so
// that not each new cursor costs a look at all others.
func (c *cursors) forget() {
	for id, one := range c.open {
		if time.Since(one.used) > forgotten {
			one.rest.discard()
			delete(c.open, id)
		}
	}
	for id, one := range c.open {
		if len(c.open) <= mostCursors*9/10 {
			return
		}
		one.rest.discard()
		delete(c.open, id)
	}
}

// touch notes that a client uses a cursor, if it is still known.
func (c *cursors) touch(u *user, id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one, ok := c.open[owned{u, id}]; ok {
		one.used = time.Now()
		c.open[owned{u, id}] = one
	}
}

func (c *cursors) get(u *user, id int64) (cursor, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, ok := c.open[owned{u, id}]
	return one, ok
}

// rename gives a cursor the id that its client knows. It returns false if it is not known.
func (c *cursors) rename(u *user, id, to int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, ok := c.open[owned{u, id}]
	if ok {
		delete(c.open, owned{u, id})
		c.open[owned{u, to}] = one
	}
	return ok
}

func (c *cursors) drop(u *user, id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[owned{u, id}].rest.discard()
	delete(c.open, owned{u, id})
}
