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

// maxDocument is the maximum size of a document in bytes, as in MongoDB.
const maxDocument = 16 << 20

// Store is one database of a Cluster. Its methods are safe for concurrent use.
type Store struct {
	cluster *Cluster
	db      *database
}

// New returns a database on a cluster of its own.
func New() *Store { return NewCluster(Options{}).Open("test") }

// Cluster returns the cluster of the store.
func (s *Store) Cluster() *Cluster { return s.cluster }

// Names lists all physical collections and views, so that tests can find leftovers.
func (s *Store) Names() []string {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	var names []string
	for name := range s.db.byName {
		names = append(names, name)
	}
	// A fence's view is a leftover, too.
	for name := range s.db.views {
		names = append(names, name)
	}
	return names
}

// begin starts a command: it takes the lock unless ctx has ended. The caller unlocks.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.cluster.mu.Lock()
	return nil
}

// open starts a command on the collection that find returns for a token. If find fails, open
// releases the lock.
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

// resolve checks the token of a data command: its name must lead to the collection with its
// identity. A token without an identity matches by name.
func (s *Store) resolve(tok record.Token) (*collection, error) {
	col := s.db.byName[tok.Name]
	if col == nil || (tok.ID != "" && col.id != tok.ID) {
		return nil, fmt.Errorf("%s as %s: %w", tok.Kind, tok.Name, record.ErrFenced)
	}
	return col, nil
}

// resolveAll resolves all kinds of a command before the command changes anything.
func (s *Store) resolveAll(toks record.Tokens, kinds func(yield func(string) bool)) (map[string]*collection, error) {
	cols := map[string]*collection{}
	for kind := range kinds {
		// A command may name a kind more than once.
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

// checkDoc checks the requirements of a backend: the document has the _id of its key, and does not
// use the reserved field of managed kinds.
func checkDoc(tok record.Token, key record.Key, doc bson.Raw) error {
	if key == "" {
		return errors.New("write without a key")
	}
	// The limit also holds for tombstones, whose keys are stored as well.
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
