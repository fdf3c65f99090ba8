package databases

import (
	"context"

	"dbcontroller.dev/record"
)

var (
	_ record.Namespace = (*Database)(nil)
	_ record.Monitor   = (*Database)(nil)
)

// with runs a command on the database, which it opens first if necessary.
func with[T any](ctx context.Context, d *Database, do func(Space) (T, error)) (T, error) {
	ns, err := d.Get(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return do(ns)
}

// run is with for commands without a result.
func run(ctx context.Context, d *Database, do func(Space) error) error {
	ns, err := d.Get(ctx)
	if err != nil {
		return err
	}
	return do(ns)
}

// Connections counts the connections with all logins so far. It is 0 before the database is open.
func (d *Database) Connections() uint64 {
	if d.of != nil {
		return d.of.Connections()
	}
	w := d.opened.Load()
	if w == nil {
		return 0
	}
	return d.former.Load() + w.Connections()
}

func (d *Database) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	return with(ctx, d, func(ns Space) (record.Page, error) { return ns.Scan(ctx, req) })
}

func (d *Database) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	return with(ctx, d, func(ns Space) (record.Snapshot, error) { return ns.Read(ctx, req) })
}

func (d *Database) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return with(ctx, d, func(ns Space) ([]record.Result, error) { return ns.Apply(ctx, b) })
}

func (d *Database) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return with(ctx, d, func(ns Space) ([]record.Result, error) { return ns.Load(ctx, b) })
}

func (d *Database) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	return with(ctx, d, func(ns Space) ([]record.Result, error) { return ns.Swap(ctx, tok, swaps) })
}

func (d *Database) Position(ctx context.Context) (record.Position, error) {
	return with(ctx, d, func(ns Space) (record.Position, error) { return ns.Position(ctx) })
}

func (d *Database) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	return with(ctx, d, func(ns Space) (record.Stream, error) { return ns.Watch(ctx, from, kinds) })
}

func (d *Database) Follow(ctx context.Context, from record.Position, toks record.Tokens) (record.Stream, error) {
	return with(ctx, d, func(ns Space) (record.Stream, error) { return ns.Follow(ctx, from, toks) })
}

func (d *Database) Nudge(ctx context.Context) error {
	return run(ctx, d, func(ns Space) error { return ns.Nudge(ctx) })
}

func (d *Database) Prepare(ctx context.Context, tok record.Token, want record.FenceClass) (class record.FenceClass, restore string, err error) {
	err = run(ctx, d, func(ns Space) error {
		class, restore, err = ns.Prepare(ctx, tok, want)
		return err
	})
	return class, restore, err
}

func (d *Database) Fence(ctx context.Context, f record.Fence) error {
	return run(ctx, d, func(ns Space) error { return ns.Fence(ctx, f) })
}

func (d *Database) Ready(ctx context.Context, fs []record.Fence) error {
	return run(ctx, d, func(ns Space) error { return ns.Ready(ctx, fs) })
}

func (d *Database) Unready(ctx context.Context, fs []record.Fence) error {
	return run(ctx, d, func(ns Space) error { return ns.Unready(ctx, fs) })
}

func (d *Database) Unfence(ctx context.Context, f record.Fence) error {
	return run(ctx, d, func(ns Space) error { return ns.Unfence(ctx, f) })
}

func (d *Database) Prevent(ctx context.Context, f record.Fence) (bool, error) {
	return with(ctx, d, func(ns Space) (bool, error) { return ns.Prevent(ctx, f) })
}

func (d *Database) Uphold(ctx context.Context, f record.Fence, known []string) ([]record.Breach, error) {
	return with(ctx, d, func(ns Space) ([]record.Breach, error) { return ns.Uphold(ctx, f, known) })
}

func (d *Database) Hindrances(ctx context.Context, toks []record.Token) ([]record.Hindrance, error) {
	return with(ctx, d, func(ns Space) ([]record.Hindrance, error) { return ns.Hindrances(ctx, toks) })
}

func (d *Database) Locate(ctx context.Context, id string) (string, error) {
	return with(ctx, d, func(ns Space) (string, error) { return ns.Locate(ctx, id) })
}

func (d *Database) Check(ctx context.Context) error {
	return run(ctx, d, func(ns Space) error { return ns.Check(ctx) })
}

