package sealed

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

var _ record.IndexReader = (*Client)(nil)

// ListIndexed reads by the backend's index as long as no record is encrypted: of an encrypted one
// the index has nothing. It looks at the State after the read. An encrypted record cannot be older
// than the State that allows it.
func (c *Client) ListIndexed(ctx context.Context, req record.IndexRequest) (record.IndexPage, error) {
	none := fmt.Errorf("list %s by %s: %w", req.Token.Name, req.Field, record.ErrNoIndex)
	reader, ok := c.OnceClient.(record.IndexReader)
	if !ok {
		return record.IndexPage{}, none
	}
	if st, err := c.sealer.known(ctx); err != nil || st.encrypts() {
		return record.IndexPage{}, firstOf(err, none)
	}
	page, err := reader.ListIndexed(ctx, req)
	if err != nil {
		return record.IndexPage{}, err
	}
	if st, err := c.sealer.since(ctx, time.Now()); err != nil || st.encrypts() {
		return record.IndexPage{}, firstOf(err, none)
	}
	return page, nil
}

// firstOf is err, or the other error where there is none.
func firstOf(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// since returns the State as it was at a time, or later. Callers that wait together share one
// reading of it.
func (s *Sealer) since(ctx context.Context, at time.Time) (State, error) {
	s.mu.Lock() // who holds it may be reading what is wanted
	k := s.seen.Load()
	s.mu.Unlock()
	if k != nil && !k.New && !k.at.Before(at) {
		return k.State, nil
	}
	return s.look(ctx, 0)
}

// Describe returns what a collection is. Declared fields have no index where records may be
// encrypted.
func (n *Namespace) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	info, err := n.Namespace.Describe(ctx, kind, name)
	if err != nil || !info.Indexes {
		return info, err
	}
	st, err := n.sealer.known(ctx)
	info.Indexes = !st.encrypts() && n.sealer.keys().active == Off
	return info, err
}
