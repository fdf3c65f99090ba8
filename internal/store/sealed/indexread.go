package sealed

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

var _ record.IndexReader = (*Client)(nil)

// ListIndexed reads by the backend's index while no record is encrypted. The index has no entries
// for encrypted records. ListIndexed reads the State after the records: an encrypted record cannot
// be older than the State that allows it.
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
	// Records may have been encrypted during the read, and the index lacks those.
	if st, err := c.sealer.since(ctx, time.Now()); err != nil || st.encrypts() {
		return record.IndexPage{}, firstOf(err, none)
	}
	return page, nil
}

// firstOf returns err, or otherwise if err is nil.
func firstOf(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// since returns the State as of the given time or later. Concurrent callers share one read of it.
func (s *Sealer) since(ctx context.Context, at time.Time) (State, error) {
	s.mu.Lock() // the holder of the lock may be reading the wanted State
	k := s.seen.Load()
	s.mu.Unlock()
	if k != nil && !k.New && !k.at.Before(at) {
		return k.State, nil
	}
	return s.look(ctx, 0)
}

// Describe returns the properties of a collection. Indexes of declared fields are not available
// where records may be encrypted.
func (n *Namespace) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	info, err := n.Namespace.Describe(ctx, kind, name)
	if err != nil || !info.Indexes {
		return info, err
	}
	st, err := n.sealer.known(ctx)
	// With an active key, records will be encrypted soon.
	info.Indexes = !st.encrypts() && n.sealer.keys().active == Off
	return info, err
}
