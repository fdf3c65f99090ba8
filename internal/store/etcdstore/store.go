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

	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/record"
)

var (
	_ record.Namespace  = (*Store)(nil)
	_ record.OnceClient = (*Store)(nil)
)

// The limits of an etcd with default options: --max-txn-ops, and --max-request-bytes less some room
// for the data around the values.
const (
	defaultOperations = 128
	defaultBytes      = 1536<<10 - 64<<10
)

// Config locates the namespace.
type Config struct {
	// Prefix begins every key. It ends with "/" and belongs to this namespace alone.
	Prefix string
	// Operations is the maximum number of records in a transaction, as in etcd's --max-txn-ops. 0:
	// 128.
	Operations int
	// Bytes is the maximum size of a transaction, somewhat less than etcd's --max-request-bytes. 0:
	// 1.4 MiB.
	Bytes int
	// Fixed locates the applications' records of fixed-name kinds, by kind.
	Fixed map[string]Keys
	Log   *zap.Logger // nil: no log
}

// Store is one namespace. Its methods are safe for concurrent use.
type Store struct {
	conn  *etcdconn.Conn
	at    layout
	most  int // operations of a transaction, besides the comparison of labels
	bytes int // of a transaction
	fixed map[string]Keys
	log   *zap.Logger
	known atomic.Pointer[labels]

	mu    sync.Mutex
	rooms map[string]int64 // results of room, by identity of the collection
}

// New returns the namespace below a prefix. The caller closes the connection.
func New(conn *etcdconn.Conn, cfg Config) (*Store, error) {
	if !strings.HasSuffix(cfg.Prefix, "/") {
		return nil, fmt.Errorf("prefix %q: it must end with a slash, or it would contain other prefixes", cfg.Prefix)
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
	// The comparison of the labels takes one operation of each transaction.
	return &Store{conn: conn, at: layout(cfg.Prefix), most: cfg.Operations - labelConditions, bytes: cfg.Bytes, fixed: maps.Clone(cfg.Fixed), log: cfg.Log, rooms: map[string]int64{}}, nil
}

// Connections returns the number of connections opened so far.
func (s *Store) Connections() uint64 { return s.conn.Connections() }

// gates holds the tokens of a command's kinds. A transaction compares their gates with these
// tokens.
type gates map[string]record.Token // by identity

// gatesOf returns the tokens of kinds. It fails for a kind without a token.
func gatesOf(toks record.Tokens, kinds func(yield func(string) bool)) (gates, error) {
	g := gates{}
	for kind := range kinds {
		tok, ok := toks[kind]
		if !ok {
			return nil, fmt.Errorf("kind %s: no token", kind)
		}
		if tok.ID == "" {
			return nil, fmt.Errorf("%s as %s: %w", kind, tok.Name, record.ErrFenced) // all our tokens have an identity
		}
		g[tok.ID] = tok
	}
	return g, nil
}

// managed reports whether any token belongs to a managed kind. Only those may have a label.
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

// weight returns the bytes that gates add to a request, except for gates in others. A request
// compares each gate, and reads it if a comparison fails.
func (s *Store) weight(g, others gates) (bytes int) {
	for id, tok := range g {
		if _, counted := others[id]; !counted {
			bytes += 2*(len(s.at)+len("g/")+len(id)) + len(tok.Name) + overhead
		}
	}
	return bytes + 2*len(s.at.labels()) + overhead
}

// conditions returns comparisons that make a transaction fail after a fence.
func (s *Store) conditions(g gates) []clientv3.Cmp {
	cmps := make([]clientv3.Cmp, 0, len(g))
	for id, tok := range g {
		cmps = append(cmps, clientv3.Compare(clientv3.Value(s.at.gate(id)), "=", tok.Name))
	}
	return cmps
}

// looks returns the reads of a transaction whose comparisons failed.
func (s *Store) looks(g gates) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(g)+1)
	for id := range g {
		ops = append(ops, clientv3.OpGet(s.at.gate(id)))
	}
	// A changed label may be the reason for the failure.
	if g.managed() {
		ops = append(ops, clientv3.OpGet(s.at.labels()))
	}
	return ops
}

// fenced returns ErrFenced for the first gate that differs from its token, according to the answers
// to looks. nil: all gates match.
func (s *Store) fenced(g gates, resp *clientv3.TxnResponse) error {
	// A missing gate has no entry and so differs from its token.
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

// state is the content of a key.
type state struct {
	envelope
	mod    int64 // revision of the key; 0: no such key
	beside int64 // revision of the guard's key, for a record of a fixed-name kind
	err    error // why the value is no readable document
}

func (st state) live() bool { return st.doc != nil }

// states reads keys at one revision not older than the call. It fails if a gate is fenced.
func (s *Store) states(ctx context.Context, g gates, keys []string) (map[string]state, error) {
	return whole(ctx, func() (map[string]state, error) {
		states := make(map[string]state, len(keys))
		_, err := s.snapshot(ctx, g, keys, 0, func(key string, st state) error {
			states[key] = st
			return nil
		})
		return states, err
	})
}

// errBehind means that another transaction changed the compared keys. Read again.
var errBehind = errors.New("the records have changed meanwhile")

// errTooLarge means that etcd accepts less than the configuration states.
var errTooLarge = fmt.Errorf("%w: etcd accepts less in a request than etcd.maxRequestBytes and etcd.maxTxnOps in the configuration: raise its --max-request-bytes and --max-txn-ops, or lower these settings", record.ErrOversize)

// commit runs the operations if all comparisons hold. It returns ErrFenced if a gate has changed,
// and errBehind if another key has changed.
func (s *Store) commit(ctx context.Context, what string, a attempt) error {
	if a.failed != nil {
		return fmt.Errorf("%s: %w", what, a.failed)
	}
	for {
		// Check the documents against the known labels. The transaction compares those.
		labelled, err := s.labelled(ctx, a.gates, a.ops)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		resp, err := s.transact(ctx, what, slices.Concat(s.conditions(a.gates), labelled, a.cmps), a.ops, s.looks(a.gates), false)
		if err != nil {
			return err
		}
		if resp.Succeeded {
			return nil
		}
		// A fence outweighs other reasons, because the caller needs a new token.
		if err := s.fenced(a.gates, resp); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		// If only the labels were outdated, check the documents against the new ones and try again.
		if changed, err := s.relabelled(a.gates, resp); err != nil || !changed {
			return cmp.Or(err, errBehind)
		}
	}
}

// checkDoc checks the requirements: the document has the _id of its key, does not use the reserved
// field, and fits into a request.
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
	// An application's record is stored in another form, and that form counts for the size.
	if in != nil {
		value, err := in.Format.stored(doc)
		if err != nil {
			return err
		}
		doc = value
	}
	// etcd would refuse the whole transaction, and other groups with it.
	if s.slot(tok, key).weight(len(doc)) > s.bytes {
		return fmt.Errorf("%w: the document has %d bytes, but etcd accepts %d in a request: raise its --max-request-bytes, and etcd.maxRequestBytes in the configuration", record.ErrOversize, len(doc), s.bytes)
	}
	if in != nil {
		return nil
	}
	return record.CheckReserved(tok, doc)
}
