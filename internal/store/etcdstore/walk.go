package etcdstore

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// The size of a page depends on the size of earlier records, with a target in bytes. The first
// pages of a collection are small. A page is never so long that large records after small ones
// would exceed memory. Ranges that are read together have few records each, like a group.
const (
	firstWalk = 16
	mostWalk  = 1024
	walkBytes = 4 << 20
	fewWalk   = 4
)

// walker reads a range page by page.
type walker interface {
	of() record.Token
	// asks returns the reads of the next page, with limit records at most.
	asks(revision, limit int64) []clientv3.Op
	// take uses the results of asks, and reports whether it needs another page.
	take(s *Store, found [][]*mvccpb.KeyValue) (more bool, err error)
}

// walk reads ranges at one revision, which it returns. revision 0 means the newest. Each
// transaction reads pages of as many ranges as possible, because each transaction costs a round
// trip.
func (s *Store) walk(ctx context.Context, revision int64, walkers ...walker) (int64, error) {
	for len(walkers) > 0 {
		room := s.room(walkers[0].of())
		limit := room
		// Several ranges share a transaction, so each gets a small page.
		if len(walkers) > 1 && room > fewWalk {
			limit = fewWalk
		}
		g := gates{}
		var ops []clientv3.Op
		var asked []int // number of operations of each walker
		bytes, most := 0, min(keysAtOnce, s.most/2)
		for _, w := range walkers {
			mine := w.asks(revision, limit)
			size := 0
			for _, op := range mine {
				size += len(op.KeyBytes()) + len(op.RangeBytes()) + overhead
			}
			// Always include the first walker, even if it is too large, so that the loop makes
			// progress.
			if len(asked) > 0 && (int64(len(asked)+1)*limit > room || len(ops)+len(mine) > most || bytes+size > s.bytes) {
				break
			}
			gate, err := gateOf(w.of())
			if err != nil {
				return 0, err
			}
			maps.Copy(g, gate)
			ops, asked, bytes = append(ops, mine...), append(asked, len(mine)), bytes+size
		}
		found, at, err := s.gated(ctx, g, ops)
		if err != nil {
			return 0, err
		}
		// All later pages must be read at the revision of the first.
		if revision == 0 {
			revision = at
		}
		var rest []walker
		n, size := int64(0), int64(0)
		for i, w := range walkers[:len(asked)] {
			mine := found[:asked[i]]
			found = found[asked[i]:]
			for _, kvs := range mine {
				for _, kv := range kvs {
					n, size = n+1, size+int64(len(kv.Value))
				}
			}
			more, err := w.take(s, mine)
			if err != nil {
				return 0, err
			}
			if more {
				rest = append(rest, w)
			}
		}
		walkers = append(rest, walkers[len(asked):]...)
		// Adapt the page size: grow slowly, and keep the expected bytes of a page within the
		// target.
		if room = min(4*room, mostWalk); n > 0 {
			room = max(1, min(room, walkBytes*n/max(1, size)))
		}
		s.mu.Lock()
		for id := range g {
			s.rooms[id] = room
		}
		s.mu.Unlock()
	}
	return revision, nil
}

// room returns the number of records of a collection to read at once.
func (s *Store) room(tok record.Token) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if room, known := s.rooms[tok.ID]; known {
		return room
	}
	return firstWalk
}

// keyWalk is a range of keys of one collection.
type keyWalk struct {
	tok      record.Token
	from, to string
	want     int // number of records; 0: all
	use      func(key string, st state) (more bool, err error)
	limit    int64 // of the requested page
}

func (w *keyWalk) of() record.Token { return w.tok }

func (w *keyWalk) asks(revision, limit int64) []clientv3.Op {
	w.limit = wanted(limit, w.want)
	return []clientv3.Op{clientv3.OpGet(w.from, clientv3.WithRange(w.to), clientv3.WithRev(revision), clientv3.WithLimit(w.limit))}
}

// wanted returns the size of a page, if want records are still needed. 0: all.
func wanted(limit int64, want int) int64 {
	if want > 0 {
		return min(limit, int64(want))
	}
	return limit
}

func (w *keyWalk) take(s *Store, found [][]*mvccpb.KeyValue) (bool, error) {
	g := gates{w.tok.ID: w.tok}
	for _, kv := range found[0] {
		st, err := s.found(g, kv)
		if err != nil {
			return false, err
		}
		w.from = string(kv.Key) + "\x00"
		if more, err := w.use(string(kv.Key), st); err != nil || !more {
			return false, err
		}
	}
	return int64(len(found[0])) == w.limit, nil // a full page may have a successor
}

// nameWalk is a range of names of an application's records, with their guards.
type nameWalk struct {
	tok          record.Token
	docs, guards string // key prefixes of the documents and the guards
	from, to     string // empty to: up to the end
	want         int    // number of records; 0: all
	use          func(name string, st state) (more bool, err error)
	limit        int64 // of the requested page
}

func (s *Store) nameWalk(tok record.Token, from, to string, want int, use func(name string, st state) (more bool, err error)) *nameWalk {
	return &nameWalk{tok: tok, docs: s.keys(tok).Prefix, guards: s.at.beside(tok.ID) + "/", from: from, to: to, want: want, use: use}
}

func (w *nameWalk) of() record.Token { return w.tok }

func (w *nameWalk) asks(revision, limit int64) []clientv3.Op {
	w.limit = wanted(limit, w.want)
	// Documents and guards are read at one revision, so that they match.
	read := func(prefix string) clientv3.Op {
		end := clientv3.GetPrefixRangeEnd(prefix)
		if w.to != "" {
			end = prefix + w.to
		}
		return clientv3.OpGet(prefix+w.from, clientv3.WithRange(end), clientv3.WithRev(revision), clientv3.WithLimit(w.limit))
	}
	return []clientv3.Op{read(w.docs), read(w.guards)}
}

func (w *nameWalk) take(s *Store, found [][]*mvccpb.KeyValue) (bool, error) {
	docs, guards := found[0], found[1]
	cutDocs, cutGuards := int64(len(docs)) == w.limit, int64(len(guards)) == w.limit
	for len(docs)+len(guards) > 0 {
		// If either list may continue beyond this page, a record could lack its other half.
		if len(docs) == 0 && cutDocs || len(guards) == 0 && cutGuards {
			break
		}
		var st state
		// Take the smaller name: it may have a document, a guard (a tombstone), or both.
		name := ""
		if len(docs) > 0 {
			name = strings.TrimPrefix(string(docs[0].Key), w.docs)
		}
		if len(guards) > 0 {
			if of := strings.TrimPrefix(string(guards[0].Key), w.guards); len(docs) == 0 || of < name {
				name = of
			}
		}
		var err error
		if len(docs) > 0 && string(docs[0].Key) == w.docs+name {
			if st, err = s.found(gates{w.tok.ID: w.tok}, docs[0]); err != nil {
				return false, err
			}
			docs = docs[1:]
		}
		if len(guards) > 0 && string(guards[0].Key) == w.guards+name {
			e, err := open(guards[0].Value)
			if err != nil {
				return false, fmt.Errorf("read %q: %w", guards[0].Key, err)
			}
			st.guard, st.beside = e.guard, guards[0].ModRevision
			guards = guards[1:]
		}
		// Continue behind this name, whatever remains of the two lists.
		w.from = name + "\x00"
		if more, err := w.use(name, st); err != nil || !more {
			return false, err
		}
	}
	return cutDocs || cutGuards, nil
}
