package localmongo

import (
	"errors"
	"fmt"
	"io"
)

// Options describes the wanted server. The zero value is one small replica set node, which a
// connection string can also provide.
type Options struct {
	// Nodes is the number of replica set members: 1 (the default) to 7, the most that can vote.
	Nodes int
	// Shards is the number of shards of a sharded cluster; 0 means no sharding. Each shard is a
	// replica set of Nodes members. The cluster also has a config server with one member, and the
	// mongoses, which URI names. The balancer is off, so that chunks stay where the caller puts them.
	Shards int
	// Routers is the number of mongoses of a sharded cluster; 0 means 1.
	Routers int
	// CacheGB is the storage cache of each node in GB. 0 means 0.25, mongod's minimum.
	CacheGB float64
	// OplogMB is the size of each node's oplog in MB; 0 means 2048. A small oplog soon drops old
	// entries. A standalone ignores it.
	OplogMB int
	// CheckpointEvery is the interval between checkpoints in seconds; 0 means mongod's 60. The
	// oplog keeps all entries newer than the last checkpoint, whatever its size.
	CheckpointEvery int
	// Auth enables access control. URI then contains a user with role root.
	Auth bool
	// TLS makes nodes accept TLS next to plain connections, with these files. Nil means plain
	// connections only. Clients may present a certificate. Sharded clusters ignore it.
	TLS *TLS
	// TestCommands enables configureFailPoint and similar commands, for tests that make the server
	// itself fail.
	TestCommands bool
	// Standalone starts a single node without a replica set. It has no change streams and no
	// transactions, for tests of the refusals there.
	Standalone bool
	// Own requests a private server, for tests that stop it or change cluster-wide settings.
	Own bool
	// Dir is the parent of the temporary data folder. Empty means memory if there is plenty, so
	// that test servers do not wait for a disk, else os.TempDir(). Measurements set a folder.
	Dir string
	// Log receives one line for each important step; nil discards them.
	Log io.Writer
}

// TLS names PEM files.
type TLS struct {
	CertificateKey string // of the nodes, valid for 127.0.0.1
	CA             string // that signs clients' certificates
}

func (o Options) withDefaults() Options {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Routers == 0 && o.Shards > 0 {
		o.Routers = 1
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
	case o.Routers < 0 || o.Routers > 8:
		return fmt.Errorf("routers is %d, must be 0 to 8", o.Routers)
	case o.Routers > 0 && o.Shards == 0:
		return errors.New("only a sharded cluster has routers")
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

// private returns the reason why a shared server cannot serve, or "".
func (o Options) private() string {
	if o.Own {
		return "a server of one's own is needed"
	}
	return o.special()
}

// special returns the first demand beyond one plain replica set node, or "". Settings that only
// tune a server do not count.
func (o Options) special() string {
	switch {
	case o.Shards > 0:
		return fmt.Sprintf("a sharded cluster of %d shards is needed", o.Shards)
	case o.Nodes > 1:
		return fmt.Sprintf("%d nodes are needed", o.Nodes)
	case o.Auth:
		return "access control is needed"
	case o.TLS != nil:
		return "TLS is needed"
	case o.CheckpointEvery > 0:
		return "its own interval of checkpoints is needed"
	case o.TestCommands:
		return "test commands are needed"
	case o.Standalone:
		return "a standalone is needed"
	}
	return ""
}
