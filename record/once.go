package record

import "context"

// OnceClient is a Client that can write the first records of a namespace exactly once.
type OnceClient interface {
	Client
	// CreateOnce creates the records whose keys are free, together with a marker. If the marker
	// exists, it does nothing. made reports that this call did the work. The marker is no record,
	// and no other read returns it. It is stored with every managed kind of toks and follows it
	// through renames. It ends when the last of them is dropped.
	//
	// The call writes everything or nothing, acknowledged by a majority. ErrFenced: the token of
	// one of the records is stale, and nothing was written. After ErrUnknown, or any other error,
	// any process may repeat the same call, because the marker decides.
	CreateOnce(ctx context.Context, toks Tokens, marker string, records []Record) (made bool, err error)
}
