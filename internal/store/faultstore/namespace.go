package faultstore

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
)

var (
	_ record.Namespace = (*Namespace)(nil)
	_ record.Stream    = (*stream)(nil)
)

// Namespace is a record.Namespace with an Injector.
type Namespace struct {
	inner record.Namespace
	inj   Injector
}

// Wrap adds an injector to a namespace.
func Wrap(ns record.Namespace, inj Injector) *Namespace { return &Namespace{inner: ns, inj: inj} }

func opOf(c Command, toks ...record.Token) Op {
	op := Op{Command: c, Tokens: toks}
	for _, tok := range toks {
		op.Kinds = append(op.Kinds, tok.Kind)
	}
	return op
}

func opOfAll(c Command, toks record.Tokens) Op {
	op := Op{Command: c}
	for kind, tok := range toks {
		op.Kinds, op.Tokens = append(op.Kinds, kind), append(op.Tokens, tok)
	}
	return op
}

// Connections has no faults: it is no command.
func (n *Namespace) Connections() uint64 { return n.inner.Connections() }

func (n *Namespace) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	return do(ctx, n.inj, opOf(Scan, req.Token), func() (record.Page, error) { return n.inner.Scan(ctx, req) })
}

func (n *Namespace) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	return do(ctx, n.inj, opOfAll(Read, req.Tokens), func() (record.Snapshot, error) { return n.inner.Read(ctx, req) })
}

func (n *Namespace) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return do(ctx, n.inj, opOfAll(Apply, b.Tokens), func() ([]record.Result, error) { return n.inner.Apply(ctx, b) })
}

func (n *Namespace) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return do(ctx, n.inj, opOfAll(Load, b.Tokens), func() ([]record.Result, error) { return n.inner.Load(ctx, b) })
}

func (n *Namespace) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	return do(ctx, n.inj, opOf(Swap, tok), func() ([]record.Result, error) { return n.inner.Swap(ctx, tok, swaps) })
}

func (n *Namespace) Position(ctx context.Context) (record.Position, error) {
	return do(ctx, n.inj, opOf(Position), func() (record.Position, error) { return n.inner.Position(ctx) })
}

// Watch implements record.Watcher. The injector sees the stream's commands as Next and Close.
func (n *Namespace) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	op := Op{Command: Watch}
	for _, k := range kinds {
		op.Kinds = append(op.Kinds, k.Name)
	}
	return n.open(ctx, op, func() (record.Stream, error) { return n.inner.Watch(ctx, from, kinds) })
}

// Follow implements record.Watcher. The injector sees its stream's commands like those of Watch.
func (n *Namespace) Follow(ctx context.Context, from record.Position, toks record.Tokens) (record.Stream, error) {
	return n.open(ctx, opOfAll(Follow, toks), func() (record.Stream, error) { return n.inner.Follow(ctx, from, toks) })
}

func (n *Namespace) Nudge(ctx context.Context) error {
	return doErr(ctx, n.inj, opOf(Nudge), func() error { return n.inner.Nudge(ctx) })
}

func (n *Namespace) open(ctx context.Context, op Op, watch func() (record.Stream, error)) (record.Stream, error) {
	var opened record.Stream
	s, err := do(ctx, n.inj, op, func() (record.Stream, error) {
		var err error
		opened, err = watch()
		return opened, err
	})
	if err != nil {
		if opened != nil {
			// The caller gets an error and cannot close the stream.
			_ = opened.Close(context.WithoutCancel(ctx))
		}
		return nil, err
	}
	return &stream{inner: s, inj: n.inj, kinds: op.Kinds}, nil
}

func (n *Namespace) Prepare(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	type answer struct {
		class   record.FenceClass
		restore string
	}
	a, err := do(ctx, n.inj, opOf(Prepare, tok), func() (answer, error) {
		class, restore, err := n.inner.Prepare(ctx, tok, want)
		return answer{class, restore}, err
	})
	return a.class, a.restore, err
}

func (n *Namespace) Ready(ctx context.Context, fs []record.Fence) error {
	return doErr(ctx, n.inj, opOf(Ready, fenced(fs)...), func() error { return n.inner.Ready(ctx, fs) })
}

func (n *Namespace) Unready(ctx context.Context, fs []record.Fence) error {
	return doErr(ctx, n.inj, opOf(Unready, fenced(fs)...), func() error { return n.inner.Unready(ctx, fs) })
}

func fenced(fs []record.Fence) (toks []record.Token) {
	for _, f := range fs {
		toks = append(toks, f.Token)
	}
	return toks
}

func (n *Namespace) Fence(ctx context.Context, f record.Fence) error {
	op := opOf(Fence, f.Token)
	op.To = f.To
	return doErr(ctx, n.inj, op, func() error { return n.inner.Fence(ctx, f) })
}

