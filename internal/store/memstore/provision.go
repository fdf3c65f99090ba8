package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Check accepts every namespace.
func (s *Store) Check(ctx context.Context) error { return ctx.Err() }

// Describe returns the properties of the collection under a name.
func (s *Store) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	if err := s.begin(ctx); err != nil {
		return record.Info{}, err
	}
	defer s.cluster.mu.Unlock()
	// A view can be neither source nor target.
	if err := s.refuseView(name); err != nil {
		return record.Info{}, err
	}
	col := s.db.byName[name]
	if col == nil {
		return record.Info{}, nil
	}
	return record.Info{
		Exists: true,
		Token:  record.Token{Kind: kind.Name, Name: name, ID: col.id, Fixed: kind.Fixed},
		Shape:  record.Shape{Options: col.options, Indexes: slices.Clone(col.indexes)},

		Indexes: !kind.Fixed,
	}, nil
}

// Size returns the exact size of a collection.
func (s *Store) Size(ctx context.Context, tok record.Token) (size record.Size, err error) {
	if err := s.begin(ctx); err != nil {
		return size, err
	}
	defer s.cluster.mu.Unlock()
	col, err := s.identified(tok)
	if err != nil {
		return size, err
	}
	for _, r := range col.rows {
		// Tombstones do not count.
		if st := r.at(s.cluster.clock); st.live() {
			size.Records++
			size.Bytes += int64(len(st.doc))
		}
	}
	return size, nil
}

func (s *Store) refuseView(name string) error {
	if s.db.views[name] != nil || s.db.foreign[name] {
		return &record.UnsupportedError{What: "collection " + s.db.name + "." + name, Reason: "it is a view", Fence: s.db.views[name] != nil}
	}
	return nil
}

// Provision creates a missing collection and its missing indexes.
func (s *Store) Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	if err := s.begin(ctx); err != nil {
		return record.Token{}, err
	}
	defer s.cluster.mu.Unlock()
	if err := s.refuseView(name); err != nil {
		return record.Token{}, err
	}
	col := s.db.byName[name]
	if col == nil {
		own, err := parseValidator(kind.Shape.Options)
		if err != nil {
			return record.Token{}, err
		}
		col = s.cluster.create(s.db, name)
		col.validator, col.options = own, slices.Clone(kind.Shape.Options)
	}
	col.fixed = kind.Fixed
	if err := s.buildIndexes(col, kind.Shape.Indexes); err != nil {
		return record.Token{}, fmt.Errorf("provision %s: %w", name, err)
	}
	return record.Token{Kind: kind.Name, Name: name, ID: col.id, Fixed: kind.Fixed}, nil
}

// BuildIndexes builds the missing indexes.
func (s *Store) BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	col, err := s.open(ctx, tok, s.resolve)
	if err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	return s.buildIndexes(col, kind.Shape.Indexes)
}