func (d *Database) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	return with(ctx, d, func(ns Space) (record.Info, error) { return ns.Describe(ctx, kind, name) })
}

func (d *Database) Size(ctx context.Context, tok record.Token) (record.Size, error) {
	return with(ctx, d, func(ns Space) (record.Size, error) { return ns.Size(ctx, tok) })
}

func (d *Database) Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	return with(ctx, d, func(ns Space) (record.Token, error) { return ns.Provision(ctx, kind, name) })
}

func (d *Database) Split(ctx context.Context, tok record.Token, n int) ([]record.Range, error) {
	return with(ctx, d, func(ns Space) ([]record.Range, error) { return ns.Split(ctx, tok, n) })
}

func (d *Database) Purge(ctx context.Context, tok record.Token) error {
	return run(ctx, d, func(ns Space) error { return ns.Purge(ctx, tok) })
}

func (d *Database) Drop(ctx context.Context, tok record.Token) error {
	return run(ctx, d, func(ns Space) error { return ns.Drop(ctx, tok) })
}

func (d *Database) Forget(ctx context.Context, tok record.Token) error {
	return run(ctx, d, func(ns Space) error { return ns.Forget(ctx, tok) })
}

func (d *Database) FreeNumber(ctx context.Context, kind string) (uint64, error) {
	return with(ctx, d, func(ns Space) (uint64, error) { return ns.FreeNumber(ctx, kind) })
}

func (d *Database) BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	return run(ctx, d, func(ns Space) error { return ns.BuildIndexes(ctx, tok, kind) })
}

func (d *Database) Expire(ctx context.Context, tok record.Token, seconds map[string]int64) (had map[string]int64, err error) {
	err = run(ctx, d, func(ns Space) error {
		had, err = ns.Expire(ctx, tok, seconds)
		return err
	})
	return had, err
}

func (d *Database) Reshape(ctx context.Context, tok record.Token, kind record.KindSpec, drop []string) error {
	return run(ctx, d, func(ns Space) error { return ns.Reshape(ctx, tok, kind, drop) })
}

func (d *Database) Require(ctx context.Context, toks []record.Token, l record.Label) error {
	return run(ctx, d, func(ns Space) error { return ns.Require(ctx, toks, l) })
}

func (d *Database) Health(ctx context.Context) (record.Health, error) {
	return with(ctx, d, func(ns Space) (record.Health, error) { return ns.Health(ctx) })
}

// Survey returns facts about the server.
func (d *Database) Survey(ctx context.Context) (record.Survey, error) {
	return with(ctx, d, func(ns Space) (record.Survey, error) { return ns.Survey(ctx) })
}

// Sharding returns the distribution of a collection over shards.
func (d *Database) Sharding(ctx context.Context, kind record.KindSpec, name string) (record.Sharding, error) {
	return with(ctx, d, func(ns Space) (record.Sharding, error) { return ns.Sharding(ctx, kind, name) })
}

// Moves reports whether the server recreates collections by itself.
func (d *Database) Moves(ctx context.Context) (bool, error) {
	return with(ctx, d, func(ns Space) (bool, error) { return ns.Moves(ctx) })
}

// Moved follows collections from a position to the present.
func (d *Database) Moved(ctx context.Context, from record.Position, toks record.Tokens) (now record.Tokens, broken map[string]string, err error) {
	err = run(ctx, d, func(ns Space) error {
		now, broken, err = ns.Moved(ctx, from, toks)
		return err
	})
	return now, broken, err
}

// PinChunks stops moves that a fence of these kinds would wait for.
func (d *Database) PinChunks(ctx context.Context, toks []record.Token) error {
	return run(ctx, d, func(ns Space) error { return ns.PinChunks(ctx, toks) })
}

// UnpinChunks ends what PinChunks of any process did.
func (d *Database) UnpinChunks(ctx context.Context) error {
	return run(ctx, d, func(ns Space) error { return ns.UnpinChunks(ctx) })
}

// Holds returns an error if the backend cannot hold the kind as declared.
func (d *Database) Holds(ctx context.Context, kind record.KindSpec) error {
	return run(ctx, d, func(ns Space) error { return ns.Holds(ctx, kind) })
}

