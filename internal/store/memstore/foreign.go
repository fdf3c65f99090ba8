package memstore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Foreign acts on a database like an application that does not know this project. It uses the name
// of a collection and no token. As in MongoDB, an insert creates a missing collection.
type Foreign struct{ store *Store }

// Foreign returns the application's access to the database.
func (s *Store) Foreign() *Foreign { return &Foreign{s} }

// Insert adds a document. It fails if the _id exists.
func (f *Foreign) Insert(ctx context.Context, name string, doc bson.Raw) error {
	return f.write(ctx, name, doc, true)
}

// Put replaces a document or inserts it.
func (f *Foreign) Put(ctx context.Context, name string, doc bson.Raw) error {
	return f.write(ctx, name, doc, false)
}

func (f *Foreign) write(ctx context.Context, name string, doc bson.Raw, insert bool) error {
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		return err
	}
	return f.change(ctx, name, true, func(t *txn, col *collection) error {
		st := t.get(col, key)
		// A tombstone is no document for the application.
		if insert && st.live() {
			return fmt.Errorf("%s: %w", key, record.ErrExists)
		}
		t.set(col, key, state{doc: doc, guard: beside(col, st)})
		return nil
	})
}

// Delete removes a document if it exists. As in MongoDB, validators do not check deletes.
func (f *Foreign) Delete(ctx context.Context, name string, id bson.RawValue) error {
	key, err := record.KeyOf(id)
	if err != nil {
		return err
	}
	return f.change(ctx, name, false, func(t *txn, col *collection) error {
		if st := t.get(col, key); st.live() {
			t.set(col, key, state{guard: beside(col, st)})
		}
		return nil
	})
}

func (f *Foreign) change(ctx context.Context, name string, create bool, do func(*txn, *collection) error) error {
	s := f.store
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	// A view fence and a write block stop the application's writes.
	if s.refuseView(name) != nil || len(s.cluster.blocked) > 0 {
		return fmt.Errorf("write to %s: %w", name, ErrRejected)
	}
	col := s.db.byName[name]
	if col == nil {
		if !create {
			return nil
		}
		col = s.cluster.create(s.db, name)
		// A collection made by an application belongs to a fixed-name kind.
		col.fixed = true
	}
	t := s.newTxn()
	if err := do(t, col); err != nil {
		return err
	}
	return t.commit(false)
}

// beside returns the guard that remains after a foreign write. A fixed-name kind keeps its guard
// next to the document. A managed kind loses it with the document.
func beside(col *collection, st state) record.Guard {
	if col.fixed {
		return st.guard
	}
	return record.Guard{}
}

// Documents returns all documents of a collection, in key order. A view returns the documents of
// its collection.
func (f *Foreign) Documents(ctx context.Context, name string) ([]bson.Raw, error) {
	s := f.store
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	col := s.db.byName[name]
	if col == nil {
		col = s.db.views[name]
	}
	if col == nil {
		return nil, nil
	}
	var docs []bson.Raw
	for _, r := range col.rows {
		if st := r.at(s.cluster.clock); st.live() {
			docs = append(docs, st.doc)
		}
	}
	return docs, nil
}

// Rename renames a collection like another client.
func (f *Foreign) Rename(ctx context.Context, from, to string) error {
	s := f.store
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	col := s.db.byName[from]
	// Like a server, refuse to rename over a collection or view.
	if col == nil || s.db.byName[to] != nil || s.refuseView(to) != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, ErrRejected)
	}
	s.cluster.rename(s.db, col, to)
	return nil
}

// Drop drops a collection like another client.
func (f *Foreign) Drop(ctx context.Context, name string) error {
	s := f.store
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	if col := s.db.byName[name]; col != nil {
		s.drop(col)
	}
	return nil
}

// CreateView creates an application's own view.
func (f *Foreign) CreateView(ctx context.Context, name string) error {
	s := f.store
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	if s.db.byName[name] != nil {
		return fmt.Errorf("view %s: %w", name, ErrRejected)
	}
	s.db.foreign[name] = true
	return nil
}

// Unfence removes a fence of a fixed-name kind like an operator who does not know of it. It drops
// the view and gives the collection its name back, removes the validator, or removes the write
// block.
func (f *Foreign) Unfence(ctx context.Context, name string) error {
	if err := f.store.begin(ctx); err != nil {
		return err
	}
	defer f.store.cluster.mu.Unlock()
	if col := f.store.db.views[name]; col != nil {
		// The view must go first to free the name.
		delete(f.store.db.views, name)
		f.store.cluster.rename(f.store.db, col, name)
		return nil
	}
	col := f.store.db.byName[name]
	if col == nil {
		return fmt.Errorf("collection %s: %w", name, record.ErrNotFound)
	}
	col.validator, col.mark = nil, ""
	delete(f.store.cluster.blocked, col.id)
	return nil
}
