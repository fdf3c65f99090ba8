package memstore

import (
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
)

// Backup is the state of a whole cluster at one moment, like a copy of its data directory.
type Backup struct {
	clock     uint64
	databases map[string]*database // copies
	log       []entry
	forgotten int
	blocked   map[string]string
}

// Backup copies the whole state. The copy and the call of at happen at one moment: no command is
// partly done, and none ends before at returns.
func (c *Cluster) Backup(at func()) *Backup {
	c.mu.Lock()
	defer c.mu.Unlock()
	at()
	b := &Backup{
		clock: c.clock, databases: map[string]*database{}, log: slices.Clone(c.log),
		forgotten: c.forgotten, blocked: maps.Clone(c.blocked),
	}
	for name, db := range c.databases {
		b.databases[name] = db.clone()
	}
	return b
}

// Restore sets the cluster to the state of a backup: documents, fences, marks, the change log and
// the clock. Later changes therefore reuse versions and positions. Open streams end, as when a
// server stops. Identities of collections are never reused. Restore calls at as Backup does. A
// backup may be restored several times.
func (c *Cluster) Restore(b *Backup, at func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at()
	c.clock, c.log, c.forgotten, c.blocked = b.clock, slices.Clone(b.log), b.forgotten, maps.Clone(b.blocked)
	// Change the databases in place, because stores and the log point to them.
	for name, db := range c.databases {
		was := newDatabase(name)
		if of := b.databases[name]; of != nil {
			was = of.clone()
		}
		*db = *was
	}
	c.restores++
	c.signal()
}

func (db *database) clone() *database {
	out := newDatabase(db.name)
	maps.Copy(out.foreign, db.foreign)
	for id, col := range db.byID {
		out.byID[id] = col.clone()
	}
	for name, col := range db.byName {
		out.byName[name] = out.byID[col.id]
	}
	for name, col := range db.views {
		out.views[name] = out.byID[col.id]
	}
	out.marks = marks{identity: db.marks.identity, owners: maps.Clone(db.marks.owners), kinds: maps.Clone(db.marks.kinds)}
	return out
}

// clone copies everything that commands change in place. Documents are shared, because they are
// never modified.
func (c *collection) clone() *collection {
	out := *c
	out.rows = make([]*row, len(c.rows))
	for i, r := range c.rows {
		out.rows[i] = &row{key: r.key, id: r.id, states: slices.Clone(r.states)}
	}
	out.unique = map[string]*uniqueIndex{}
	for name, ix := range c.unique {
		copied := *ix
		copied.owners = maps.Clone(ix.owners)
		out.unique[name] = &copied
	}
	out.indexes, out.once, out.closed = slices.Clone(c.indexes), maps.Clone(c.once), maps.Clone(c.closed)
	out.ended = maps.Clone(c.ended)
	return &out
}

// interrupted is the error of a stream that was opened before a restore.
func interrupted() error {
	return fmt.Errorf("the server has stopped: %w", record.ErrUnavailable)
}

// Connections returns the number of restores, since servers stop for each.
func (s *Store) Connections() uint64 {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	return uint64(s.cluster.restores)
}
