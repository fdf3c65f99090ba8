package upgradestate

import (
	"fmt"
	"slices"
	"strings"
)

// CheckServers returns an error if one of the registered servers or applications could not follow
// an upgrade to target. The upgrade then does not begin. Safety does not depend on this check,
// since the fence stops a server that does not follow.
func CheckServers(servers []ServerState, target string) error {
	if bad := oldServers(servers, target); len(bad) > 0 {
		return refused("begin-upgrade: servers too old for %s: %s; update or stop them", target, strings.Join(bad, "; "))
	}
	return nil
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
