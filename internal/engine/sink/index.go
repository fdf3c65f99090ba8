package sink

import (
	"context"

	"dbcontroller.dev/record"
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
}

// Engine opens the index in a folder of the local disk, with the searchable fields of each kind. An
// index of other fields or of another revision is made anew. It refuses a folder that another process
// has open.
type Engine func(folder string, kinds map[string][]string, revision string) (Index, error)
