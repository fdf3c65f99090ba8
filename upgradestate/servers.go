package upgradestate

import (
	"fmt"
	"slices"
	"strings"
)

// CheckServers refuses to begin an upgrade to target while a server or application that
// could not follow it is registered. Nothing of this is needed for safety: the fence
// refuses whoever does not follow.
func CheckServers(servers []ServerState, target string) error {
	var bad []string
	for _, s := range servers {
		switch {
		case s.Protocol < MinProtocol:
			bad = append(bad, fmt.Sprintf("%s speaks protocol %d, %d is needed", s.ID, s.Protocol, MinProtocol))
		case !s.Client && !slices.Contains(s.Versions, target):
			bad = append(bad, fmt.Sprintf("%s knows only %s", s.ID, strings.Join(s.Versions, ", ")))
		}
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		return refused("begin-upgrade: servers too old for %s: %s; update or stop them", target, strings.Join(bad, "; "))
	}
	return nil
}
