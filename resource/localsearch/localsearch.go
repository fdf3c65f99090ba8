// Package localsearch gives a service full-text search without a server for it. Each server of the
// service keeps an index of its own on its local disk, by the library bleve.
//
//	dbcontroller.Service{Search: localsearch.Engine, ...}
//
// The import links bleve into the program. Programs without it do not contain bleve.
//
// # What this package does not own
//
// dbcontroller.Version.Search declares what is in an index, and the section search of the
// configuration where it is. The server follows the records.
package localsearch

import (
	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/internal/store/blevesink"
)

var _ sink.Engine = Engine

// Engine opens an index. It is the value of dbcontroller.Service.Search.
func Engine(folder string, kinds map[string][]string, revision string) (sink.Index, error) {
	x, err := blevesink.Open(blevesink.Config{Folder: folder, Kinds: kinds, Revision: revision})
	if err != nil {
		return nil, err // not a nil index in an interface
	}
	return x, nil
}
