package localmongo

import (
	"errors"
	"fmt"
	"io"
)

// Options shapes the server. The zero value is one small replica set node,
// which a connection string may serve too.
type Options struct {
	// Nodes is the number of replica set members: 1 (the default) to 7, the
	// most that can vote.
	Nodes int
	// CacheGB is the storage cache of each node in GB; 0 means 0.25, the least
	// that mongod accepts.
	CacheGB float64
	// OplogMB is the size of each node's oplog in MB; 0 means 2048. A small one
	// soon forgets. Not used for a standalone.
	OplogMB int
	// CheckpointEvery is how many seconds there are between checkpoints; 0 means
	// mongod's 60. What is not in one stays in the oplog, whatever its size.
	CheckpointEvery int
	// Auth turns access control on. URI then carries a user with role root.
	Auth bool
	// TestCommands allows configureFailPoint and friends, for tests that make
	// the server itself misbehave.
	TestCommands bool
	// Standalone starts a single node without a replica set: no change streams
	// and no transactions, for tests of what is refused there.
	Standalone bool
	// Own demands a server of one's own, for tests that stop it or change
	// settings of the whole cluster.
	Own bool
	// Dir is the folder below which the temporary data folder is made; empty
	// means os.TempDir().
	Dir string
	// Log receives a line for each step worth telling; nil discards them.
	Log io.Writer
}

func (o Options) withDefaults() Options {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.CacheGB == 0 {
		o.CacheGB = 0.25
	}
	if o.OplogMB == 0 {
		o.OplogMB = 2048
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Nodes < 1 || o.Nodes > 7:
		return fmt.Errorf("nodes is %d, must be 1 to 7", o.Nodes)
	case o.CacheGB < 0.25:
		return fmt.Errorf("cache is %g GB, must be 0.25 or more", o.CacheGB)
	case o.OplogMB < 1:
		return fmt.Errorf("oplog is %d MB, must be 1 or more", o.OplogMB)
	case o.Standalone && o.Nodes > 1:
		return errors.New("a standalone has one node")
	}
	return nil
}

// private returns why a server that somebody else runs cannot serve, or "".
func (o Options) private() string {
	if o.Own {
		return "a server of one's own is needed"
	}
	return o.special()
}

// special returns what about the wanted server goes beyond one plain replica
// set node, or "". Settings that only tune a server do not count.
func (o Options) special() string {
	switch {
	case o.Nodes > 1:
		return fmt.Sprintf("%d nodes are needed", o.Nodes)
	case o.Auth:
		return "access control is needed"
	case o.CheckpointEvery > 0:
		return "its own interval of checkpoints is needed"
	case o.TestCommands:
		return "test commands are needed"
	case o.Standalone:
		return "a standalone is needed"
	}
	return ""
}
