package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
)

// Part is a kind of process that uses databases.
type Part string

// The parts. Application is an application that uses fixed-name kinds directly. Its list shows that
// it needs only to read and write.
const (
	Controller  Part = "controller"
	Server      Part = "server"
	Application Part = "application"
)

// Scope is the set of resources that a privilege covers.
type Scope int

// The scopes.
const (
	OfDatabase Scope = iota // all collections of a version's database
	OfKinds                 // its fixed-name kinds, under the names that applications know
	OfScratch               // all collections of its scratch database, for 'rehearse'
	OfCluster
	OfOplog  // local.oplog.rs
	OfConfig // the config database of a sharded cluster
)

// Privilege is one action that parts need, and the reason.
type Privilege struct {
	Action string
	Scope  Scope
	For    []Part
	Why    string
	// Without is the effect of a missing optional privilege. It is empty for a required one.
	Without string
}

// actionMoveChunk is the action that stops and allows moves of chunks.
const actionMoveChunk = "moveChunk"

var (
	ourParts     = []Part{Controller, Server}
	controllers  = []Part{Controller}
	applications = []Part{Application}
)

// Privileges returns all privileges that the commands of this package need on MongoDB. The fence
// class view is the exception. It needs applyOps, which MongoDB permits only with anyAction on
// anyResource, so only a user with all privileges has it.
func Privileges() []Privilege {
	return slices.Clone([]Privilege{
		{"find", OfDatabase, ourParts, "reads records", ""},
		{"insert", OfDatabase, ourParts, "writes records", ""},
		{"update", OfDatabase, ourParts, "writes records", ""},
		{"remove", OfDatabase, ourParts, "deletes records", ""},
		{"find", OfKinds, applications, "reads its documents, also through the view of a fence", ""},
		{"insert", OfKinds, applications, "writes them", ""},
		{"update", OfKinds, applications, "writes them", ""},
		{"remove", OfKinds, applications, "deletes them", ""},
		{"listCollections", OfDatabase, applications, "records the collections that it uses in a file: reads names and options, no documents", "it cannot start without a reachable controller"},
		{"changeStream", OfDatabase, ourParts, "follows changes: a controller to sync, a server to watch", ""},
		{"listCollections", OfDatabase, ourParts, "finds collections and identifies them", ""},
		{"listIndexes", OfDatabase, controllers, "carries indexes over", ""},
		{"collStats", OfDatabase, controllers, "counts and sizes, to plan the copy", ""},
		{"dbStats", OfDatabase, controllers, "free disk space, in plan", ""},
		{"createCollection", OfDatabase, controllers, "creates the collections of the target", ""},
		{"createIndex", OfDatabase, controllers, "makes their indexes", ""},
		{"dropIndex", OfDatabase, controllers, "drops indexes whose running builds block a fence", ""},
		{"collMod", OfDatabase, controllers, "validators as fences and against writes under a former key, TTL indexes, options", ""},
		{"bypassDocumentValidation", OfDatabase, controllers, "writes behind a validator fence, in the rollback", ""},
		{"renameCollectionSameDB", OfDatabase, controllers, "fences and switches", ""},
		{actionMoveChunk, OfDatabase, controllers, "stops moves of chunks while a switch is near, on a sharded cluster", "the switch waits for a running move, for seconds"},
		{"dropCollection", OfDatabase, controllers, "drops scratch collections and completed versions", ""},
		{"dropDatabase", OfScratch, controllers, "drops the scratch database of rehearse", "no rehearse"},
		{"inprog", OfCluster, controllers, "finds open transactions that delay a fence", "a fence waits for open transactions, up to a minute"},
		{"killAnySession", OfCluster, controllers, "ends them", "a fence waits for open transactions, up to a minute"},
		{"serverStatus", OfCluster, controllers, "measures the load, so that copying yields to clients", "copy.throttle: off"},
		{"replSetGetStatus", OfCluster, controllers, "measures the replication lag", "copy.throttle: off"},
		{"hostInfo", OfCluster, controllers, "reads the number of processors", "copy.throttle: off"},
		{"getParameter", OfCluster, controllers, "the feature compatibility version, in plan", "not known in plan"},
		{"replSetGetConfig", OfCluster, ourParts, "identifies the cluster", "only the mark in the database identifies it"},
		{"find", OfOplog, controllers, "how long changes are kept, in plan", "not known in plan"},
		{"collStats", OfOplog, controllers, "how long changes are kept, in plan", "not known in plan"},
		{"find", OfConfig, ourParts, "how collections are sharded, and the identity of a sharded cluster", "sharded clusters are refused"},
		{"appendOplogNote", OfCluster, controllers, "makes changes of a sharded cluster arrive within 100 ms", "they come later"},
	})
}

