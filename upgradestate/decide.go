package upgradestate

import (
	"fmt"
	"slices"
	"strings"
)

// Role is how a binary may use a database.
type Role string

const (
	Serve          Role = "serve"            // serve the current version; there is nothing to sync with
	ServeSync      Role = "serve_sync"       // serve the current version and sync to another known one
	GoOn           Role = "go_on"            // take part in a running upgrade between two known versions
	ServeUntilFlip Role = "serve_until_flip" // a server serves until the flip; a controller refuses
	Refuse         Role = "refuse"           // do not touch the database
	CreateFirst    Role = "create_first"     // there is no Deployment yet: a controller creates it, servers wait
)

// Serves reports whether a server with this role may serve clients.
func (r Role) Serves() bool {
	switch r {
	case Serve, ServeSync, GoOn, ServeUntilFlip, CreateFirst:
		return true
	case Refuse:
		return false
	default:
		return false
	}
}

// Controls reports whether a controller with this role may run.
func (r Role) Controls() bool {
	switch r {
	case Serve, ServeSync, GoOn, CreateFirst:
		return true
	case ServeUntilFlip, Refuse:
		return false
	default:
		return false
	}
}

// Decision is the result of Decide. Reason explains it to an operator.
type Decision struct {
	Role   Role
	Reason string
}

// Decide returns how a binary may use a database. known are the versions that the binary knows,
// oldest first. d is nil if there is no Deployment yet.
func Decide(known []string, d *Deployment) Decision {
	f := factsOf(known, d)
	for _, r := range decisions {
		if r.when(f) {
			return Decision{Role: r.role, Reason: r.reason(f)}
		}
	}
	return Decision{Role: Refuse, Reason: "no rule fits this database: update this binary"}
}

// facts are the inputs of a decision.
type facts struct {
	known         []string
	record        bool
	format        int
	current       string
	currentKnown  bool
	target        string // of the running upgrade
	targetKnown   bool
	later         string // the next known version after the current one, not another place of it
	kept          string // an earlier known version with a namespace in the record
	place         string // another known place of the current version
	unknownOnward bool   // the record has a namespace of an unknown version
}

func factsOf(known []string, d *Deployment) facts {
	f := facts{known: known}
	if d == nil {
		return f
	}
	f.record, f.format, f.current = true, d.Format, d.CurrentVersion
	at := slices.Index(known, d.CurrentVersion)
	f.currentKnown = at >= 0
	if d.Upgrade != nil {
		f.target = d.Upgrade.TargetVersion
		f.targetKnown = slices.Contains(known, f.target)
	}
	for i, v := range known {
		switch {
		case at < 0 || i == at || Retired(*d, v):
		// Another place of the current version is neither later nor earlier.
		case APIVersion(v) == APIVersion(d.CurrentVersion):
			f.place = v
		case i > at && f.later == "":
			f.later = v
		}
	}
	// Without a namespace there is nothing to roll back to.
	for _, ns := range d.Namespaces {
		switch i := slices.Index(known, ns.Version); {
		case i < 0:
			f.unknownOnward = true
		case i < at && APIVersion(ns.Version) != APIVersion(d.CurrentVersion) && !Retired(*d, ns.Version):
			f.kept = ns.Version
		}
	}
	return f
}

func (f facts) list() string { return strings.Join(f.known, ", ") }

// decision is a row of the table. The first matching row decides.
type decision struct {
	name   string
	when   func(facts) bool
	role   Role
	reason func(facts) string
}

// decisions is ordered: each row assumes that the rows above do not match.
var decisions = []decision{
	{
		"no version configured",
		func(f facts) bool { return len(f.known) == 0 },
		Refuse,
		func(facts) string { return "no version is configured: configure at least one" },
	},
	{
		"no deployment",
		func(f facts) bool { return !f.record },
		CreateFirst,
		func(f facts) string {
			return "there is no deployment yet: a controller creates it at the version that has data, or at the newest version that all servers know"
		},
	},
	{
		"newer format",
		func(f facts) bool { return f.format > Format },
		Refuse,
		func(f facts) string {
			return fmt.Sprintf("the deployment has record format %d, this binary knows %d: use a newer binary", f.format, Format)
		},
	},
	{
		"no format",
		func(f facts) bool { return f.format < 1 },
		Refuse,
		func(f facts) string { return fmt.Sprintf("record format %d: this is no deployment", f.format) },
	},
	{
		"current version unknown",
		func(f facts) bool { return !f.currentKnown },
		Refuse,
		func(f facts) string {
			return fmt.Sprintf("the database is at version %s, this binary knows only %s: use one that knows %s",
				f.current, f.list(), f.current)
		},
	},
	{
		"upgrade to an unknown version",
		func(f facts) bool { return f.target != "" && !f.targetKnown },
		ServeUntilFlip,
		func(f facts) string {
			return fmt.Sprintf("an upgrade from %s to %s is running and this binary knows only %s: a server with this binary stops serving at the flip, so replace it before; a controller takes no part",
				f.current, f.target, f.list())
		},
	},
	{
		"upgrade between known versions",
		func(f facts) bool { return f.target != "" },
		GoOn,
		func(f facts) string { return fmt.Sprintf("an upgrade from %s to %s is running", f.current, f.target) },
	},
	{
		"later version known",
		func(f facts) bool { return f.later != "" },
		ServeSync,
		func(f facts) string {
			return fmt.Sprintf("the database is at %s, %s can be prepared", f.current, f.later)
		},
	},
	{
		"earlier version kept",
		func(f facts) bool { return f.kept != "" },
		ServeSync,
		func(f facts) string {
			return fmt.Sprintf("the database is at %s, %s is kept in sync for a rollback", f.current, f.kept)
		},
	},
	{
		"another place known",
		func(f facts) bool { return f.place != "" },
		ServeSync,
		func(f facts) string {
			return fmt.Sprintf("the database is at %s, and can be moved to %s", f.current, f.place)
		},
	},
	{
		"current version, unknown others",
		func(f facts) bool { return f.unknownOnward },
		Serve,
		func(f facts) string {
			return fmt.Sprintf("the database is at %s; it also has a version that this binary (%s) does not know and leaves alone",
				f.current, f.list())
		},
	},
	{
		"current version only",
		func(facts) bool { return true },
		Serve,
		func(f facts) string { return fmt.Sprintf("the database is at %s", f.current) },
	},
}
