package record

import (
	"context"
	"time"
)

// Survey holds the properties of a server that matter before data moves to it or from it. Fields
// that the server or the available privileges do not show are zero. A backend returns it, and a
// Sharding, from methods of its own. No interface of this package has them.
type Survey struct {
	Text    string // for people: product, version and other relevant properties
	Server  string // version
	Feature string // feature compatibility version
	Mongos  bool   // the server is a sharded cluster
	UUIDs   bool   // the server refuses commands with another collection UUID
	NoCPU   bool   // Monitor cannot measure the load of the processors

	DiskTotal, DiskFree int64         // bytes, of the file system of the data
	Oplog               time.Duration // time that the change history covers once the oplog is full
	OplogProblem        string        // why Oplog is unknown

	MaxDocument int    // maximum bytes of a document
	MaxGroup    int    // maximum records and kinds of a group or a client's transaction; 0: no own limit
	GuardsCount bool   // a record of a fixed-name kind counts twice in MaxGroup, with its guard
	MaxBytes    int    // maximum bytes of them together; 0: no own limit
	PerRecord   int    // bytes of MaxBytes for each record besides its document and twice its key
	Raise       string // how an operator raises these limits; empty: not possible

	Views []View // applications' views in this database

	Users   bool            // access control is on
	Actions map[string]bool // cluster actions that the user has
}

// View is a view of an application.
type View struct {
	Name  string
	Reads []string // collections and views that it reads, in order
}

// May reports whether the user has permission for an action on the cluster, or for moveChunk on the
// database.
func (s Survey) May(action string) bool {
	return !s.Users || s.Actions[action] || s.Actions["anyAction"]
}

// Sharding describes how a collection is distributed over the shards of a cluster.
type Sharding struct {
	Cluster bool   // the server is a sharded cluster
	Name    string // of the collection, with its database
	Key     string // in the form that commands take; empty: not sharded, or no such collection
	MaxKey  bool   // the collection has a record with the greatest possible key
	// Loses explains why a collection sharded in this way cannot keep such a record, and the
	// remedy. Empty: it can.
	Loses string
}

// Health is the present load of a database. CPU, Queue, CacheUsed and CacheDirty are shares of the
// total, from 0 to 1.
type Health struct {
	CPU        float64       // of the database's processors, since the previous measurement
	Queue      float64       // running and waiting operations relative to the limit; above 1: some wait
	CacheUsed  float64       // of the cache
	CacheDirty float64       // of the cache, data not yet written to disk
	Lag        time.Duration // of the slowest member of a majority
}

// Load returns the greater share of the two resources that bulk work takes from clients: processors
// and slots for operations.
func (h Health) Load() float64 { return max(h.CPU, h.Queue) }

// Monitor measures a database.
type Monitor interface {
	// Health measures the load. If it cannot, for example without a privilege, the error says why.
	// The load is then unknown, and bulk work must wait.
	Health(ctx context.Context) (Health, error)
}
