package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
)

// move is an entry about a collection that the cluster recreated. As in MongoDB, resharding leaves
// one entry with both identities. MovePrimary leaves one about the new collection, like that of a
// create, and none about the old one.
type move struct {
	is      string // identity of the new collection
	reshard bool
}

// Moves reports whether the cluster recreates collections by itself.
func (s *Store) Moves(ctx context.Context) (bool, error) {
	if err := s.begin(ctx); err != nil {
		return false, err
	}
	defer s.cluster.mu.Unlock()
	return s.cluster.opts.Moves, nil
}

// MovePrimary recreates all collections of the database, with their records and marks.
func (s *Store) MovePrimary() {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.db.byName)) {
		s.recreate(s.db.byName[name], false)
	}
}

// Reshard recreates the collection with a physical name. It does nothing if there is none.
func (s *Store) Reshard(name string) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if col := s.db.byName[name]; col != nil {
		s.recreate(col, true)
	}
}

// recreate gives a collection another identity. Nobody finds it by the old one. Callers hold mu.
func (s *Store) recreate(col *collection, reshard bool) {
	c := s.cluster
	anew := *col
	c.nextID++
	anew.id = fmt.Sprintf("%032x", c.nextID)
	delete(s.db.byID, col.id)
	s.db.byName[anew.name], s.db.byID[anew.id] = &anew, &anew
	for name, of := range s.db.views {
		if of == col {
			s.db.views[name] = &anew
		}
	}
	if mark, ok := c.blocked[col.id]; ok {
		delete(c.blocked, col.id)
		c.blocked[anew.id] = mark
	}
	c.clock++
	e := entry{db: s.db, collection: col.name, id: anew.id, moved: move{is: anew.id, reshard: reshard}}
	if reshard {
		e.id = col.id
	}
	c.append(e)
}

// DropAndRestore drops the collection with a physical name, and makes it again with the given
// documents, as a person does who restores a backup of it.
func (s *Store) DropAndRestore(ctx context.Context, name string, restore func(f *Foreign) error) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	claims := maps.Clone(s.db.marks.kinds)
	if col := s.db.byName[name]; col != nil {
		s.drop(col)
	}
	s.db.marks.kinds = claims // only Drop of this project ends a claim
	s.cluster.mu.Unlock()
	return restore(s.Foreign())
}

// Moved follows collections from a position to the present; see the real store.
func (s *Store) Moved(ctx context.Context, from record.Position, toks record.Tokens) (now record.Tokens, broken map[string]string, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, nil, err
	}
	defer s.cluster.mu.Unlock()
	seq, err := seqOf(from)
	if err != nil {
		return nil, nil, err
	}
	if seq < s.cluster.forgotten {
		return nil, nil, fmt.Errorf("follow moved collections from %s: %w", from.At, record.ErrHistoryLost)
	}
	now, broken = maps.Clone(toks), map[string]string{}
	for kind, tok := range toks {
		had := map[string]bool{tok.ID: true}
		for _, e := range s.cluster.log[seq-s.cluster.forgotten:] {
			if e.db != s.db {
				continue
			}
			switch {
			case e.moved.is != "" && (had[e.id] || kindOf(e.collection) == kind):
				had[e.moved.is], tok.ID = true, e.moved.is
			case e.dropped && had[e.id]:
				broken[kind] = e.collection + " was dropped"
			case e.rename != "" && had[e.id] && kindOf(e.rename) != kind:
				broken[kind] = e.collection + " was renamed to " + e.rename
			}
		}
		now[kind] = tok
		if broken[kind] != "" {
			delete(now, kind)
		}
	}
	return now, broken, nil
}

// kindOf returns the kind that a name of a collection belongs to.
func kindOf(name string) string {
	if kind, _, hidden := record.KindOfPhysical(name); hidden {
		return kind
	}
	return name
}

// insteadOf returns the only collection that has a name of the kind and no claim. Callers hold mu.
func (s *Store) insteadOf(kind string) (found *collection) {
	for _, col := range s.db.byID {
		k, _, hidden := record.KindOfPhysical(col.name)
		claimed := false
		for _, c := range s.db.marks.kinds {
			claimed = claimed || c.ID == col.id
		}
		if claimed || col.name != kind && (!hidden || k != kind) {
			continue
		}
		if found != nil {
			return nil // two candidates
		}
		found = col
	}
	return found
}
