package record

import "context"

// Pager is an ability that a Client may have: what lists over another version's records are made
// of. A Client that has it, and a database that has not, is a Client whose methods of it return
// an *UnsupportedError.
type Pager interface {
	// ListWith lists as List does and returns with the records what also selects for them, all
	// as they were at one moment. What it selects are records near each other, as those are whose
	// names begin with names of one page. also may be called again, with what another try lists.
	ListWith(ctx context.Context, toks Tokens, list ListRequest, also func(listed []Record) ([]Selector, error)) (listed, with []Record, err error)
	// SelectAt is Select as a list, with the moment that it shows.
	SelectAt(ctx context.Context, req SelectRequest) (Snapshot, error)
	// Since returns, without waiting for any, the changes of kinds after a position, and the
	// place that it came to: what was acknowledged before the call is before it. Changes may come
	// more often than once. With no position it returns the present place. ErrHistoryLost and
	// ErrBroken mean that it cannot be known any longer what changed.
	Since(ctx context.Context, kinds []KindSpec, after Position) (ChangeBatch, error)
}