// Sweep drops the collections whose names start with prefix.
func (d *Database) Sweep(ctx context.Context, prefix string) error {
	return run(ctx, d, func(ns Space) error { return ns.Sweep(ctx, prefix) })
}

// Clear drops the backend's own data besides the kinds. It returns the names of foreign objects in
// the database.
func (d *Database) Clear(ctx context.Context) (left []string, err error) {
	return with(ctx, d, func(ns Space) ([]string, error) { return ns.Clear(ctx) })
}

// Vacate is Clear for a database in which others have collections.
func (d *Database) Vacate(ctx context.Context) (left []string, err error) {
	return with(ctx, d, func(ns Space) ([]string, error) { return ns.Vacate(ctx) })
}

// CloseName makes clients fail that still use the name of a retired version's kind.
func (d *Database) CloseName(ctx context.Context, f record.Fence, said string, known []string) ([]record.Breach, error) {
	return with(ctx, d, func(ns Space) ([]record.Breach, error) { return ns.CloseName(ctx, f, said, known) })
}

func (d *Database) Identity(ctx context.Context) (record.Identity, error) {
	return with(ctx, d, func(ns Space) (record.Identity, error) { return ns.Identity(ctx) })
}

func (d *Database) Identify(ctx context.Context) (record.Identity, error) {
	return with(ctx, d, func(ns Space) (record.Identity, error) { return ns.Identify(ctx) })
}

func (d *Database) Marks(ctx context.Context) ([]record.Mark, error) {
	return with(ctx, d, func(ns Space) ([]record.Mark, error) { return ns.Marks(ctx) })
}

func (d *Database) PutMark(ctx context.Context, m record.Mark) error {
	return run(ctx, d, func(ns Space) error { return ns.PutMark(ctx, m) })
}

func (d *Database) Claim(ctx context.Context, tok record.Token, owner record.Owner) error {
	return run(ctx, d, func(ns Space) error { return ns.Claim(ctx, tok, owner) })
}

func (d *Database) Claims(ctx context.Context) ([]record.Claim, error) {
	return with(ctx, d, func(ns Space) ([]record.Claim, error) { return ns.Claims(ctx) })
}

func (d *Database) Release(ctx context.Context, owner record.Owner) error {
	return run(ctx, d, func(ns Space) error { return ns.Release(ctx, owner) })
}

// nameWatch is a backend that records the use of collection names.
type nameWatch interface {
	NameCount(ctx context.Context, name string) (record.NameCount, error)
	NameUsers(ctx context.Context, names []string) ([]record.NameUser, error)
}

// watched runs a command on a backend that records the use of names. Other backends give a
// *record.UnsupportedError.
func watched[T any](ctx context.Context, d *Database, do func(nameWatch) (T, error)) (T, error) {
	return with(ctx, d, func(ns Space) (T, error) {
		// The optional interface belongs to the backend, and the wrapper hides it.
		if e, ok := ns.(encrypted); ok {
			ns = e.Space
		}
		if w, ok := ns.(nameWatch); ok {
			return do(w)
		}
		var none T
		return none, &record.UnsupportedError{What: "names of " + d.db.Version, Reason: "the database does not tell who uses them"}
	})
}

// NameCount returns the number of uses of a name.
func (d *Database) NameCount(ctx context.Context, name string) (record.NameCount, error) {
	return watched(ctx, d, func(w nameWatch) (record.NameCount, error) { return w.NameCount(ctx, name) })
}

// NameUsers returns the present users of the names.
func (d *Database) NameUsers(ctx context.Context, names []string) ([]record.NameUser, error) {
	return watched(ctx, d, func(w nameWatch) ([]record.NameUser, error) { return w.NameUsers(ctx, names) })
}

// viewer is a backend whose databases have views.
type viewer interface {
	Views(ctx context.Context) ([]record.View, error)
}

// Views returns the views of applications, or none if the backend has no views.
func (d *Database) Views(ctx context.Context) ([]record.View, error) {
	return with(ctx, d, func(ns Space) ([]record.View, error) {
		// The optional interface belongs to the backend, and the wrapper hides it.
		if e, ok := ns.(encrypted); ok {
			ns = e.Space
		}
		if v, ok := ns.(viewer); ok {
			return v.Views(ctx)
		}
		return nil, nil
	})
}
