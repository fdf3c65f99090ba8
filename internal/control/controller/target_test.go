package controller

import (
	"strings"
	"testing"

	"dbcontroller.dev/upgradestate"
)

// TestReachable: what is offered, and which of it is synced to when the record has it, follow
// from the configuration and from the latest switch.
func TestReachable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		dbs           string // in order; ! marks what is disabled
		current, last string // version; where the latest switch came from
		snapshot      bool
		upgrade       string // target of a running one
		retired       string
		offered       string
		precopied     string
		wants         string
	}{
		{name: "before any switch", dbs: "v1 v2", current: "v1", offered: "v2", precopied: "v2", wants: "v2"},
		{name: "each later version", dbs: "v1 v2 v3", current: "v1", offered: "v2 v3", precopied: "v2", wants: "v2"},
		{name: "a disabled version is passed over", dbs: "v1 v2! v3", current: "v1", offered: "v3", precopied: "v3", wants: "v3"},
		{name: "a retired version is passed over", dbs: "v1 v2 v3", current: "v1", retired: "v2", offered: "v3", precopied: "v3", wants: "v3"},
		{name: "the rollback", dbs: "v1 v2", current: "v2", last: "v1", offered: "v1", wants: "v1"},
		{name: "no rollback", dbs: "v1! v2", current: "v2", last: "v1"},
		{name: "it was retired", dbs: "v1 v2", current: "v2", last: "v1", retired: "v1"},
		{name: "on besides back", dbs: "v1 v2 v3", current: "v2", last: "v1", offered: "v1 v3", precopied: "v3", wants: "v1"},
		{name: "on instead of back", dbs: "v1! v2 v3", current: "v2", last: "v1", offered: "v3", precopied: "v3", wants: "v3"},
		{name: "over a version, and back", dbs: "v1 v2 v3", current: "v3", last: "v1", offered: "v1", wants: "v1"},
		{name: "earlier than the rollback", dbs: "v1 v2 v3", current: "v3", last: "v2", offered: "v2", wants: "v2"},
		{name: "forward again", dbs: "v1 v2", current: "v1", last: "v2", offered: "v2", wants: "v2"},
		{name: "forward again over one", dbs: "v1 v2 v3", current: "v1", last: "v3", offered: "v2 v3", precopied: "v2", wants: "v3"},
		{name: "not forward again", dbs: "v1 v2! v3", current: "v1", last: "v2", offered: "v3"},
		{name: "after a snapshot", dbs: "v1 v2", current: "v1", last: "v2", snapshot: true, offered: "v2"},
		{name: "an upgrade decides", dbs: "v1 v2! v3", current: "v1", last: "v2", upgrade: "v2", offered: "v3", wants: "v2"},
		{name: "an upgrade to elsewhere", dbs: "v1 v2", current: "v1", upgrade: "v9", offered: "v2", precopied: "v2"},
		{name: "a place is moved to by command", dbs: "v1 v1@b", current: "v1", offered: "v1@b"},
		{name: "and back to, too", dbs: "v1 v1@b v2", current: "v1@b", last: "v2", offered: "v1 v2", wants: "v2"},
		{name: "the next version from wherever", dbs: "v1 v1@b v2@c v2", current: "v1", offered: "v1@b v2@c v2", precopied: "v2@c", wants: "v2@c"},
		{name: "a place that was left follows", dbs: "v1 v1@b v2", current: "v1@b", last: "v1", offered: "v1 v2", precopied: "v2", wants: "v1"},
		{name: "not known here", dbs: "v1", current: "v2"},
	} {
		var s Settings
		for _, v := range strings.Fields(tc.dbs) {
			name, off := strings.CutSuffix(v, "!")
			s.Databases = append(s.Databases, Database{Version: name, APIVersion: upgradestate.APIVersion(name), Disabled: off})
		}
		d := upgradestate.Deployment{CurrentVersion: tc.current}
		if tc.last != "" {
			d.LastSwitch = &upgradestate.Switch{From: tc.last, To: tc.current, Snapshot: tc.snapshot}
		}
		if tc.retired != "" {
			d.Retired = []string{tc.retired}
		}
		if tc.upgrade != "" {
			d.Upgrade = &upgradestate.Upgrade{TargetVersion: tc.upgrade}
		}
		offered := s.reachable(d)
		if got := strings.Join(offered, " "); got != tc.offered {
			t.Errorf("%s: offered is %q, want %q", tc.name, got, tc.offered)
		}
		precopied := s.precopied(d)
		if precopied != tc.precopied {
			t.Errorf("%s: %q is precopied, want %q", tc.name, precopied, tc.precopied)
		}
		if got, ok := s.wants(d); ok != (tc.wants != "") || ok && got != tc.wants {
			t.Errorf("%s: %q is wanted (%t), want %q", tc.name, got, ok, tc.wants)
		}
		for _, v := range offered {
			d.Available = append(d.Available, upgradestate.Available{TargetVersion: v, Precopied: v == precopied})
		}
		if got, ok := s.target(d); ok != (tc.wants != "") || ok && got != tc.wants {
			t.Errorf("%s: synced to is %q (%t), want %q", tc.name, got, ok, tc.wants)
		}
	}
}

// TestTargetIsWhatTheRecordSays, as far as this process is configured for it.
func TestTargetIsWhatTheRecordSays(t *testing.T) {
	t.Parallel()
	s := Settings{Databases: []Database{{Version: "v1", Disabled: true}, {Version: "v2"}, {Version: "v3"}}}
	for _, tc := range []struct{ name, available, want string }{
		{"another process has marked another one", "v3", "v3"},
		{"not configured here", "v4", ""},
		{"disabled here, and not withdrawn yet", "v1", ""},
	} {
		d := upgradestate.Deployment{CurrentVersion: "v2", Available: []upgradestate.Available{{TargetVersion: tc.available, Precopied: true}}}
		if got, ok := s.target(d); got != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %q (%t), want %q", tc.name, got, ok, tc.want)
		}
	}
}

// TestCopies: what a switch to a snapshot has left is not synced before somebody begins an
// upgrade to it; the rollback of any other switch is kept, whatever is configured.
func TestCopies(t *testing.T) {
	t.Parallel()
	snapshot := &upgradestate.Switch{From: "v2", To: "v1", Snapshot: true}
	for _, tc := range []struct {
		name string
		auto bool
		last *upgradestate.Switch
		to   string
		want bool
	}{
		{"forward, by itself", true, nil, "v2", true},
		{"forward, when it is begun", false, nil, "v2", false},
		{"the rollback", false, &upgradestate.Switch{From: "v1", To: "v2"}, "v1", true},
		{"what a snapshot has left", true, snapshot, "v2", false},
		{"what an epoch without a switch has left", true, &upgradestate.Switch{From: "v2", To: "v1", Outdated: true}, "v2", false},
		{"past what a snapshot has left", true, snapshot, "v3", true},
	} {
		s := Settings{Copy: Copy{Auto: tc.auto}}
		if got := s.copies(upgradestate.Deployment{CurrentVersion: "v1", LastSwitch: tc.last}, tc.to); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}
