package upgradestate

import (
	"fmt"
	"slices"
	"strings"
)

// Found is the state of a version's database before there is a Deployment.
type Found struct {
	Version string
	// Disabled means that the version is not kept in sync. A deployment begins there only if it has
	// data.
	Disabled bool
	// Holds names the applications' collections with documents. Empty names those that exist
	// without documents.
	Holds, Empty []string
}

// StartAt moves a deployment without any history to another first version. The first choice was a
// mistake, for example because the configuration named a missing collection.
type StartAt struct{ Version string }

func (StartAt) event() {}

func (d *Deployment) startAt(e StartAt) error {
	switch {
	case len(d.Namespaces) > 0 || d.Upgrade != nil || d.LastSwitch != nil || len(d.Retired) > 0:
		return refused("start at %s: %s has been in use, at version %s", e.Version, d.Name, d.CurrentVersion)
	case e.Version == "":
		return refused("start: no version is given")
	case e.Version == d.CurrentVersion:
		return nil
	}
	d.addEntry(Entry{What: "start-at", From: d.CurrentVersion, To: e.Version})
	d.CurrentVersion = e.Version
	return nil
}

// Initial decides the first version of a deployment among the configured ones, oldest first. It
// selects, in this order:
//
//   - configured, if it is not empty;
//   - the version with applications' documents;
//   - the version with applications' collections;
//   - the newest version that every registered server knows, since a new service has no use for old
//     ones. Of several places of that version it selects the first.
//
// Initial returns an error if several versions have documents, since nothing shows which are
// current. After a wrong choice an upgrade would replace the others.
func Initial(configured string, found []Found, servers []ServerState) (string, error) {
	if configured != "" {
		return configured, nil
	}
	if len(found) == 0 {
		return "", refused("create: no version is configured: configure at least one")
	}
	var holding, having []Found
	for _, f := range found {
		if len(f.Holds) > 0 {
			holding = append(holding, f)
		}
		if len(f.Holds)+len(f.Empty) > 0 {
			having = append(having, f)
		}
	}
	switch {
	case len(holding) == 1:
		return holding[0].Version, nil
	// A wrong choice would let an upgrade replace live data.
	case len(holding) > 1:
		var what []string
		for _, f := range holding {
			what = append(what, fmt.Sprintf("%s (%s)", f.Version, strings.Join(f.Holds, ", ")))
		}
		return "", refused("create: the databases of several versions hold documents, %s, and nothing shows which version is current: "+
			"set initialVersion in the configuration; rename the collections that have the other versions' names, or give those versions other databases",
			strings.Join(what, " and "))
	// Empty collections show the version that the application uses.
	case len(having) == 1:
		return having[0].Version, nil
	}
	// The newest first, so that a new service starts without an upgrade.
	for i, f := range slices.Backward(found) {
		// A server that does not know the version could not serve.
		if f.Disabled || len(oldServers(servers, f.Version)) > 0 {
			continue
		}
		api := APIVersion(f.Version)
		first := slices.IndexFunc(found[:i+1], func(o Found) bool { return APIVersion(o.Version) == api && !o.Disabled })
		return found[first].Version, nil
	}
	return "", refused("create: no version is known to every server: %s", strings.Join(oldServers(servers, found[len(found)-1].Version), "; "))
}

// CheckServers returns an error if one of the registered servers or applications could not follow
// an upgrade to target. The upgrade then does not begin. Safety does not depend on this check,
// since the fence stops a server that does not follow.
func CheckServers(servers []ServerState, target string) error {
	if bad := oldServers(servers, target); len(bad) > 0 {
		return refused("begin-upgrade: servers too old for %s: %s; update or stop them", target, strings.Join(bad, "; "))
	}
	return nil
}

// PreparingServers describes the servers that still prepare to serve target, or returns "". at is the
// first of them.
func PreparingServers(servers []ServerState, target string) (text, at string) {
	var all []string
	for _, s := range servers {
		if what := s.Prepares[target]; what != "" {
			if at == "" {
				at = s.ID
			}
			all = append(all, fmt.Sprintf("%s prepares its %s", s.ID, what))
		}
	}
	return strings.Join(all, ", "), at
}

// LateServers describes those servers that could not follow a running upgrade to target, or returns
// "". CheckServers passed at the beginning, so they registered later. They would have nothing to
// serve after the flip.
func LateServers(servers []ServerState, target string) string {
	bad := oldServers(servers, target)
	if len(bad) == 0 {
		return ""
	}
	return fmt.Sprintf("servers that are too old for %s and started after the upgrade began: %s; update or stop them", target, strings.Join(bad, "; "))
}

// oldServers returns, for each server that cannot follow to a version, the reason.
func oldServers(servers []ServerState, target string) []string {
	var bad []string
	for _, s := range servers {
		switch {
		// It would not hold its writes, so clients would see errors during the switch.
		case s.Protocol < MinProtocol:
			bad = append(bad, fmt.Sprintf("%s speaks protocol %d, but %d is needed", s.ID, s.Protocol, MinProtocol))
		// Applications do not list versions. They follow the Deployment.
		case !s.Client && !slices.Contains(s.Versions, target):
			bad = append(bad, fmt.Sprintf("%s knows only %s", s.ID, strings.Join(s.Versions, ", ")))
		}
	}
	slices.Sort(bad)
	return bad
}
