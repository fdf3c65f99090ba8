package record

import (
	"context"
	"time"
)

// Survey is what there is to know of a server before anything is moved there or from there.
// What the server, or the privileges at hand, do not show is zero.
type Survey struct {
	Text    string // for people: product, version, and what else of it matters here
	Server  string // version
	Feature string // feature compatibility version
	Mongos  bool   // a sharded cluster
	UUIDs   bool   // commands with another collection UUID are refused
	NoCPU   bool   // Monitor does not know the load of its processors

	DiskTotal, DiskFree int64         // bytes, of the data's file system
	Oplog               time.Duration // how far back changes reach, once the oplog is full
	OplogProblem        string        // why that is not known

	MaxDocument int    // bytes that a document may have
	MaxGroup    int    // records and kinds that a group, or a client's transaction, may have; 0: no bound of its own
	GuardsCount bool   // a record of a fixed-name kind is two of MaxGroup: its guard lies next to it
	MaxBytes    int    // that they may have together; 0: likewise
	PerRecord   int    // bytes that each record takes of these besides its document and twice its key
	Raise       string // what a person does about these bounds; empty: nothing can be done

	Views []View // of applications, in this database

	Users   bool            // access control is on
	Actions map[string]bool // that the user may do on the cluster
}

// View is a view of an application.
type View struct {
	Name  string
	Reads []string // collections and views, in order
}

// May reports whether the user may do something on the cluster.
func (s Survey) May(action string) bool {
	return !s.Users || s.Actions[action] || s.Actions["anyAction"]
}

// Sharding describes how a collection is spread over the shards of a cluster.
type Sharding struct {
	Cluster bool   // the server is a sharded cluster
	Name    string // of the collection, with its database
	Key     string // as commands take it; empty: it is not sharded, or not there
	MaxKey  bool   // it holds a record with the greatest key that there is
	// Loses is why a collection that is sharded so does not keep such a record, and what to do
	// about it; empty: it does.
	Loses string
}

// Health is how a database bears its load, measured just now. Shares are of what there is,
// from 0 to 1.
type Health struct {
	CPU        float64       // of the database's processors, over the time since the last look
	Queue      float64       // of the operations that may run at once, those that run or wait; above 1: some wait
	CacheUsed  float64       // of the cache
	CacheDirty float64       // of the cache, what is still to be written
	Lag        time.Duration // of the member of a majority that is furthest behind
}

// Load is the share of the scarcest of what bulk work takes from clients: processors and
// places to run.
func (h Health) Load() float64 { return max(h.CPU, h.Queue) }

// Monitor measures a database.
type Monitor interface {
	// Health measures. An error holds why it cannot, a missing privilege for one; then
	// nothing is known, and bulk work has to wait.
	Health(ctx context.Context) (Health, error)
}
