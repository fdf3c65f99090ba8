package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/upgradestate"
)

func TestRenderingIsAsReviewed(t *testing.T) {
	t.Parallel()
	aborting := clitest.Sample()
	aborting.UpgradeState.State, aborting.UpgradeState.Step = dbv1.UpgradeState_SWITCHING, "ABORT"
	aborting.UpgradeState.AbortReason = "SWITCHING passed its deadline of 10s in step DRAIN"
	available := clitest.Sample()
	available.UpgradeState = nil
	available.AvailableUpgrades = []*dbv1.AvailableUpgrade{{TargetVersion: "v2"}}
	dead := clitest.Sample() // one of its controllers died
	dead.Progress.ReportingShards, dead.Progress.MaxLagMillis, dead.Progress.EtaSeconds = 2, nil, nil
	for _, s := range dead.Progress.Shards[2:] {
		s.Owner, s.State, s.Copied, s.Total, s.LagMillis, s.WaitsFor = "", "waiting", 0, 0, nil, "a controller"
	}
	rotating := clitest.Switched()
	rotating.Update = &dbv1.DataUpdate{Id: "d-1", Name: "rotate-keys", Version: "v2", Kind: "packages", DoneShards: 2, Seen: 9000, Changed: 8120, Key: "b002", DoneKinds: 1, Kinds: 3}
	rotating.Namespaces = []*dbv1.Namespace{
		{Version: "v1", Encryption: &dbv1.Encryption{Key: "a001", Keys: []string{"a001"}, Every: true, Active: "a001", At: "2026-01-02T03:04:05Z", Error: "no reachable servers"}},
		{Version: "v2", Encryption: &dbv1.Encryption{Key: "b002", Keys: []string{"b001", "b002"}, Active: "b002"}},
		{Version: "v3", Encryption: &dbv1.Encryption{Key: "off", Keys: []string{"off"}, Every: true, Active: "c001", Declined: "c001"}},
		{Version: "v4", Encryption: &dbv1.Encryption{Active: "d001", Error: "no reachable servers"}},
	}
	for name, d := range map[string]*dbv1.Deployment{
		"rotating": rotating,
		"dead":     dead, "upgrade": clitest.Sample(), "switched": clitest.Switched(), "aborting": aborting, "available": available,
		"new": {Name: "services/a/deployments/b", CurrentVersion: "v1", Epoch: 1, RingSize: 16},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if err := Deployment(&b, d); err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, "testdata/get-"+name+".txt", b.String())
			clitest.Golden(t, "testdata/live-"+name+".txt", frame(d, 200, 60))
			clitest.Golden(t, "testdata/line-"+name+".txt", changeLine(d)+"\n")
		})
	}
	var b bytes.Buffer
	if err := Parked(&b, []*dbv1.ParkedRecord{
		{Kind: "packages", Key: "p-17", Version: "v1", Shard: 3, Error: "transform packages: convert installed_size: \"many\" is no int\nstack"},
		{Kind: "packages", Key: `{"name":"x"}`, Version: "v1", Shard: 11, Waived: true, Error: "too large"},
	}); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "testdata/parked.txt", b.String())
	b.Reset()
	if err := List(&b, &dbv1.ListDeploymentsResponse{Deployments: []*dbv1.Deployment{clitest.Sample(), clitest.Switched()}}); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "testdata/list.txt", b.String())
	b.Reset()
	far := clitest.Switched()
	far.Region = "eu"
	if err := List(&b, &dbv1.ListDeploymentsResponse{Deployments: []*dbv1.Deployment{clitest.Sample(), far}, Regions: []*dbv1.ListDeploymentsResponse_Region{
		{Name: "eu"}, {Name: "asia", Unavailable: "region asia at https://asia:7090 does not answer within 3s"},
	}}); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "testdata/regions.txt", b.String())
}

func TestLinesTellEachChangeOnce(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := &Lines{w: &b, now: func() time.Time { return time.Date(2026, 1, 1, 15, 4, 5, 0, time.UTC) }}
	for _, d := range []*dbv1.Deployment{clitest.Sample(), clitest.Sample(), clitest.Switched()} {
		if err := l.Draw(d); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(b.String(), "\n"); got != 2 {
		t.Errorf("%d lines, want 2:\n%s", got, b.String())
	}
	if !strings.HasPrefix(b.String(), "15:04:05 v1->v2 | INITIAL_SYNCING | ready 2/4 | paused | data update fill-region 2/4 | copied 15,000 of 20,000 (75 %)") {
		t.Errorf("first line: %s", b.String())
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a log has terminal sequences in it")
	}
}

// TestWhatASwitchLeavesIsPrinted: 'get' names views that an upgrade leaves behind, and who still uses a
// name of which no server counts the uses.
func TestWhatASwitchLeavesIsPrinted(t *testing.T) {
	t.Parallel()
	d := clitest.Sample()
	d.Views = "1 views read collections of the former version (late)"
	d.FormerNames = &dbv1.FormerNames{Uses: []*dbv1.NameUse{
		{Version: "v1", Kind: "lines", Last: "2026-11-21T08:00:00Z", Users: []*dbv1.NameUser{{Application: "shop", Driver: "nodejs 6.3", Address: "10.0.0.7"}}},
	}}
	var b bytes.Buffer
	if err := Deployment(&b, d); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{d.Views, "lines of v1, which the switch left: the number is unknown, last 2026-11-21 08:00:00; seen: shop (nodejs 6.3) at 10.0.0.7"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("'get' lacks %q:\n%s", want, b.String())
		}
	}
}

