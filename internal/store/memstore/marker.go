package memstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
)

// marks is the ownership data of a database.
type marks struct {
	identity string
	owners   map[record.Owner]record.Mark
	kinds    map[string]record.Claim // by kind
}

// Identity returns random ids of cluster and database.
func (s *Store) Identity(ctx context.Context) (record.Identity, error) {
	if err := s.begin(ctx); err != nil {
		return record.Identity{}, err
	}
	defer s.cluster.mu.Unlock()
	return record.Identity{Cluster: s.cluster.id, Database: s.db.marks.identity}, nil
}

// Identify creates the identity of the database if it has none, and returns it.
func (s *Store) Identify(ctx context.Context) (record.Identity, error) {
	if err := s.begin(ctx); err != nil {
		return record.Identity{}, err
	}
	defer s.cluster.mu.Unlock()
	if s.db.marks.identity == "" {
		s.db.marks.identity = rand.Text()
	}
	return record.Identity{Cluster: s.cluster.id, Database: s.db.marks.identity}, nil
}

// Marks returns copies of all marks.
func (s *Store) Marks(ctx context.Context) ([]record.Mark, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	var all []record.Mark
	for _, m := range s.db.marks.owners {
		m.Body = slices.Clone(m.Body)
		all = append(all, m)
	}
	return all, nil
}

// PutMark stores a mark if its revision is the present one.
func (s *Store) PutMark(ctx context.Context, m record.Mark) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	// A missing mark has the revision 0.
	if has := s.db.marks.owners[m.Owner].Rev; has != m.Rev {
		return fmt.Errorf("mark of %s has revision %d, not %d: %w", m.Owner, has, m.Rev, record.ErrMismatch)
	}
	if m.Was != nil && !bytes.Equal(m.Was, s.db.marks.owners[m.Owner].Body) {
		return fmt.Errorf("mark of %s has another body at revision %d: %w", m.Owner, m.Rev, record.ErrMismatch)
	}
	m.Rev++
	m.Was = nil
	m.Body = slices.Clone(m.Body)
	if s.db.marks.owners == nil {
		s.db.marks.owners = map[record.Owner]record.Mark{}
	}
	s.db.marks.owners[m.Owner] = m
	return nil
}

// Claim checks the name of the kind and the collection, and stores the claim.
func (s *Store) Claim(ctx context.Context, tok record.Token, owner record.Owner) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	// Only an existing collection can be claimed.
	if _, err := s.identified(tok); err != nil {
		return err
	}
	for _, has := range s.db.marks.kinds {
		same := has.Kind == tok.Kind && has.ID == tok.ID && has.Owner == owner
		gone := has.Owner == owner && s.db.byID[has.ID] == nil
		switch {
		case same:
			return nil
		case has.Owner == owner && has.Kind == tok.Kind && tok.Fixed && tok.Name == tok.Kind:
			// The application decides which collection has the name, so this claim may end.
		case has.ID == tok.ID || has.Kind == tok.Kind && !gone:
			return refuseClaim(has, tok, owner)
		}
	}
	if s.db.marks.kinds == nil {
		s.db.marks.kinds = map[string]record.Claim{}
	}
	s.db.marks.kinds[tok.Kind] = record.Claim{Owner: owner, Kind: tok.Kind, ID: tok.ID}
	return nil
}

func refuseClaim(has record.Claim, tok record.Token, owner record.Owner) error {
	err := &record.OwnedError{Kind: tok.Kind, ID: tok.ID, Owner: has.Owner}
	if has.Owner == owner && has.Kind == tok.Kind {
		err.Has = has.ID
	}
	return err
}

// Claims returns all claims with the present names of their collections.
func (s *Store) Claims(ctx context.Context) ([]record.Claim, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	var all []record.Claim
	for _, c := range s.db.marks.kinds {
		// An empty name reports that the collection is gone.
		if col := s.db.byID[c.ID]; col != nil {
			c.Name, c.Fence = col.name, col.mark
		} else if col := s.insteadOf(c.Kind); col != nil {
			c.Instead, c.InsteadName, c.Fence = col.id, col.name, col.mark
		}
		if col := s.db.byName[c.Kind]; col != nil {
			c.Bearer = col.id
		}
		all = append(all, c)
	}
	return all, nil
}

// Release removes the mark and the claims of an owner.
func (s *Store) Release(ctx context.Context, owner record.Owner) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	delete(s.db.marks.owners, owner)
	for kind, c := range s.db.marks.kinds {
		if c.Owner == owner {
			delete(s.db.marks.kinds, kind)
		}
	}
	return nil
}
