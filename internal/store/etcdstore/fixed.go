package etcdstore

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// Keys locates an application's records of a fixed-name kind. The values belong to the application.
// Guards and tombstones lie below the namespace's prefix.
type Keys struct {
	// Prefix begins the keys and ends with a slash. Each key below it is a record, and the rest of
	// the key is its name.
	Prefix string
	Format Format
}

// checkKeys refuses overlapping prefixes.
func checkKeys(prefix string, fixed map[string]Keys) error {
	taken := map[string]string{prefix: "the prefix of the namespace"}
	for kind, in := range fixed {
		if !strings.HasSuffix(in.Prefix, "/") || in.Prefix == "/" {
			return fmt.Errorf("keys of kind %s: %q: the prefix must end with a slash", kind, in.Prefix)
		}
		if in.Format != JSON && in.Format != BSON {
			return fmt.Errorf("keys of kind %s: format %q: want %s or %s", kind, in.Format, JSON, BSON)
		}
		// With overlapping prefixes one key would belong to two kinds.
		for other, what := range taken {
			if strings.HasPrefix(in.Prefix, other) || strings.HasPrefix(other, in.Prefix) {
				return fmt.Errorf("keys of kind %s: %q overlaps %q, %s", kind, in.Prefix, other, what)
			}
		}
		taken[in.Prefix] = "that of kind " + kind
	}
	return nil
}

// keys returns the location of a kind's application keys. nil: the records lie below our own
// prefix. That holds for managed kinds, and for scratch collections of fixed-name kinds.
func (s *Store) keys(tok record.Token) *Keys {
	if !tok.Fixed || strings.HasPrefix(tok.Name, sweepable) {
		return nil
	}
	if in, ok := s.fixed[tok.Kind]; ok {
		return &in
	}
	return nil
}

// slot is the location of one record. An application's document has its guard in another key.
type slot struct {
	doc, guard string
	in         *Keys
}

// slot returns the location of a record. For a key that an application cannot have, it returns keys
// that never exist, so the record is absent.
func (s *Store) slot(tok record.Token, key record.Key) slot {
	in := s.keys(tok)
	if in == nil {
		return slot{doc: s.at.record(tok.ID, key)}
	}
	name, err := named(key)
	if err != nil {
		return slot{doc: s.at.beside(tok.ID) + "?", guard: s.at.beside(tok.ID) + "?", in: in}
	}
	return slot{doc: in.Prefix + name, guard: s.at.beside(tok.ID) + "/" + name, in: in}
}

// reads returns the keys that hold a record.
func (l slot) reads() []string {
	if l.in == nil {
		return []string{l.doc}
	}
	return []string{l.doc, l.guard}
}

// weight returns the bytes of a request for a record with a value of the given size.
func (l slot) weight(value int) int {
	if l.in == nil {
		return 2*len(l.doc) + envelopeBytes + value + overhead
	}
	return 2*len(l.doc) + value + 2*len(l.guard) + envelopeBytes + 2*overhead
}

// held returns a record from its keys as they were read.
func (l slot) held(have map[string]state) state {
	st := have[l.doc]
	if l.in != nil {
		beside := have[l.guard]
		st.guard, st.beside = beside.guard, beside.mod
	}
	return st
}

// guarded makes an attempt depend on the guard as it was read.
func (a *attempt) guarded(l slot, st state) {
	if l.in == nil {
		a.compare(l.doc, st.mod)
	} else {
		a.compare(l.guard, st.beside)
	}
}

// store adds the write of a record to an attempt. Without a guard it leaves the guard of an
// application's record as it is.
func (a *attempt) store(l slot, e envelope) {
	if l.in == nil {
		a.put(l.doc, e.bytes())
		return
	}
	if e.doc == nil {
		a.remove(l.doc)
	} else {
		value, err := l.in.Format.value(e.doc)
		if err != nil {
			a.failed = err // cannot happen: checkDoc has made the same conversion
		}
		a.put(l.doc, string(value))
	}
	if !e.guard.IsZero() {
		a.put(l.guard, envelope{guard: e.guard}.bytes())
	}
}

func (a *attempt) remove(key string) {
	a.ops = append(a.ops, clientv3.OpDelete(key))
	a.keys = append(a.keys, key)
	a.size += 2*len(key) + overhead // counted twice, because the transaction also compares the key
}

// found returns the content of a key. The key's place decides whether it is an application's.
func (s *Store) found(g gates, kv *mvccpb.KeyValue) (state, error) {
	tok, in := s.application(g, string(kv.Key))
	if in == nil {
		e, err := open(kv.Value)
		if err != nil {
			return state{}, fmt.Errorf("read %q: %w", kv.Key, err)
		}
		return state{envelope: e, mod: kv.ModRevision}, nil
	}
	name := strings.TrimPrefix(string(kv.Key), in.Prefix)
	doc, err := in.Format.document(name, kv.Value)
	if err == nil && kv.Lease != 0 {
		err = errors.New("its key has a lease and would be deleted when the lease expires: write it without a lease")
	}
	// Return an unreadable record instead of failing, so that the engine can park it alone.
	if err != nil {
		doc, err = withID(name, empty), fmt.Errorf("key %s of kind %s: %w", kv.Key, tok.Kind, err)
	}
	return state{envelope: envelope{doc: doc}, mod: kv.ModRevision, err: err}, nil
}

var empty = []byte{5, 0, 0, 0, 0}

// application returns the kind that has a key among its application's keys.
func (s *Store) application(g gates, key string) (record.Token, *Keys) {
	for _, tok := range g {
		if in := s.keys(tok); in != nil && strings.HasPrefix(key, in.Prefix) {
			return tok, in
		}
	}
	return record.Token{}, nil
}

// gateOfKey returns the identity of the collection of a key.
func (s *Store) gateOfKey(g gates, key string) string {
	if tok, in := s.application(g, key); in != nil {
		return tok.ID
	}
	_, id, _ := s.at.split(key)
	return id
}

// names returns the range of an application's names between two cursors. none: no name is in it.
func names(rg record.Range) (from, to string, none bool) {
	// An application's names are strings, so bounds of other types mean all or none.
	first := record.Cursor(record.StringKey(""))
	if len(rg.From) > 0 && rg.From.Compare(first) > 0 {
		name, ok := record.Key(rg.From).Name()
		if !ok {
			return "", "", true // behind all strings
		}
		from = name
	}
	if len(rg.To) > 0 {
		name, ok := record.Key(rg.To).Name()
		switch {
		case ok && name != "":
			to = name
		case rg.To.Compare(first) <= 0:
			return "", "", true
		}
	}
	return from, to, to != "" && from >= to
}

// refuseClient refuses fixed-name kinds to services: their applications use the keys directly.
func (s *Store) refuseClient(toks ...record.Token) error {
	for _, tok := range toks {
		if s.keys(tok) != nil {
			return &record.UnsupportedError{What: "kind " + tok.Kind, Reason: "only its application may write it, not a service"}
		}
	}
	return nil
}
