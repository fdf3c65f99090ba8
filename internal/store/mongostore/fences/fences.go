package fences

import (
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Fences takes collections away from their writers and gives them back. It also keeps the marks of
// ownership, and finds what a switch has to wait for.
type Fences struct {
	*conn.Conn
	*Owners
	*validators
	*indexBuilds
	*shards
	*probes

	// Requests of many kinds at once are combined into few commands.
	gates  conn.Rounds[record.Fence, struct{}] // creates gates
	passes conn.Rounds[record.Fence, struct{}] // passes gates
	moves  conn.Rounds[viewMove, struct{}]     // renames collections under fences' views
	closed conn.Rounds[string, struct{}]       // drops gates, by the fence's To
	proofs conn.Rounds[proof, proved]          // marks fences, and proves names
	strays conn.Rounds[string, []strayNote]    // collections created under fenced names
	// Lifts the write block of the cluster.
	unblocks conn.Rounds[struct{}, struct{}]

	// settled is, by view, the collection that it shows once the note of the move there is gone.
	settled sync.Map

	// noBulkWrite remembers that the server has no bulkWrite, until the process ends.
	noBulkWrite atomic.Bool

	// probed is the reason why the server cannot rename a collection and create a view in one step,
	// nil: it can.
	probed conn.Recent[*record.UnsupportedError]
}

// validators are the fences by validators. They also read and change the validators of collections
// for others.
type validators struct {
	*conn.Conn
	*indexBuilds
}

// indexBuilds are the index builds that prevent a rename.
type indexBuilds struct {
	*conn.Conn
	*shards
	looks conn.Rounds[string, map[string]error] // index builds that prevent a rename
}

// shards knows how collections of a sharded cluster are distributed.
type shards struct {
	*conn.Conn
	sharded conn.Rounds[string, map[string]bson.Raw] // shard keys
}

// probes try on scratch collections what the server can do.
type probes struct {
	*conn.Conn
	Checks conn.Rounds[struct{}, bool] // whether the server checks collection UUIDs
	// tested is the reason why the server does not refuse other collection UUIDs, nil: it does.
	tested conn.Recent[*record.UnsupportedError]
}

// New returns the fences of a connection.
func New(c *conn.Conn) *Fences {
	s := &shards{Conn: c}
	s.sharded.Do = s.shardKeysThere
	b := &indexBuilds{Conn: c, shards: s}
	b.looks.Do = b.lookForBuilds
	p := &probes{Conn: c}
	p.Checks.Do = p.checksUUIDs
	v := &validators{Conn: c, indexBuilds: b}
	n := &Fences{Conn: c, Owners: &Owners{Conn: c, validators: v}, validators: v, indexBuilds: b, shards: s, probes: p}
	n.gates.Do, n.passes.Do, n.closed.Do = n.makeGates, n.throughGates, n.dropGates
	n.gates.Most, n.passes.Most, n.closed.Most = atOnce, atOnce, atOnce
	n.moves.Do, n.moves.Most = n.moveUnderViews, atOnce
	n.proofs.Do, n.proofs.Most = n.proveAll, provenAtOnce
	n.strays.Do = n.notedStrays
	n.strays.Patience, b.looks.Patience, p.Checks.Patience = conn.Looking, conn.Looking, conn.Looking
	n.unblocks.Do = n.liftWriteBlock
	return n
}
