package memstore

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"dbcontroller.dev/record"
)

// Options configure a Cluster. The zero value is a plain one.
type Options struct {
	// Start is the clock's first value. Two clusters with different starts have clocks
	// that disagree.
	Start uint64
	// Lag is how many versions a read or scan may be behind the newest commit, and is as far
	// as its NotBefore allows, like one of a secondary. It finds callers that forget to
	// pass what they must see. 0: none.
	Lag uint64
	// Changes is how many changes a batch holds at most, but for those of a commit that it has
	// begun: 256. Fewer find callers that take what comes together for all there is.
	Changes int
	// Torn has batches end within commits too, as those of a transaction over several logs do.
	Torn bool
	// FixedFence is the strongest class offered for fixed-name kinds: FenceView
	// (default) or FenceValidator, as on a cluster that grants less.
	FixedFence record.FenceClass
}

// Cluster is a clock, a change log and the databases that share them. One mutex guards
// everything: the reference is to be obviously right before it is fast.
type Cluster struct {
	opts Options
	id   string // of the cluster

	mu        sync.Mutex
	clock     uint64
	databases map[string]*database
	nextID    uint64
	deposed   uint64 // the clock when Depose was called; 0: reads are answered by the primary
	log       []entry
	forgotten int               // entries before log[0] that are no longer there
	restores  int               // of backups: streams of before end
	wake      chan struct{}     // closed and replaced at each append to log
	blocked   map[string]string // collection id -> mark of its write block; any entry blocks the cluster

	hindrances map[string]string // by kind, for Hindrances

	health     record.Health
	unmeasured error // instead of health
}

// database is one namespace: collections by physical name and by identity.
type database struct {
	name    string
	byName  map[string]*collection
	byID    map[string]*collection
	views   map[string]*collection // a view in place of a name that a fence took away
	foreign map[string]bool        // views that an application made itself
	marks   marks
}

// entry is one change. Exactly one of key, rename, mark, dropped is set.
type entry struct {
	at         uint64
	wall       int64
	db         *database
	collection string // physical name at that time
	id         string // of the collection
	key        record.Key
	deleted    bool
	rename     string
	mark       string
	dropped    bool
	nudge      bool          // of Nudge: neither
	origin     record.Origin // of a key's change
	guard      record.Guard  // that it left
}

// NewCluster makes an empty cluster.
func NewCluster(opts Options) *Cluster {
	if opts.FixedFence == "" {
		opts.FixedFence = record.FenceView
	}
	if opts.Changes == 0 {
		opts.Changes = 256
	}
	return &Cluster{
		opts:      opts,
		id:        rand.Text(),
		clock:     opts.Start + 1, // a zero version is older than any
		databases: map[string]*database{},
		wake:      make(chan struct{}),
		blocked:   map[string]string{},
	}
}

// Open returns a database of the cluster, making it when it is not there. Two stores of
// the same name see the same records.
func (c *Cluster) Open(name string) *Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	db := c.databases[name]
	if db == nil {
		db = newDatabase(name)
		c.databases[name] = db
	}
	return &Store{cluster: c, db: db}
}

func newDatabase(name string) *database {
	return &database{
		name:    name,
		byName:  map[string]*collection{},
		byID:    map[string]*collection{},
		views:   map[string]*collection{},
		foreign: map[string]bool{},
	}
}

// LoseHistory forgets all changes so far, as a log that rolled over does. Streams that
// are behind, and positions taken earlier, end with record.ErrHistoryLost.
func (c *Cluster) LoseHistory() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// One more version, so that a position taken just before is behind as well.
	c.clock++
	c.forgotten += len(c.log) + 1
	c.log = nil
	c.signal()
}

// create makes a collection. Callers hold mu and know that the name is free.
func (c *Cluster) create(db *database, name string) *collection {
	c.nextID++
	col := &collection{id: fmt.Sprintf("%032x", c.nextID), name: name, unique: map[string]*uniqueIndex{}}
	db.byName[name], db.byID[col.id] = col, col
	return col
}

// rename moves a collection and logs it. Callers hold mu and know that to is free.
func (c *Cluster) rename(db *database, col *collection, to string) {
	from := col.name
	delete(db.byName, from)
	col.name = to
	db.byName[to] = col
	c.clock++
	c.append(entry{db: db, collection: from, id: col.id, rename: to})
}

// append adds an entry at the present clock and wakes who waits. Callers hold mu.
func (c *Cluster) append(e entry) {
	e.at, e.wall = c.clock, time.Now().UnixMilli()
	c.log = append(c.log, e)
	c.signal()
}

func (c *Cluster) signal() {
	close(c.wake)
	c.wake = make(chan struct{})
}

// Depose has reads and scans answered, until Rejoin, by a server that was the primary and
// does not know yet that it is not: they show nothing of what is committed from now on, and
// fail where NotBefore asks for it. Writes, positions and changes go on at the new primary.
func (c *Cluster) Depose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deposed = c.clock
}

// Rejoin ends Depose.
func (c *Cluster) Rejoin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deposed = 0
}

// snapshot is the clock of a read that is not before a version: the oldest that it may be.
// Callers hold mu.
func (c *Cluster) snapshot(notBefore record.Version) (uint64, error) {
	newest := c.clock
	if c.deposed != 0 {
		newest = c.deposed
	}
	if clockOf(notBefore) > newest {
		return 0, fmt.Errorf("read not before %s: the server has come to %s", notBefore, versionAt(newest))
	}
	return max(c.oldestSnapshot(), clockOf(notBefore)), nil
}

// oldestSnapshot is the earliest version that a read may still ask for.
func (c *Cluster) oldestSnapshot() uint64 {
	newest, first := c.clock, c.opts.Start+1
	if c.deposed != 0 {
		newest = c.deposed
	}
	if newest < first+c.opts.Lag {
		return first
	}
	return newest - c.opts.Lag
}
