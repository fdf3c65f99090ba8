package databases

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/rehearsal"
	"dbcontroller.dev/internal/store/mongostore"
)

// Part is a kind of process with its own database login.
type Part = mongostore.Part

// Application is the part of an existing application, which uses fixed-name kinds directly.
const Application = mongostore.Application

// Parts lists all parts.
var Parts = []Part{mongostore.Controller, mongostore.Server, mongostore.Application}

// Roles returns a mongosh script that creates the least role for a part. Comments in it hold the
// commands for other backends. kinds lists the fixed-name kinds of each API version. scratch adds
// the privileges that a controller needs for rehearsals.
func Roles(dbs []config.DB, kinds map[string][]string, part Part, scratch bool) (string, error) {
	var backends []string
	of := map[string][]config.DB{}
	for _, db := range dbs {
		if !slices.Contains(backends, db.Backend) {
			backends = append(backends, db.Backend)
		}
		of[db.Backend] = append(of[db.Backend], db)
	}
	var b strings.Builder
	for _, name := range backends {
		text, err := engines[name].roles(of[name], kinds, part, scratch && part == mongostore.Controller)
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// Why lists the privileges of a part's role and the reason for each.
func Why(part Part) string {
	where := map[mongostore.Scope]string{
		mongostore.OfDatabase: "databases", mongostore.OfKinds: "its collections", mongostore.OfScratch: "rehearsal", mongostore.OfCluster: "cluster",
		mongostore.OfOplog: "local.oplog.rs", mongostore.OfConfig: "config",
	}
	var b strings.Builder
	for _, p := range mongostore.Privileges() {
		if !slices.Contains(p.For, part) {
			continue
		}
		text := p.Why
		if p.Without != "" {
			text += "; without it: " + p.Without
		}
		fmt.Fprintf(&b, "%-25s %-15s %s\n", p.Action, where[p.Scope], text)
	}
	return b.String()
}

func roleName(part Part) string { return "dbcontroller-" + string(part) }

// roles returns one role for each cluster. Databases with the same hosts count as one cluster.
func (mongoEngine) roles(dbs []config.DB, kinds map[string][]string, part Part, scratch bool) (string, error) {
	at := map[string]*mongostore.On{}
	var clusters []string
	for _, db := range dbs {
		hosts := db.Hosts()
		// An application has no business in a database without its kinds.
		if part == mongostore.Application && len(kinds[db.APIVersion]) == 0 {
			continue
		}
		if !slices.Contains(clusters, hosts) {
			clusters, at[hosts] = append(clusters, hosts), &mongostore.On{Kinds: map[string][]string{}}
		}
		on := at[hosts]
		if slices.Contains(on.Databases, db.Database) {
			// Two versions may share a database, which the role lists once.
			continue
		}
		on.Databases = append(on.Databases, db.Database)
		on.Kinds[db.Database] = kinds[db.APIVersion]
		if scratch {
			on.Scratch = append(on.Scratch, rehearsal.ScratchName(db.Database))
		}
	}
	if len(clusters) == 0 {
		return "// In MongoDB no kind is an application's: it reads and writes through a server, and needs no login.\n", nil
	}
	var b strings.Builder
	for _, hosts := range clusters {
		role := mongostore.RoleFor(part, roleName(part), *at[hosts])
		text, err := bson.MarshalExtJSONIndent(role, false, false, "", "  ")
		if err != nil {
			return "", fmt.Errorf("role of %s: %w", hosts, err)
		}
		fmt.Fprintf(&b, "// On %s:\ndb.getSiblingDB(\"admin\").runCommand(%s)\n", hosts, text)
	}
	return b.String(), nil
}

// roles returns etcdctl commands. Applications get none: they use the service and not etcd.
func (etcdEngine) roles(dbs []config.DB, _ map[string][]string, part Part, scratch bool) (string, error) {
	if part == mongostore.Application {
		return "", nil
	}
	var b strings.Builder
	for _, db := range dbs {
		prefixes := []string{db.Database}
		if scratch {
			prefixes = append(prefixes, rehearsal.ScratchName(db.Database))
		}
		fmt.Fprintf(&b, "// On etcd at %s, in a shell:\n//   etcdctl role add %s\n", db.Hosts(), roleName(part))
		for _, prefix := range prefixes {
			fmt.Fprintf(&b, "//   etcdctl role grant-permission %s --prefix=true readwrite %s/\n", roleName(part), prefix)
		}
	}
	return b.String(), nil
}
