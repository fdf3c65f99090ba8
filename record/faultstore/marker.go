package faultstore

import (
	"context"

	"dbcontroller/record"
)

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
