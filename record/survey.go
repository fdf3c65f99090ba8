package record

import "time"

// Survey is what there is to know of a server before anything is moved there or from there.
// What the server, or the privileges at hand, do not show is zero.
type Survey struct {
	Server  string // version
	Feature string // feature compatibility version
	Mongos  bool   // a sharded cluster
	UUIDs   bool   // commands with another collection UUID are refused

	DiskTotal, DiskFree int64         // bytes, of the data's file system
	Oplog               time.Duration // how far back changes reach, once the oplog is full
	OplogProblem        string        // why that is not known

	Users   bool            // access control is on
	Actions map[string]bool // that the user may do on the cluster
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
