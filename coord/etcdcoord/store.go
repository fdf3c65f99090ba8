// Package etcdcoord is coord.Store on an etcd cluster.
//
// Guarantees: those of package coord. Reads are linearizable and are tried again by the
// client while members come and go. A Commit is sent at most once: where its outcome
// cannot be known (the connection broke, ctx ended, the cluster lost its leader with
// the request in flight) it is coord.ErrUnknown, never a second attempt, for a second
// attempt of a transaction that had gone through would look like a conflict. Watches
// and leases survive lost connections and changes of leader; a watch opens again after
// the last revision that it delivered.
//
// No call has a time limit of its own: with etcd away, each waits for its ctx.
//
// It does not know what keys mean, does not compact (etcd's auto compaction does), and
// does not host an etcd; see embedetcd.
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

	"dbcontroller.dev/coord"
	"dbcontroller.dev/internal/etcdconn"
)

// Config holds which etcd, and where in it.
type Config struct {
	Endpoints []string // URLs or host:port; at least one
	Prefix    string   // put before every key; may be empty
	// DialTimeout bounds Open. Zero is 5 s.
	DialTimeout time.Duration
	// Scope is the prefix, after Prefix, below which all keys are. Open reads there and
	// nowhere else, so that a user with permission for it alone will do. Empty: any key.
	Scope string
	// Username is for etcd's own authentication, empty for none. Password is asked at each
	// authentication, so that it may change.
	Username string
	Password func() (string, error)
	// TLS is asked for each new connection, so that certificates may change; nil for plain
	// connections, and for system roots where an endpoint begins with https.
	TLS func() (*tls.Config, error)
	Log *zap.Logger // nil for none
}

// Store is a connection to etcd. It is safe for concurrent use.
type Store struct {
	client *etcdconn.Conn
	prefix string
	log    *zap.Logger
	leases sync.WaitGroup // their goroutines
	// streams counts how often the streams of watches were given up for their token.
	streams atomic.Int64
}

var _ coord.Store = (*Store)(nil)

// Open connects and waits until the cluster answers a linearizable read, so that a
// wrong address, a wrong password or a cluster without quorum shows at once.
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

// Close ends the connection, watches and the renewal of leases. It does not revoke
// leases: those that must end at once are closed before.
func (s *Store) Close() error {
	err := s.client.Close()
	s.leases.Wait()
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
	kvs := make([]coord.KV, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		kvs[i] = s.kv(kv)
	}
	return kvs, resp.Header.Revision, nil
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