// TestEveryReasonIsPrinted: 'get' and 'watch' print each reason with its place and what resolves it,
// and never that the switch waits for nothing else while it waits.
func TestEveryReasonIsPrinted(t *testing.T) {
	t.Parallel()
	for code, r := range upgradestate.BlockCodes {
		d := clitest.Sample()
		d.Pace.Paused = false
		d.Readiness = &dbv1.SwitchReadiness{Blockers: []*dbv1.SwitchBlocker{{Code: string(code), Text: "because", Resolve: r.Act, Version: "v2", Kind: "orders"}}, WaitsFor: []string{"because"}}
		var b bytes.Buffer
		if err := Deployment(&b, d); err != nil {
			t.Fatal(err)
		}
		want := "the switch waits for v2/orders: because -> " + r.Act
		if got := b.String(); !strings.Contains(got, want) || strings.Contains(got, "nothing else") {
			t.Errorf("%s: 'get' lacks %q:\n%s", code, want, got)
		}
		if got := changeLine(d); !strings.Contains(got, "switch waits for v2/orders: because -> "+r.Act) {
			t.Errorf("%s: 'watch' shows %s", code, got)
		}
	}
	// A driver that has said nothing does not count as one that waits for nothing.
	u := &dbv1.UpgradeState{State: dbv1.UpgradeState_SWITCHING}
	if got := readinessText(&dbv1.SwitchReadiness{}, u); strings.Contains(got, "nothing else") {
		t.Errorf("while it switches: %s", got)
	}
	pause := int64(130)
	said := readinessText(&dbv1.SwitchReadiness{PredictedPauseMillis: &pause, PredictedMillis: map[string]int32{"restart": 20, "hold": 30, "fence": 75}}, u)
	if want := "predicted pause 130 ms (hold 30 ms, fence 75 ms, restart 20 ms)"; !strings.Contains(said, want) {
		t.Errorf("%s; want %s in it", said, want)
	}
}

func TestReplacedRow(t *testing.T) {
	t.Parallel()
	many := &dbv1.Replaced{Version: "v1", To: "v2", Copied: 1500, Total: 3000, ReportingShards: 16, ComparedShards: 3}
	for i := range 5 {
		many.Kinds = append(many.Kinds, &dbv1.ReplacedKind{Kind: fmt.Sprint("k", i)})
	}
	for want, r := range map[string]*dbv1.Replaced{
		"orders at 2026-11-27 08:00:00 UTC of v1; v2 is rebuilt: not begun": {
			Version: "v1", To: "v2", Kinds: []*dbv1.ReplacedKind{{Kind: "orders", At: "2026-11-27T08:00:00Z"}},
		},
		"orders of v2; v1 is rebuilt: 16 of 16 shards compared": {
			Version: "v2", To: "v1", ReportingShards: 16, ComparedShards: 16, Kinds: []*dbv1.ReplacedKind{{Kind: "orders"}},
		},
		"k4, k3, k2 and 2 more of v1; v2 is rebuilt: 1,500 of 3,000 copied (50 %), 3 of 16 shards compared": many,
	} {
		d := &dbv1.Deployment{Name: "a", CurrentVersion: "v1", RingSize: 16, Replaced: r}
		found := ""
		for _, l := range summary(d) {
			if l.label == "replaced" {
				found = l.text
			}
		}
		if found != want {
			t.Errorf("the row is %q, want %q", found, want)
		}
	}
}

// TestFollowingRow: what begins by itself has a row, with what it has done and what it waits for.
func TestFollowingRow(t *testing.T) {
	t.Parallel()
	const places = "services/places/deployments/eu"
	for want, f := range map[string]*dbv1.Following{
		"new follows " + places + " to v2; waits for a switch": {Task: "new", Deployment: places, Version: "v2", WaitsFor: "a switch"},
		"new follows " + places + " to v2; pass 2 runs":        {Task: "new", Deployment: places, Version: "v2", Passes: 2, Changed: 7, Running: true},
		"new follows " + places + " to v2; 1 pass, 1,200 changed; the latest: done; another pass follows": {
			Task: "new", Deployment: places, Version: "v2", Passes: 1, Changed: 1200, Outcome: "done", Again: true,
		},
	} {
		found := ""
		for _, l := range summary(&dbv1.Deployment{Name: "a", CurrentVersion: "v1", RingSize: 16, Following: []*dbv1.Following{f}}) {
			if l.label == "follows" {
				found = l.text
			}
		}
		if found != want {
			t.Errorf("the row is %q, want %q", found, want)
		}
	}
}
