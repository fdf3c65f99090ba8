package mongostore

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Fences takes collections away from their writers and gives them back. It also keeps the marks of
// ownership, and finds what a switch has to wait for.
type Fences struct {
	*Conn
	*Owners
	*validators
	*indexBuilds
	*shards
	*probes

	// Requests of many kinds at once are combined into few commands.
	gates  rounds[record.Fence, struct{}]       // creates gates
	passes rounds[record.Fence, struct{}]       // passes gates
	moves  rounds[viewMove, struct{}]           // renames collections under fences' views
	closed rounds[string, struct{}]             // drops gates, by the fence's To
	proofs rounds[identified, map[string]error] // why collections do not have their names
	strays rounds[string, []strayNote]          // collections created under fenced names
	// Lifts the write block of the cluster.
	unblocks rounds[struct{}, struct{}]

	// probed is the reason why the server cannot rename a collection and create a view in one step,
	// nil: it can.
	probed recent[*record.UnsupportedError]
}

// validators are the fences by validators. They also read and change the validators of collections
// for others.
type validators struct {
	*Conn
	*indexBuilds
}

// indexBuilds are the index builds that prevent a rename.
type indexBuilds struct {
	*Conn
	*shards
	looks rounds[string, map[string]error] // index builds that prevent a rename
}

// shards knows how collections of a sharded cluster are distributed.
type shards struct {
	*Conn
	sharded rounds[string, map[string]bson.Raw] // shard keys
}

// probes try on scratch collections what the server can do.
type probes struct {
	*Conn
	checks rounds[struct{}, bool] // whether the server checks collection UUIDs
	// tested is the reason why the server does not refuse other collection UUIDs, nil: it does.
	tested recent[*record.UnsupportedError]
}

func newFences(c *Conn) *Fences {
	s := &shards{Conn: c}
	s.sharded.do = s.shardKeysThere
	b := &indexBuilds{Conn: c, shards: s}
	b.looks.do = b.lookForBuilds
	p := &probes{Conn: c}
	p.checks.do = p.checksUUIDs
	v := &validators{Conn: c, indexBuilds: b}
	n := &Fences{Conn: c, Owners: &Owners{Conn: c, validators: v}, validators: v, indexBuilds: b, shards: s, probes: p}
	n.gates.do, n.passes.do, n.closed.do = n.makeGates, n.throughGates, n.dropGates
	n.gates.most, n.passes.most, n.closed.most = atOnce, atOnce, atOnce
	n.moves.do, n.moves.most = n.moveUnderViews, atOnce
	n.proofs.do, n.proofs.most = n.proveNames, provenAtOnce
	n.strays.do = n.notedStrays
	n.unblocks.do = n.liftWriteBlock
	return n
}