func (s *Store) buildIndexes(col *collection, specs []bson.Raw) error {
	for _, spec := range specs {
		if err := s.buildIndex(col, spec); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) buildIndex(col *collection, spec []byte) error {
	name, ix, err := parseIndex(spec)
	if err != nil {
		return err
	}
	for _, have := range col.indexes {
		if n, _ := have.Lookup("name").StringValueOK(); n == name {
			return sameIndex(have, spec)
		}
	}
	// The index must also cover the existing documents, so check them as one large commit.
	if ix != nil {
		all := &writes{states: map[record.Key]state{}}
		for _, r := range col.rows {
			all.order = append(all.order, r.key)
			all.states[r.key] = r.at(s.cluster.clock)
		}
		if err := ix.check(all); err != nil {
			return err
		}
		// Only a complete index may refuse writes.
		ix.move(col, all, s.cluster.clock)
		col.unique[name] = ix
	}
	col.indexes = append(col.indexes, slices.Clone(spec))
	return nil
}

// sameIndex refuses an index that differs in more than expireAfterSeconds.
func sameIndex(have, want bson.Raw) error {
	if what := record.DifferentIndex(have, want); what != "" {
		name := record.IndexName(have)
		return &record.IndexConflict{Index: name, Text: fmt.Sprintf("index %s exists and differs from the declared one: %s", name, what)}
	}
	return nil
}

// Reshape drops indexes and changes the options of a fixed-name kind.
func (s *Store) Reshape(ctx context.Context, tok record.Token, kind record.KindSpec, drop []string) error {
	col, err := s.open(ctx, tok, s.resolve)
	if err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	col.indexes = slices.DeleteFunc(slices.Clone(col.indexes), func(ix bson.Raw) bool { return slices.Contains(drop, record.IndexName(ix)) })
	for _, name := range drop {
		delete(col.unique, name)
	}
	if !kind.Fixed || len(record.DifferentOptions(col.options, kind.Shape.Options)) == 0 {
		return nil
	}
	// The fence's own validator must stay in force.
	if col.mark != "" {
		return fmt.Errorf("its validator is a fence's: %w", record.ErrConflict)
	}
	own, err := parseValidator(kind.Shape.Options)
	if err != nil {
		return err
	}
	col.validator, col.options = own, slices.Clone(kind.Shape.Options)
	return nil
}

// Expire changes the specs of TTL indexes. This store never deletes by them.
func (s *Store) Expire(ctx context.Context, tok record.Token, seconds map[string]int64) (map[string]int64, error) {
	col, err := s.open(ctx, tok, s.resolve)
	if err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	shape := record.Shape{Indexes: col.indexes}
	had := record.ExpiryOf(shape)
	maps.DeleteFunc(had, func(name string, _ int64) bool { _, changed := seconds[name]; return !changed })
	col.indexes = record.WithExpiry(shape, seconds).Indexes
	return had, nil
}

// Require sets the label that every later commit checks.
func (s *Store) Require(ctx context.Context, toks []record.Token, l record.Label) error {
	for _, tok := range toks {
		col, err := s.open(ctx, tok, s.resolve)
		if err != nil {
			return err
		}
		// Every later commit checks the label, so late writers cannot pass.
		col.label = &l
		s.cluster.mu.Unlock()
	}
	return nil
}

// Split cuts the rows into ranges of equal length.
func (s *Store) Split(ctx context.Context, tok record.Token, n int) ([]record.Range, error) {
	col, err := s.open(ctx, tok, s.resolve)
	if err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	var keys []record.Key
	for _, r := range col.rows {
		// A cut is stored with plans and checkpoints, so it must be short.
		if len(r.key) < record.MaxCut {
			keys = append(keys, r.key)
		}
	}
	// Each range needs a cut of its own.
	n = max(1, min(n, len(keys)))
	ranges := make([]record.Range, n)
	for i := 1; i < n; i++ {
		cut := record.Cursor(keys[i*len(keys)/n])
		ranges[i-1].To, ranges[i].From = cut, cut
	}
	return ranges, nil
}

// Purge removes the tombstones. In a managed kind each removal is a change, and its hint leads to
// an absent record.
func (s *Store) Purge(ctx context.Context, tok record.Token) error {
	col, err := s.open(ctx, tok, s.resolve)
	if err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	// Collect the keys first, because put may remove rows.
	var dead []record.Key
	for _, r := range col.rows {
		if r.at(s.cluster.clock).tombstone() {
			dead = append(dead, r.key)
		}
	}
	for _, key := range dead {
		s.cluster.clock++
		col.put(key, state{at: s.cluster.clock}, s.cluster.oldestSnapshot())
		// Tombstones of fixed-name kinds lie outside the collection, so a stream must not see them.
		if !col.fixed {
			s.cluster.append(entry{db: s.db, collection: col.name, id: col.id, key: key, deleted: true})
		}
	}
	return nil
}

// Drop removes a collection, its guards, its claim and its view.
func (s *Store) Drop(ctx context.Context, tok record.Token) error {
	col, err := s.open(ctx, tok, s.resolve)
	if err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	s.drop(col)
	return nil
}

func (s *Store) drop(col *collection) {
	delete(s.db.byName, col.name)
	delete(s.db.byID, col.id)
	delete(s.cluster.blocked, col.id)
	// The claim of a dropped collection ends.
	for kind, c := range s.db.marks.kinds {
		if c.ID == col.id {
			delete(s.db.marks.kinds, kind)
		}
	}
	for name, of := range s.db.views {
		if of == col {
			delete(s.db.views, name)
		}
	}
	s.cluster.clock++
	s.cluster.append(entry{db: s.db, collection: col.name, id: col.id, dropped: true})
}
