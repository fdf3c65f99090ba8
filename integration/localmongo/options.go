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
	// Shards asks for a sharded cluster: that many shards, each a replica set of
	// Nodes members, a config server of one member, and one mongos, which is what
	// URI names. The balancer is off, so that chunks lie where the caller puts them.
	// 0 means no sharding.
	Shards int
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
	// TLS has nodes take TLS as well as plain connections, with these files; nil means
	// plain ones alone. Clients may have a certificate. Not for sharded clusters.
	TLS *TLS
	// TestCommands allows configureFailPoint and friends, for tests that make
	// the server itself misbehave.
	TestCommands bool
	// Standalone starts a single node without a replica set: no change streams
	// and no transactions, for tests of what is refused there.
	Standalone bool
	// Own demands a server of one's own, for tests that stop it or change
	// settings of the whole cluster.
	Own bool
	// Dir is the folder below which the temporary data folder is made. Empty
	// means memory, where there is plenty of it, so that servers of tests do not
	// wait for a disk; otherwise os.TempDir(). Measurements give a folder.
	Dir string
	// Log receives a line for each step worth telling; nil discards them.
	Log io.Writer
}

// TLS names files, in PEM.
type TLS struct {
	CertificateKey string // of the nodes, for 127.0.0.1
	CA             string // of clients' certificates
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
	case o.Shards < 0 || o.Shards > 8:
		return fmt.Errorf("shards is %d, must be 0 to 8", o.Shards)
	case o.Shards > 0 && o.Standalone:
		return errors.New("a standalone has no shards")
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
	case o.Shards > 0:
		return fmt.Sprintf("a sharded cluster of %d shards is needed", o.Shards)
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
