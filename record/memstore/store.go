package memstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var (
	_ record.Namespace = (*Store)(nil)
	_ record.Client    = (*Store)(nil)
)

// maxDocument is the largest document stored, as in MongoDB.
const maxDocument = 16 << 20

// Store is one database of a Cluster. Its methods may be called concurrently.
type Store struct {
	cluster *Cluster
	db      *database
}

// New is a database on a cluster of its own.
func New() *Store { return NewCluster(Options{}).Open("test") }

// Cluster returns the cluster that the store is part of.
func (s *Store) Cluster() *Cluster { return s.cluster }

// Names lists every physical collection and view, for tests that look for leftovers.
func (s *Store) Names() []string {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	var names []string
	for name := range s.db.byName {
		names = append(names, name)
	}
	for name := range s.db.views {
		names = append(names, name)
	}
	return names
}

// begin enters a command: it takes the lock unless ctx has ended. The caller unlocks.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.cluster.mu.Lock()
	return nil
}

// open begins a command on the collection that a token means, as find finds it.
func (s *Store) open(ctx context.Context, tok record.Token, find func(record.Token) (*collection, error)) (*collection, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	col, err := find(tok)
	if err != nil {
		s.cluster.mu.Unlock()
	}
	return col, err
}

// resolve is the check that every data command makes: the name must lead to the very
// collection that the token means. A token without an identity is known by its name.
func (s *Store) resolve(tok record.Token) (*collection, error) {
	col := s.db.byName[tok.Name]
	if col == nil || (tok.ID != "" && col.id != tok.ID) {
		return nil, fmt.Errorf("%s as %s: %w", tok.Kind, tok.Name, record.ErrFenced)
	}
	return col, nil
}

// resolveAll resolves the kinds that a command touches, before it touches any.
func (s *Store) resolveAll(toks record.Tokens, kinds func(yield func(string) bool)) (map[string]*collection, error) {
	cols := map[string]*collection{}
	for kind := range kinds {
		if cols[kind] != nil {
			continue
		}
		tok, ok := toks[kind]
		if !ok {
			return nil, fmt.Errorf("kind %s: no token", kind)
		}
		col, err := s.resolve(tok)
		if err != nil {
			return nil, err
		}
		cols[kind] = col
	}
	return cols, nil
}

// checkDoc is what a backend may insist on: the document carries the _id of its key, and
// leaves the reserved field of managed kinds alone.
func checkDoc(tok record.Token, key record.Key, doc bson.Raw) error {
	if key == "" {
		return errors.New("write without a key")
	}
	if len(key) > record.MaxKey {
		return record.ErrLongKey
	}
	if doc == nil {
		return nil
	}
	have, err := record.KeyOfDoc(doc)
	if err != nil {
		return err
	}
	if have != key {
		return fmt.Errorf("document of %s has the _id of %s", key, have)
	}
	return record.CheckReserved(tok, doc)
}

func versionAt(clock uint64) record.Version {
	var v record.Version
	binary.BigEndian.PutUint64(v[:], clock)
	return v
}

func clockOf(v record.Version) uint64 { return binary.BigEndian.Uint64(v[:]) }