// On is the set of databases and collections for a role.
type On struct {
	Databases []string
	// Kinds holds, by database, the collections of fixed-name kinds under the names that
	// applications know. A hidden, set-aside or renamed collection has another name, which takes it
	// out of the role.
	Kinds map[string][]string
	// Scratch holds the databases for rehearsals. It is empty for a role that does not rehearse.
	Scratch []string
}

// RoleFor returns the createRole command for a role with the privileges of a part.
func RoleFor(part Part, name string, on On) bson.D {
	type place struct {
		db, coll string
		cluster  bool
	}
	actions := map[place][]string{}
	var order []place
	add := func(p place, action string) {
		if _, ok := actions[p]; !ok {
			order = append(order, p)
		}
		// Several privileges with the same action make one entry.
		if !slices.Contains(actions[p], action) {
			actions[p] = append(actions[p], action)
		}
	}
	for _, p := range Privileges() {
		if !slices.Contains(p.For, part) {
			continue
		}
		switch p.Scope {
		case OfDatabase:
			for _, db := range on.Databases {
				add(place{db: db}, p.Action)
			}
			// A rehearsal does in its scratch database what a controller does in the real one.
			if part == Controller {
				for _, db := range on.Scratch {
					add(place{db: db}, p.Action)
				}
			}
		case OfKinds:
			for _, db := range on.Databases {
				for _, coll := range on.Kinds[db] {
					add(place{db: db, coll: coll}, p.Action)
				}
			}
		case OfScratch:
			for _, db := range on.Scratch {
				add(place{db: db}, p.Action)
			}
		case OfCluster:
			add(place{cluster: true}, p.Action)
		case OfOplog:
			add(place{db: "local", coll: "oplog.rs"}, p.Action)
		case OfConfig:
			for _, coll := range []string{"collections", "version", "chunks", "shards"} {
				add(place{db: "config", coll: coll}, p.Action)
			}
		}
	}
	privileges := bson.A{}
	for _, p := range order {
		resource := bson.D{{Key: "db", Value: p.db}, {Key: "collection", Value: p.coll}}
		if p.cluster {
			resource = bson.D{{Key: "cluster", Value: true}}
		}
		privileges = append(privileges, bson.D{{Key: "resource", Value: resource}, {Key: "actions", Value: actions[p]}})
	}
	return bson.D{{Key: "createRole", Value: name}, {Key: "privileges", Value: privileges}, {Key: "roles", Value: bson.A{}}}
}

// lacking returns the actions on the database that a controller needs and the user has for no
// collection of it. It covers the privileges that Check does not try because only a later stage
// needs them. It is empty if the server requires no login.
func (n *Namespace) lacking(ctx context.Context) ([]string, error) {
	var status struct {
		Info struct {
			Users      []bson.Raw `bson:"authenticatedUsers"`
			Privileges []struct {
				Resource struct {
					DB  *string `bson:"db"`
					Any bool    `bson:"anyResource"`
				} `bson:"resource"`
				Actions []string `bson:"actions"`
			} `bson:"authenticatedUserPrivileges"`
		} `bson:"authInfo"`
	}
	err := conn.Decode(n.Admin().RunCommand(ctx, bson.D{{Key: "connectionStatus", Value: 1}, {Key: "showPrivileges", Value: true}}), &status)
	// Without access control there are no users, and every command is allowed.
	if err != nil || len(status.Info.Users) == 0 {
		return nil, err
	}
	may := map[string]bool{}
	for _, p := range status.Info.Privileges {
		// A privilege for any collection of the database counts.
		if p.Resource.Any || p.Resource.DB != nil && (*p.Resource.DB == "" || *p.Resource.DB == n.Name) {
			for _, a := range p.Actions {
				may[a] = true
			}
		}
	}
	var lacks []string
	for _, p := range Privileges() {
		if p.Scope == OfDatabase && p.Without == "" && !may[p.Action] && !may["anyAction"] {
			lacks = append(lacks, p.Action)
		}
	}
	return lacks, nil
}
