package record

import "context"

// Pager is an optional ability of a Client. It serves lists that are converted from another
// version's records. A Client may implement it without support by its database. Its methods then
// return an *UnsupportedError.
type Pager interface {
	// ListWith lists like List, calls also with the listed records, and returns the records that also
	// selects. Both come from one moment. also should select records close to each other, such as the
	// records whose names begin with names of one page. ListWith may retry and call also again with
	// another list. list.Bytes limits both parts together, as in a
	// SelectRequest, and does not end the list: a larger result is ErrTooLarge.
	ListWith(ctx context.Context, toks Tokens, list ListRequest, also func(listed []Record) ([]Selector, error)) (listed, with []Record, err error)
	// SelectAt is Select with the recency of a list. It also returns the version of the moment
	// shown.
	SelectAt(ctx context.Context, req SelectRequest) (Snapshot, error)
	// Since returns the changes of kinds after a position without waiting, and the place reached.
	// Changes acknowledged before the call are before that place. A change may occur more than
	// once. Without a position it returns the present place. ErrHistoryLost and ErrBroken: the
	// changes can no longer be determined.
	Since(ctx context.Context, kinds []KindSpec, after Position) (ChangeBatch, error)
}
