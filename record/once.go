package record

import "context"

// OnceClient is a Client that can write the first records of a namespace, once.
type OnceClient interface {
	Client
	// CreateOnce creates those of the records whose keys hold none, together with a marker,
	// or does nothing where the marker is there already; made reports that this call did
	// it. The marker is no record, and is not read otherwise. It is noted with every
	// managed kind of toks, stays with them under all their names, and goes when the last
	// is dropped.
	//
	// All or nothing, acknowledged by a majority. ErrFenced: a token of one of the records
	// is stale, and nothing was written. After ErrUnknown, or any other error, the same call
	// may be made again, by anyone: the marker decides.
	CreateOnce(ctx context.Context, toks Tokens, marker string, records []Record) (made bool, err error)
}
