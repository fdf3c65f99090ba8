package memstore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Foreign acts on a database as an application that knows nothing of this project: by
// the collection's name alone, without a token. Like MongoDB, an insert into a name that
// is not there makes the collection.
type Foreign struct{ store *Store }

// Foreign returns the application's way to the database.
func (s *Store) Foreign() *Foreign { return &Foreign{s} }

// Insert fails where the _id is taken.
func (f *Foreign) Insert(ctx context.Context, name string, doc bson.Raw) error {
	return f.write(ctx, name, doc, true)
}

// Put replaces the document or inserts it.
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
		if insert && st.live() {
			return fmt.Errorf("%s: %w", key, record.ErrExists)
		}
		t.set(col, key, state{doc: doc, guard: beside(col, st)})
		return nil
	})
}

// Delete removes the document if it is there. A validator does not hear of deletes.
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
	if s.refuseView(name) != nil || len(s.cluster.blocked) > 0 {
		return fmt.Errorf("write to %s: %w", name, ErrRejected)
	}
	col := s.db.byName[name]
	if col == nil {
		if !create {
			return nil
		}
		col = s.cluster.create(s.db, name)
		col.fixed = true
	}
	t := s.newTxn()
	if err := do(t, col); err != nil {
		return err
	}
	return t.commit(false)
}

// beside is the guard that outlives a foreign write: that of a fixed-name kind is kept next
// to the document, that of a managed one is overwritten with it.
func beside(col *collection, st state) record.Guard {
	if col.fixed {
		return st.guard
	}
	return record.Guard{}
}

// Documents returns what a query for everything returns, in key order. A view answers
// with what is behind it.
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

// Rename is a rename by somebody else.
func (f *Foreign) Rename(ctx context.Context, from, to string) error {
	s := f.store
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	col := s.db.byName[from]
	if col == nil || s.db.byName[to] != nil || s.refuseView(to) != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, ErrRejected)
	}
	s.cluster.rename(s.db, col, to)
	return nil
}

// Drop is a drop by somebody else.
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

// CreateView puts a view of the application's own under a name.
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

// Unfence takes a fence of a fixed-name kind away as somebody does who knows nothing of
// it: the view is dropped and the collection has its name again, the validator is
// removed, the cluster takes writes.
func (f *Foreign) Unfence(ctx context.Context, name string) error {
	if err := f.store.begin(ctx); err != nil {
		return err
	}
	defer f.store.cluster.mu.Unlock()
	if col := f.store.db.views[name]; col != nil {
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
