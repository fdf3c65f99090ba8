package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/etcdconn"
	"dbcontroller.dev/record"
)

var (
	_ record.Namespace  = (*Store)(nil)
	_ record.OnceClient = (*Store)(nil)
)

// What an etcd takes that was started without options of its own: --max-txn-ops and
// --max-request-bytes, less some room for what goes around the values.
const (
	defaultOperations = 128
	defaultBytes      = 1536<<10 - 64<<10
)

// Config holds where the namespace is.
type Config struct {
	// Prefix is put before every key. It belongs to this namespace alone, and ends with "/".
	Prefix string
	// Operations is how many records a transaction may have, as etcd's --max-txn-ops. 0: 128.
	Operations int
	// Bytes is how many bytes a transaction may have, somewhat less than etcd's
	// --max-request-bytes. 0: 1.4 MiB.
	Bytes int
	// Fixed has where applications have the records of fixed-name kinds, by kind.
	Fixed map[string]Keys
	Log   *zap.Logger // nil for none
}

// Store is one namespace. Its methods may be called concurrently.
type Store struct {
	conn  *etcdconn.Conn
	at    layout
	most  int // operations of a transaction, next to the comparison of labels
	bytes int // of a transaction
	fixed map[string]Keys
	log   *zap.Logger
	known atomic.Pointer[labels]

	mu    sync.Mutex
	rooms map[string]int64 // by a collection's identity, what room returns
}

// New is the namespace below a prefix. The connection is the caller's to close.
func New(conn *etcdconn.Conn, cfg Config) (*Store, error) {
	if !strings.HasSuffix(cfg.Prefix, "/") {
		return nil, fmt.Errorf("prefix %q: it must end with a slash, or it would contain that of others", cfg.Prefix)
	}
	if cfg.Operations <= 0 {
		cfg.Operations = defaultOperations
	}
	if cfg.Bytes <= 0 {
		cfg.Bytes = defaultBytes
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if err := checkKeys(cfg.Prefix, cfg.Fixed); err != nil {
		return nil, err
	}
	return &Store{conn: conn, at: layout(cfg.Prefix), most: cfg.Operations - labelConditions, bytes: cfg.Bytes, fixed: maps.Clone(cfg.Fixed), log: cfg.Log, rooms: map[string]int64{}}, nil
}

// gates are the gates of the kinds that a command touches, as its tokens have them.
type gates map[string]record.Token // by identity

// gatesOf collects the tokens of kinds.
func gatesOf(toks record.Tokens, kinds func(yield func(string) bool)) (gates, error) {
	g := gates{}
	for kind := range kinds {
		tok, ok := toks[kind]
		if !ok {
			return nil, fmt.Errorf("kind %s: no token", kind)
		}
		if tok.ID == "" {
			return nil, fmt.Errorf("%s as %s: %w", kind, tok.Name, record.ErrFenced) // no token of ours lacks it
		}
		g[tok.ID] = tok
	}
	return g, nil
}

// managed reports whether any is of a managed kind, which may have a label.
func (g gates) managed() bool {
	for _, tok := range g {
		if !tok.Fixed {
			return true
		}
	}
	return false
}

func gateOf(tok record.Token) (gates, error) {
	return gatesOf(record.Tokens{tok.Kind: tok}, func(yield func(string) bool) { yield(tok.Kind) })
}

// weight is how much of a request gates take that are not among others: they are compared, and
// read where a comparison did not hold.
func (s *Store) weight(g, others gates) (bytes int) {
	for id, tok := range g {
		if _, counted := others[id]; !counted {
			bytes += 2*(len(s.at)+len("g/")+len(id)) + len(tok.Name) + overhead
		}
	}
	return bytes + 2*len(s.at.labels()) + overhead
}

// conditions are what a transaction compares so that it has no effect after a fence.
func (s *Store) conditions(g gates) []clientv3.Cmp {
	cmps := make([]clientv3.Cmp, 0, len(g))
	for id, tok := range g {
		cmps = append(cmps, clientv3.Compare(clientv3.Value(s.at.gate(id)), "=", tok.Name))
	}
	return cmps
}

// looks are what a transaction reads when a comparison did not hold.
func (s *Store) looks(g gates) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(g)+1)
	for id := range g {
		ops = append(ops, clientv3.OpGet(s.at.gate(id)))
	}
	if g.managed() {
		ops = append(ops, clientv3.OpGet(s.at.labels()))
	}
	return ops
}

// fenced is ErrFenced for the first gate that is not as its token has it, by the answers to
// looks; nil if all are.
func (s *Store) fenced(g gates, resp *clientv3.TxnResponse) error {
	have := map[string]string{}
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			have[string(kv.Key)] = string(kv.Value)
		}
	}
	for id, tok := range g {
		if have[s.at.gate(id)] != tok.Name {
			return fmt.Errorf("%s as %s: %w", tok.Kind, tok.Name, record.ErrFenced)
		}
	}
	return nil
}

// state is what a key holds.
type state struct {
	envelope
	mod    int64 // revision of the key, 0: there is none
	beside int64 // of the key that has the guard, of a record of a fixed-name kind
	err    error // why the value is none that a document can be made of
}

func (st state) live() bool { return st.doc != nil }

// states reads keys at one revision, none older than now, and fails where a gate is shut.
func (s *Store) states(ctx context.Context, g gates, keys []string) (map[string]state, error) {
	states := make(map[string]state, len(keys))
	_, err := s.snapshot(ctx, g, keys, 0, func(key string, st state) error {
		states[key] = st
		return nil
	})
	return states, err
}

// errBehind: another transaction has changed what this one compares; read again.
var errBehind = errors.New("the records have changed meanwhile")

// errTooLarge: etcd was started with less than the configuration says.
var errTooLarge = fmt.Errorf("%w: etcd takes less in a request than etcd.maxRequestBytes and etcd.maxTxnOps in the configuration say: raise its --max-request-bytes and --max-txn-ops, or lower these", record.ErrOversize)

// commit makes the operations where all comparisons hold: ErrFenced if a gate is the reason
// that one does not, errBehind if it is another.
func (s *Store) commit(ctx context.Context, what string, a attempt) error {
	if a.failed != nil {
		return fmt.Errorf("%s: %w", what, a.failed)
	}
	for {
		labelled, err := s.labelled(ctx, a.gates, a.ops)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		resp, err := s.write(ctx, what, slices.Concat(s.conditions(a.gates), labelled, a.cmps), a.ops, s.looks(a.gates))
		if err != nil {
			return err
		}
		if resp.Succeeded {
			return nil
		}
		if err := s.fenced(a.gates, resp); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if changed, err := s.relabelled(a.gates, resp); err != nil || !changed {
			return cmp.Or(err, errBehind)
		}
	}
}

// checkDoc is what is insisted on: the document carries the _id of its key, leaves the
// reserved field alone, and fits into a request.
func (s *Store) checkDoc(tok record.Token, key record.Key, doc bson.Raw) error {
	if err := record.CheckKey(key); err != nil {
		return err
	}
	in := s.keys(tok)
	if in != nil {
		if _, err := named(key); err != nil {
			return err
		}
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
	if in != nil {
		value, err := in.Format.value(doc)
		if err != nil {
			return err
		}
		doc = value
	}
	if s.slot(tok, key).weight(len(doc)) > s.bytes {
		return fmt.Errorf("%w: the document has %d bytes, and etcd takes %d in a request: raise its --max-request-bytes, and etcd.maxRequestBytes in the configuration", record.ErrOversize, len(doc), s.bytes)
	}
	if in != nil {
		return nil
	}
	return record.CheckReserved(tok, doc)
}
