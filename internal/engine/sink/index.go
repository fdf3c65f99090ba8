package sink

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
)

var (
	// ErrReopen means that a write has failed, and the sink refuses everything until it is opened
	// again. Follower.Run ends with it.
	ErrReopen = errors.New("the sink must be opened again")
	// ErrDamaged is an ErrReopen whose cause may be damaged data. If it comes again after the sink was
	// opened again, the sink must begin anew.
	ErrDamaged = fmt.Errorf("%w, its data may be damaged", ErrReopen)
	// ErrUnread means that a call that only reads has failed. Other calls may work.
	ErrUnread = errors.New("the search index cannot be read: rebuild it")
)

// Index is a sink that answers searches.
type Index interface {
	Sink
	// Search returns the names of the records that meet a request. Other calls may run meanwhile.
	Search(ctx context.Context, req record.SearchRequest) (record.SearchPage, error)
	// Documents returns the number of documents, with tombstones.
	Documents() (uint64, error)
	// Close ends the use of the index. Later calls fail.
	Close() error
	// Remove closes the index and deletes it.
	Remove() error
}

// Engine opens the index in a folder of the local disk, with the searchable fields of each kind. An
// index of other fields or of another revision is made anew. It refuses a folder that another process
// has open.
type Engine func(folder string, kinds map[string][]string, revision string) (Index, error)