func (n *Namespace) Prevent(ctx context.Context, f record.Fence) (bool, error) {
	op := opOf(Prevent, f.Token)
	op.To = f.To
	return do(ctx, n.inj, op, func() (bool, error) { return n.inner.Prevent(ctx, f) })
}

func (n *Namespace) Hindrances(ctx context.Context, toks []record.Token) ([]record.Hindrance, error) {
	return do(ctx, n.inj, opOf(Hindrances, toks...), func() ([]record.Hindrance, error) { return n.inner.Hindrances(ctx, toks) })
}

func (n *Namespace) Uphold(ctx context.Context, f record.Fence, known []string) ([]record.Breach, error) {
	op := opOf(Uphold, f.Token)
	op.To = f.To
	return do(ctx, n.inj, op, func() ([]record.Breach, error) { return n.inner.Uphold(ctx, f, known) })
}

func (n *Namespace) Unfence(ctx context.Context, f record.Fence) error {
	op := opOf(Unfence, f.Token)
	op.To = f.To
	return doErr(ctx, n.inj, op, func() error { return n.inner.Unfence(ctx, f) })
}

func (n *Namespace) Locate(ctx context.Context, id string) (string, error) {
	return do(ctx, n.inj, opOf(Locate), func() (string, error) { return n.inner.Locate(ctx, id) })
}

func (n *Namespace) Check(ctx context.Context) error {
	return doErr(ctx, n.inj, opOf(Check), func() error { return n.inner.Check(ctx) })
}

func (n *Namespace) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	op := Op{Command: Describe, Kinds: []string{kind.Name}}
	return do(ctx, n.inj, op, func() (record.Info, error) { return n.inner.Describe(ctx, kind, name) })
}

func (n *Namespace) Size(ctx context.Context, tok record.Token) (record.Size, error) {
	return do(ctx, n.inj, opOf(Size, tok), func() (record.Size, error) { return n.inner.Size(ctx, tok) })
}

func (n *Namespace) Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	op := Op{Command: Provision, Kinds: []string{kind.Name}}
	return do(ctx, n.inj, op, func() (record.Token, error) { return n.inner.Provision(ctx, kind, name) })
}

func (n *Namespace) BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	return doErr(ctx, n.inj, opOf(BuildIndexes, tok), func() error { return n.inner.BuildIndexes(ctx, tok, kind) })
}

func (n *Namespace) Expire(ctx context.Context, tok record.Token, seconds map[string]int64) (map[string]int64, error) {
	return do(ctx, n.inj, opOf(Expire, tok), func() (map[string]int64, error) { return n.inner.Expire(ctx, tok, seconds) })
}

func (n *Namespace) Reshape(ctx context.Context, tok record.Token, kind record.KindSpec, drop []string) error {
	return doErr(ctx, n.inj, opOf(Reshape, tok), func() error { return n.inner.Reshape(ctx, tok, kind, drop) })
}

func (n *Namespace) Require(ctx context.Context, toks []record.Token, l record.Label) error {
	return doErr(ctx, n.inj, opOf(Require, toks...), func() error { return n.inner.Require(ctx, toks, l) })
}

func (n *Namespace) Split(ctx context.Context, tok record.Token, parts int) ([]record.Range, error) {
	return do(ctx, n.inj, opOf(Split, tok), func() ([]record.Range, error) { return n.inner.Split(ctx, tok, parts) })
}

func (n *Namespace) Purge(ctx context.Context, tok record.Token) error {
	return doErr(ctx, n.inj, opOf(Purge, tok), func() error { return n.inner.Purge(ctx, tok) })
}

func (n *Namespace) Drop(ctx context.Context, tok record.Token) error {
	return doErr(ctx, n.inj, opOf(Drop, tok), func() error { return n.inner.Drop(ctx, tok) })
}

// Forget has no faults of its own: no controller calls it.
func (n *Namespace) Forget(ctx context.Context, tok record.Token) error {
	return n.inner.Forget(ctx, tok)
}

// FreeNumber fails as Provision does, which follows it.
func (n *Namespace) FreeNumber(ctx context.Context, kind string) (uint64, error) {
	return do(ctx, n.inj, opOf(Provision, record.Token{Kind: kind}), func() (uint64, error) { return n.inner.FreeNumber(ctx, kind) })
}

// stream is a stream with an injector. If the answer of Next is lost, the following Next delivers
// the batch. A real cursor would begin again at the last position, so no batch may be lost.
type stream struct {
	inner record.Stream
	inj   Injector
	kinds []string
	lost  []record.ChangeBatch
}

