package controller

import (
	"testing"

	"dbcontroller/config"
	"dbcontroller/upgradestate"
)

// TestTarget: which version is kept level follows from the record and from what is
// disabled, whichever way the latest switch went.
func TestTarget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                string
		current, last       string // version; where the latest switch came from
		upgrade, off, three string // target of a running upgrade; version that is disabled; third version
		want                string
	}{
		{name: "before any switch", current: "v1", want: "v2"},
		{name: "the way back", current: "v2", last: "v1", want: "v1"},
		{name: "no way back", current: "v2", last: "v1", off: "v1", want: ""},
		{name: "on instead of back", current: "v2", last: "v1", off: "v1", three: "v3", want: "v3"},
		{name: "forward again", current: "v1", last: "v2", want: "v2"},
		{name: "not forward again", current: "v1", last: "v2", off: "v2", want: ""},
		{name: "an upgrade decides", current: "v1", last: "v2", off: "v2", upgrade: "v2", want: "v2"},
	} {
		var a App
		for _, v := range []string{"v1", "v2", tc.three} {
			if v != "" {
				a.cfg.DBs = append(a.cfg.DBs, config.DB{Version: v, Disabled: v == tc.off})
			}
		}
		d := upgradestate.Deployment{CurrentVersion: tc.current}
		if tc.last != "" {
			d.LastSwitch = &upgradestate.Switch{From: tc.last, To: tc.current}
		}
		if tc.upgrade != "" {
			d.Upgrade = &upgradestate.Upgrade{TargetVersion: tc.upgrade}
		}
		if got, ok := a.target(d); got != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %q (%t), want %q", tc.name, got, ok, tc.want)
		}
	}
}
