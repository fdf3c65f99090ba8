package controller

import (
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/upgradestate"
)

// TestWayBack: where the database of the version that is served is lost, each message names the
// command that helps, and none where only a backup does.
func TestWayBack(t *testing.T) {
	t.Parallel()
	s := Settings{File: "shop.yaml"}
	lost := errors.New("database of v2: it is empty or the wrong database")
	for name, c := range map[string]struct {
		last    *upgradestate.Switch
		retired []string
		want    string
	}{
		"before any switch":     {want: ""},
		"after a switch":        {last: &upgradestate.Switch{From: "v1", To: "v2"}, want: "'dbcontroller rollback --to-snapshot --offline --new-database-lost --config shop.yaml', which returns to v1"},
		"after a rollback":      {last: &upgradestate.Switch{From: "v1", To: "v2", Back: true}, want: "'dbcontroller recover --config shop.yaml --current v1'"},
		"the other is retired":  {last: &upgradestate.Switch{From: "v1", To: "v2"}, retired: []string{"v1"}, want: ""},
		"of an earlier version": {last: &upgradestate.Switch{From: "v0", To: "v1"}, want: ""},
	} {
		err := s.withWayBack(upgradestate.Deployment{CurrentVersion: "v2", LastSwitch: c.last, Retired: c.retired}, lost)
		if !errors.Is(err, lost) || c.want == "" && err.Error() != lost.Error() || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
