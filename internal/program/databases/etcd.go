package databases

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/program/etcdlogin"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/record"
)

// etcdEngine opens namespaces in etcd. Its connections follow changed passwords and certificates
// themselves. Quiet has no effect, since nothing here delays other clients.
type etcdEngine struct{}

// room is the part of a request's maximum size, in bytes, that is kept free for its overhead.
const room = 64 << 10

func (etcdEngine) open(ctx context.Context, db config.DB, how Config, file string) (Space, error) {
	fail := func(err error) (Space, error) {
		return nil, fmt.Errorf("%w: %s in %s", err, etcdlogin.Correct(err, db.Etcd, false), file)
	}
	login, err := etcdlogin.Config(db.Etcd, how.Log)
	if err != nil {
		return fail(err)
	}
	// Opening reads below this prefix only, so a user needs no other rights.
	login.Scope, login.MaxRequest = db.Database+"/", db.MaxRequest
	conn, err := etcdconn.Open(ctx, login)
	switch {
	case err == nil:
	case errors.Is(err, etcdconn.ErrLogin), errors.Is(err, etcdconn.ErrDenied), errors.Is(err, etcdconn.ErrTLS), ctx.Err() != nil:
		return fail(err)
	default:
		// Any other error may pass by itself, so callers may retry it.
		return fail(fmt.Errorf("%w: %w", record.ErrUnavailable, err))
	}
	cfg := etcdstore.Config{Prefix: db.Database + "/", Operations: db.MaxTxnOps, Log: how.Log}
	// Leave room for the overhead, or a full transaction would exceed the server's limit.
	if db.MaxRequest > 0 {
		cfg.Bytes = db.MaxRequest - min(room, db.MaxRequest/2)
	}
	if len(db.Kinds) > 0 {
		cfg.Fixed = map[string]etcdstore.Keys{}
	}
	for _, k := range db.Kinds {
		cfg.Fixed[k.Name] = etcdstore.Keys{Prefix: k.Prefix + "/", Format: etcdstore.Format(k.Format)}
	}
	store, err := etcdstore.New(conn, cfg)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return etcdSpace{store, conn}, nil
}

func (e etcdEngine) scratch(db config.DB, how Config) scratcher { return etcdScratch{e, db, how} }

func (etcdEngine) unavailable(err error) bool  { return etcdstore.IsUnavailable(err) }
func (etcdEngine) unprivileged(err error) bool { return errors.Is(err, etcdconn.ErrDenied) }
func (etcdEngine) loginRefused(error) bool     { return false }
func (etcdEngine) once(db config.DB, kinds int) int {
	return min(limits.Fixtures, etcdstore.MostOnce(db.MaxTxnOps, kinds))
}

func (etcdEngine) documents(config.DB) (config.Secret, bool) { return config.Secret{}, false }
func (etcdEngine) product() string                           { return "etcd" }
func (etcdEngine) shell(db config.DB) string {
	return fmt.Sprintf("etcdctl --endpoints %s get --prefix %s/ --keys-only", db.Hosts(), db.Database)
}

// etcdSpace is an open namespace in etcd.
type etcdSpace struct {
	*etcdstore.Store
	conn *etcdconn.Conn
}

func (s etcdSpace) Client() record.OnceClient { return s.Store }
func (s etcdSpace) Quietly() Space            { return s }

// Sharding reports none: etcd has no shards.
func (etcdSpace) Sharding(context.Context, record.KindSpec, string) (record.Sharding, error) {
	return record.Sharding{}, nil
}

// Moves reports false: etcd keeps the identity of a kind.
func (etcdSpace) Moves(context.Context) (bool, error) { return false, nil }

// PinChunks does nothing: etcd has no shards.
func (etcdSpace) PinChunks(context.Context, []record.Token) error { return nil }

// UnpinChunks does nothing.
func (etcdSpace) UnpinChunks(context.Context) error { return nil }

// Moved is never called, because nothing moves.
func (etcdSpace) Moved(_ context.Context, _ record.Position, toks record.Tokens) (record.Tokens, map[string]string, error) {
	return toks, nil, nil
}

// CloseName does nothing: only holders of a token know the names in etcd.
func (etcdSpace) CloseName(context.Context, record.Fence, string, []string) ([]record.Breach, error) {
	return nil, nil
}

// EndTransactions does nothing: a transaction in etcd is a single request.
func (etcdSpace) EndTransactions(context.Context, Space) error { return nil }

func (s etcdSpace) Close(context.Context) error {
	if err := s.conn.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd client: %w", err)
	}
	return nil
}

// etcdScratch is a scratch namespace with its own prefix.
type etcdScratch struct {
	engine etcdEngine
	db     config.DB
	how    Config
}

func (s etcdScratch) check(ctx context.Context) error {
	return s.with(ctx, (*etcdstore.Store).CheckScratch)
}

func (s etcdScratch) claim(ctx context.Context) error {
	return s.with(ctx, (*etcdstore.Store).ClaimScratch)
}

func (s etcdScratch) drop(ctx context.Context) error {
	return s.with(ctx, (*etcdstore.Store).DropScratch)
}

func (s etcdScratch) with(ctx context.Context, do func(*etcdstore.Store, context.Context) error) error {
	space, err := s.engine.open(ctx, s.db, s.how, "the configuration")
	if err != nil {
		return err
	}
	return errors.Join(do(space.(etcdSpace).Store, ctx), space.Close(ctx))
}
