// Package etcdcoord implements coord.Store with an etcd cluster.
//
// It gives the guarantees of package coord. Reads are linearizable, and the client retries them
// while members come and go. The client sends a Commit at most once. If the connection breaks, ctx
// ends or the leader is lost during the request, the outcome is unknown, and Commit returns
// coord.ErrUnknown. It never retries, because a retry of a successful transaction would look like a
// conflict.
//
// Watches and leases survive lost connections and changes of the leader. A watch opens again after
// the last revision that it delivered.
//
// Calls have no time limit of their own. While etcd is unreachable, each call waits for its ctx.
//
// The package does not know the meaning of keys. It does not compact (etcd's auto compaction does),
// and it does not run an etcd; see embedetcd. Begin to read with Open.
//
// It is not for users and may change with any version.
package etcdcoord

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdconn"
)

// Config selects an etcd, and a part of its keys.
type Config struct {
	Endpoints []string // URLs or host:port; at least one
	Prefix    string   // begins every key; may be empty
	// DialTimeout limits Open. 0: 5 s.
	DialTimeout time.Duration
	// Scope is the prefix, after Prefix, of all keys. Open reads only there, so permission for it
	// is enough. Empty: any key.
	Scope string
	// Username is for etcd's own authentication. Empty: none. Password is called at each
	// authentication, so that the password may change.
	Username string
	Password func() (string, error)
	// TLS is called for each new connection, so that certificates may change. nil: plain
	// connections, and the system's roots for endpoints with https.
	TLS func() (*tls.Config, error)
	Log *zap.Logger // nil: no log
}

// Store is a connection to etcd. It is safe for concurrent use.
type Store struct {
	client *etcdconn.Conn
	prefix string
	log    *zap.Logger
	leases sync.WaitGroup // counts the goroutines of leases
	// outdated counts how often the streams of watches were given up because of their token.
	outdated atomic.Int64
	watches  streams  // of open watches
	renewals renewals // of leases
}

var _ coord.Store = (*Store)(nil)

// Open connects and waits until the cluster answers a linearizable read. A wrong address, a wrong
// password or a cluster without quorum therefore fails at once.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	client, err := etcdconn.Open(ctx, etcdconn.Config{
		Endpoints: cfg.Endpoints, DialTimeout: cfg.DialTimeout, Scope: cfg.Prefix + cfg.Scope,
		Username: cfg.Username, Password: cfg.Password, TLS: cfg.TLS, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Store{client: client, prefix: cfg.Prefix, log: cfg.Log}, nil
}

// Close ends the connection, the watches and the renewal of leases. It does not revoke leases.
// Close those before that must end at once.
func (s *Store) Close() error {
	// Closing the client ends the renewals, so the goroutines below end too.
	err := s.client.Close()
	s.leases.Wait()
	s.renewals.close()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd client: %w", err)
	}
	return nil
}

func (s *Store) Get(ctx context.Context, key string) (coord.KV, error) {
	resp, err := s.client.Get(ctx, s.prefix+key)
	if err != nil {
		return coord.KV{}, fmt.Errorf("get %s: %w", key, s.client.Denied(err))
	}
	if len(resp.Kvs) == 0 {
		return coord.KV{}, fmt.Errorf("get %s: %w", key, coord.ErrNotFound)
	}
	return s.kv(resp.Kvs[0]), nil
}

func (s *Store) List(ctx context.Context, prefix string) ([]coord.KV, int64, error) {
	resp, err := s.client.Get(ctx, s.prefix+prefix, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
	if err != nil {
		return nil, 0, fmt.Errorf("list %s: %w", prefix, s.client.Denied(err))
	}
	return s.kvs(resp.Kvs), resp.Header.Revision, nil
}

// ListPage implements coord.Store. etcd returns keys in their order.
func (s *Store) ListPage(ctx context.Context, prefix, after string, limit int) ([]coord.KV, error) {
	from := prefix
	if after >= prefix {
		from = after + "\x00" // the next possible key
	}
	resp, err := s.client.Get(ctx, s.prefix+from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.prefix+prefix)), clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, s.client.Denied(err))
	}
	return s.kvs(resp.Kvs), nil
}

func (s *Store) kvs(all []*mvccpb.KeyValue) []coord.KV {
	kvs := make([]coord.KV, len(all))
	for i, kv := range all {
		kvs[i] = s.kv(kv)
	}
	return kvs
}

func (s *Store) kv(kv *mvccpb.KeyValue) coord.KV {
	return coord.KV{
		Key:    strings.TrimPrefix(string(kv.Key), s.prefix),
		Value:  kv.Value,
		Create: kv.CreateRevision,
		Mod:    kv.ModRevision,
		Lease:  coord.LeaseID(kv.Lease),
	}
}
