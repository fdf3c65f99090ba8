package memstore

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"dbcontroller.dev/record"
)

// Options configure a Cluster. The zero value gives a cluster without lag and with all fence
// classes.
type Options struct {
	// Start is the first value of the clock. Clusters with different starts have clocks that
	// disagree.
	Start uint64
	// Lag is the number of versions by which reads and scans are behind the newest commit, like
	// reads from a secondary. NotBefore limits it. It exposes callers that forget to pass the
	// version that they must see. 0: no lag.
	Lag uint64
	// Changes is the maximum number of changes in a batch. A batch exceeds it only to finish a
	// commit. 0: 256. A low number exposes callers that mistake one batch for all changes.
	Changes int
	// Torn lets batches end within commits, like those of a transaction over several logs.
	Torn bool
	// FixedFence is the strongest class for fixed-name kinds: FenceView (default), or
	// FenceValidator to simulate a cluster that grants fewer privileges.
	FixedFence record.FenceClass
	// Moves simulates a sharded cluster, which recreates collections (Store.MovePrimary).
	Moves bool
}

// Cluster is a clock, a change log and the databases that share them. One mutex guards everything,
// because the reference must be obviously correct before it is fast.
type Cluster struct {
	opts Options
	id   string // identity of the cluster

	mu        sync.Mutex
	clock     uint64
	databases map[string]*database
	nextID    uint64
	deposed   uint64 // clock at the call of Depose; 0: the primary answers reads
	log       []entry
	forgotten int               // number of entries before log[0] that were discarded
	restores  int               // number of restored backups; each ends the streams from before it
	wake      chan struct{}     // closed and replaced at each append to log
	blocked   map[string]string // mark of the write block by collection id; any entry blocks the cluster

	hindrances map[string]string // by kind, for Hindrances

	health     record.Health
	unmeasured error // error that Health returns instead of health
}

// database is one namespace: collections by physical name and by identity.
type database struct {
	name    string
	byName  map[string]*collection
	byID    map[string]*collection
	views   map[string]*collection // view under a name that a fence freed, to its collection
	foreign map[string]bool        // views that an application made
	marks   marks
}

// entry is one change. Exactly one of key, rename, mark, dropped, moved and nudge is set.
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
	moved      move
	nudge      bool          // a Nudge, and no change
	origin     record.Origin // of a change of a key
	guard      record.Guard  // guard after the change
}

// NewCluster returns an empty cluster.
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
		clock:     opts.Start + 1, // the zero version must stay older than any other
		databases: map[string]*database{},
		wake:      make(chan struct{}),
		blocked:   map[string]string{},
	}
}

// Open returns a database of the cluster and creates it if necessary. Two stores with one name
// share their records.
func (c *Cluster) Open(name string) *Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	db := c.databases[name]
	// A database exists from its first use, as in MongoDB.
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

// LoseHistory discards all changes so far, like a log that rolled over. Streams that have not read
// them, and positions taken earlier, fail with record.ErrHistoryLost.
func (c *Cluster) LoseHistory() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Count one more version and entry, so that a position taken just before is too old as well.
	c.clock++
	c.forgotten += len(c.log) + 1
	c.log = nil
	c.signal()
}

// DropDatabase drops the whole database, including its marks, as an administrator can.
func (s *Store) DropDatabase() {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	for _, col := range s.db.byID {
		s.drop(col)
	}
	clear(s.db.views)
	clear(s.db.foreign)
	s.db.marks = marks{}
}

// create makes a collection. Callers hold mu and ensure that the name is free.
func (c *Cluster) create(db *database, name string) *collection {
	// An identity is never reused, so a new collection under an old name is another one.
	c.nextID++
	col := &collection{id: fmt.Sprintf("%032x", c.nextID), name: name, unique: map[string]*uniqueIndex{}}
	db.byName[name], db.byID[col.id] = col, col
	return col
}

// rename renames a collection and logs it. Callers hold mu and ensure that the name is free.
func (c *Cluster) rename(db *database, col *collection, to string) {
	from := col.name
	delete(db.byName, from)
	col.name = to
	db.byName[to] = col
	// A rename is a commit with a version of its own.
	c.clock++
	c.append(entry{db: db, collection: from, id: col.id, rename: to})
}

// append adds an entry at the present clock and wakes waiting streams. Callers hold mu.
func (c *Cluster) append(e entry) {
	e.at, e.wall = c.clock, time.Now().UnixMilli()
	c.log = append(c.log, e)
	c.signal()
}

func (c *Cluster) signal() {
	// Closing wakes all waiting streams. Later ones need a new channel.
	close(c.wake)
	c.wake = make(chan struct{})
}

// Depose makes a deposed primary answer reads and scans until Rejoin. They miss all later commits,
// and fail if NotBefore demands one. Writes, positions and changes continue at the new primary.
func (c *Cluster) Depose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deposed = c.clock
}

// Rejoin ends the effect of Depose.
func (c *Cluster) Rejoin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deposed = 0
}

// snapshot returns the clock for a read: the oldest that Lag and notBefore allow. Callers hold mu.
func (c *Cluster) snapshot(notBefore record.Version) (uint64, error) {
	newest := c.clock
	if c.deposed != 0 {
		newest = c.deposed
	}
	// Fail instead of returning an older snapshot.
	if clockOf(notBefore) > newest {
		return 0, fmt.Errorf("read not before %s: the server is only at %s", notBefore, versionAt(newest))
	}
	return max(c.oldestSnapshot(), clockOf(notBefore)), nil
}

// oldestSnapshot returns the earliest clock that a read may still use.
func (c *Cluster) oldestSnapshot() uint64 {
	newest, first := c.clock, c.opts.Start+1
	if c.deposed != 0 {
		newest = c.deposed
	}
	// The clock is unsigned, so newest - Lag could wrap around.
	if newest < first+c.opts.Lag {
		return first
	}
	return newest - c.opts.Lag
}