func (s *stream) Next(ctx context.Context) (record.ChangeBatch, error) {
	taken, done := record.ChangeBatch{}, false
	b, err := do(ctx, s.inj, Op{Command: Next, Kinds: s.kinds}, func() (record.ChangeBatch, error) {
		var err error
		// Deliver lost batches first, or changes would come out of order.
		if len(s.lost) > 0 {
			taken, s.lost = s.lost[0], s.lost[1:]
		} else if taken, err = s.inner.Next(ctx); err != nil {
			return record.ChangeBatch{}, err
		}
		done = true
		return taken, nil
	})
	if err != nil && done {
		s.lost = append(s.lost, taken)
	}
	return b, err
}

func (s *stream) Close(ctx context.Context) error {
	return doErr(ctx, s.inj, Op{Command: Close, Kinds: s.kinds}, func() error { return s.inner.Close(ctx) })
}

var _ record.OnceClient = (*Client)(nil)

// Client is a record.Client with an Injector.
type Client struct {
	inner record.Client
	inj   Injector
}

// WrapClient adds an injector to a client.
func WrapClient(c record.Client, inj Injector) *Client { return &Client{inner: c, inj: inj} }

func (c *Client) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	return do(ctx, c.inj, opOf(Get, tok), func() (record.Record, error) { return c.inner.Get(ctx, tok, key) })
}

func (c *Client) Select(ctx context.Context, req record.SelectRequest) ([]record.Record, error) {
	return do(ctx, c.inj, opOfAll(Select, req.Tokens), func() ([]record.Record, error) { return c.inner.Select(ctx, req) })
}

func (c *Client) ListNames(ctx context.Context, req record.ListRequest) ([]string, error) {
	return do(ctx, c.inj, opOf(ListNames, req.Token), func() ([]string, error) { return c.inner.ListNames(ctx, req) })
}

func (c *Client) List(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	return do(ctx, c.inj, opOf(List, req.Token), func() ([]record.Record, error) { return c.inner.List(ctx, req) })
}

func (c *Client) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	op := Op{Command: Write}
	seen := map[string]bool{}
	for _, m := range ms {
		if !seen[m.Kind] {
			seen[m.Kind] = true
			op.Kinds, op.Tokens = append(op.Kinds, m.Kind), append(op.Tokens, toks[m.Kind])
		}
	}
	return doErr(ctx, c.inj, op, func() error { return c.inner.Write(ctx, toks, ms) })
}

// CreateOnce implements record.OnceClient. The wrapped client must be a record.OnceClient.
func (c *Client) CreateOnce(ctx context.Context, toks record.Tokens, marker string, records []record.Record) (bool, error) {
	once, ok := c.inner.(record.OnceClient)
	if !ok {
		return false, &record.UnsupportedError{What: "create once", Reason: fmt.Sprintf("%T cannot", c.inner)}
	}
	return do(ctx, c.inj, opOfAll(Once, toks), func() (bool, error) { return once.CreateOnce(ctx, toks, marker, records) })
}

var _ record.Monitor = (*Namespace)(nil)

// Health implements record.Monitor. A wrapped namespace without Health counts as idle.
func (n *Namespace) Health(ctx context.Context) (record.Health, error) {
	return do(ctx, n.inj, Op{Command: Health}, func() (record.Health, error) {
		m, ok := n.inner.(record.Monitor)
		if !ok {
			return record.Health{}, nil
		}
		return m.Health(ctx)
	})
}

func (n *Namespace) Identity(ctx context.Context) (record.Identity, error) {
	return do(ctx, n.inj, opOf(Identity), func() (record.Identity, error) { return n.inner.Identity(ctx) })
}

func (n *Namespace) Identify(ctx context.Context) (record.Identity, error) {
	return do(ctx, n.inj, opOf(Identify), func() (record.Identity, error) { return n.inner.Identify(ctx) })
}

func (n *Namespace) Marks(ctx context.Context) ([]record.Mark, error) {
	return do(ctx, n.inj, opOf(Marks), func() ([]record.Mark, error) { return n.inner.Marks(ctx) })
}

func (n *Namespace) PutMark(ctx context.Context, m record.Mark) error {
	return doErr(ctx, n.inj, opOf(PutMark), func() error { return n.inner.PutMark(ctx, m) })
}

func (n *Namespace) Claim(ctx context.Context, tok record.Token, owner record.Owner) error {
	return doErr(ctx, n.inj, opOf(Claim, tok), func() error { return n.inner.Claim(ctx, tok, owner) })
}

func (n *Namespace) Claims(ctx context.Context) ([]record.Claim, error) {
	return do(ctx, n.inj, opOf(Claims), func() ([]record.Claim, error) { return n.inner.Claims(ctx) })
}

func (n *Namespace) Release(ctx context.Context, owner record.Owner) error {
	return doErr(ctx, n.inj, opOf(Release), func() error { return n.inner.Release(ctx, owner) })
}
