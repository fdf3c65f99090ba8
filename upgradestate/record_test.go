package upgradestate_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	us "dbcontroller.dev/upgradestate"
	"dbcontroller.dev/upgradestate/internal/explore"
)

// at returns the record of a deployment of two versions at a step of its first upgrade.
func at(t *testing.T, step string) us.Deployment {
	t.Helper()
	var d us.Deployment
	play(t, &d, "new v1 2\nnamespace v1 lrps:uuid users:fixed-validator\nnamespace v2 lrps:uuid users:fixed-validator\n"+
		"Begin ID=u1 TargetVersion=v2 TransformHash=h\nuntil "+step)
	return d
}

// Every reachable record survives being stored.
func TestJSONRoundTrip(t *testing.T) {
	t.Parallel()
	g, err := explore.Run(explore.Real(), explore.Config{Shards: 2, Kinds: []us.Kind{
		{Kind: "lrps", Fence: "uuid"}, {Kind: "users", Fixed: true, Fence: "validator", Restore: "own validator"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range g.Records {
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back us.Deployment
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(d, back) {
			t.Fatalf("stored and read again:\n%+v\n%+v", d, back)
		}
	}
}

func TestJSONShape(t *testing.T) {
	t.Parallel()
	d := at(t, "DRAIN")
	step(t, &d, us.Report{ID: "u1", State: us.Switching, Attempt: 2, Fences: us.FenceNames(d), Shards: []int{1}})
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name           string
		CurrentVersion string
		UpgradeState   struct {
			TargetVersion string
			ReadyShards   []int
			PendingShards []int
			State         string
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	u := got.UpgradeState
	if got.Name != "services/bbs/deployments/test" || got.CurrentVersion != "v1" || u.TargetVersion != "v2" || u.State != "SWITCHING" ||
		!reflect.DeepEqual(u.ReadyShards, []int{1}) || !reflect.DeepEqual(u.PendingShards, []int{0}) {
		t.Errorf("shape: %s", text)
	}
	if text, err = json.Marshal(us.New("n", "v1", 2)); err != nil || strings.Contains(string(text), "upgradeState") {
		t.Errorf("without an upgrade: %s, %v", text, err)
	}
}

func TestErrorsAreTyped(t *testing.T) {
	t.Parallel()
	d := at(t, "HOLD")
	_, err := us.Apply(d, us.Report{ID: "u0"})
	if !errors.Is(err, us.ErrOutdated) {
		t.Errorf("report for another upgrade: %v", err)
	}
	_, err = us.Apply(d, us.Begin{ID: "u2", TargetVersion: "v3", TransformHash: "h"})
	var r *us.RefusedError
	if !errors.As(err, &r) || !strings.Contains(r.Reason, "u1 to v2 is already running") {
		t.Errorf("another begin: %v", err)
	}
	if _, err = us.Apply(d, nil); !errors.As(err, &r) {
		t.Errorf("no event: %v", err)
	}
	newer := us.Clone(d)
	newer.Format = us.Format + 1
	if _, err = us.Apply(newer, us.Abort{}); !errors.As(err, &r) {
		t.Errorf("newer format: %v", err)
	}
}

// What Apply returns shares nothing with the record or the event that it was given.
func TestApplyKeepsNothing(t *testing.T) {
	t.Parallel()
	millis := map[string]int64{"hold": 1}
	d := at(t, "SEAL_SOURCE")
	for _, last := us.Actions(d)[0].(us.Flip); !last; _, last = us.Actions(d)[0].(us.Flip) {
		drive(t, &d)
	}
	next, err := us.Apply(d, us.Flip{ID: "u1", Switch: us.Switch{Millis: millis}})
	if err != nil {
		t.Fatal(err)
	}
	millis["hold"] = 2
	again := us.Clone(next)
	again.LastSwitch.Millis["hold"] = 3
	again.Namespaces[1].Kinds[1].Pending.To = "other"
	if next.LastSwitch.Millis["hold"] != 1 || next.Namespaces[1].Kinds[1].Pending.To != "users" {
		t.Errorf("shared: %+v", next)
	}
	shards := []int{1, 0}
	d = at(t, "")
	if next, err = us.Apply(d, us.Report{ID: "u1", State: us.InitialSyncing, Attempt: 1, Shards: shards}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(shards, []int{1, 0}) || !reflect.DeepEqual(next.Upgrade.ReadyShards, []int{0, 1}) {
		t.Errorf("shards %v, ready %v", shards, next.Upgrade.ReadyShards)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	kind := func(d *us.Deployment, version, name string) *us.Kind {
		for i := range d.Namespaces {
			for j := range d.Namespaces[i].Kinds {
				if k := &d.Namespaces[i].Kinds[j]; d.Namespaces[i].Version == version && k.Kind == name {
					return k
				}
			}
		}
		t.Fatalf("no kind %s", name)
		return nil
	}
	pending := func(r us.PendingReason, from, to string) *us.Pending {
		return &us.Pending{Reason: r, From: from, To: to}
	}
	for name, tc := range map[string]struct {
		step  string
		spoil func(*us.Deployment)
		says  string
	}{
		"newer format":        {"HOLD", func(d *us.Deployment) { d.Format++ }, "newer"},
		"no format":           {"HOLD", func(d *us.Deployment) { d.Format = 0 }, "no deployment"},
		"no name":             {"HOLD", func(d *us.Deployment) { d.Name = "" }, "name"},
		"no version":          {"HOLD", func(d *us.Deployment) { d.CurrentVersion = "" }, "current version"},
		"no epoch":            {"HOLD", func(d *us.Deployment) { d.Epoch = 0 }, "epoch"},
		"no ring":             {"HOLD", func(d *us.Deployment) { d.RingSize = 0 }, "ring size"},
		"double version":      {"HOLD", func(d *us.Deployment) { d.Namespaces[1].Version = "v1" }, "occurs twice"},
		"double kind":         {"HOLD", func(d *us.Deployment) { d.Namespaces[0].Kinds[1].Kind = "lrps" }, "occurs twice"},
		"no kinds":            {"HOLD", func(d *us.Deployment) { d.Namespaces[1].Kinds = nil }, "no kinds"},
		"kind without name":   {"HOLD", func(d *us.Deployment) { kind(d, "v1", "lrps").Kind = "" }, "name is empty"},
		"kind without place":  {"HOLD", func(d *us.Deployment) { kind(d, "v1", "lrps").Physical = "" }, "physical"},
		"unknown class":       {"HOLD", func(d *us.Deployment) { kind(d, "v1", "lrps").Fence = "hope" }, "unknown fence class"},
		"fixed by uuid":       {"HOLD", func(d *us.Deployment) { kind(d, "v1", "users").Fence = "uuid" }, "does not send"},
		"managed by view":     {"HOLD", func(d *us.Deployment) { kind(d, "v1", "lrps").Fence = "view" }, "cannot be fenced"},
		"not hidden":          {"HOLD", func(d *us.Deployment) { kind(d, "v2", "users").Hidden = false }, "hidden is false"},
		"name to come in use": {"HOLD", func(d *us.Deployment) { kind(d, "v1", "lrps").NextSeq = 1 }, "nextSeq"},
		"fenced in HOLD":      {"HOLD", func(d *us.Deployment) { kind(d, "v1", "lrps").Fenced = "x" }, "fenced already"},
		"pending in HOLD": {"HOLD", func(d *us.Deployment) {
			kind(d, "v2", "lrps").Pending = pending(us.PendingSeal, "lrps.n1", "lrps.n0")
		}, "pending seal in step HOLD"},
		"pending fence in the target": {"", func(d *us.Deployment) {
			kind(d, "v2", "lrps").Pending = pending(us.PendingFence, "lrps.n1", "lrps.n0")
		}, "not current"},
		"pending to a foreign name": {"FENCE", func(d *us.Deployment) { kind(d, "v1", "lrps").Pending.To = "x" }, "not the next name"},
		"pending from elsewhere":    {"FENCE", func(d *us.Deployment) { kind(d, "v1", "lrps").Pending.From = "x" }, "it is at"},
		"pending for no reason":     {"FENCE", func(d *us.Deployment) { kind(d, "v1", "lrps").Pending.Reason = "x" }, "unknown pending reason"},
		"pending open of an open":   {"", func(d *us.Deployment) { kind(d, "v1", "users").Pending = pending(us.PendingOpen, "", "users") }, "nothing is closed"},
		"neither fenced nor to be":  {"FENCE", func(d *us.Deployment) { kind(d, "v1", "lrps").Pending = nil }, "neither fenced"},
		"closed for ever":           {"", func(d *us.Deployment) { kind(d, "v1", "users").Fenced = "users.n0" }, "no pending operation opens it"},
		"sealed and current":        {"", func(d *us.Deployment) { kind(d, "v1", "lrps").Sealed = true }, "no pending operation opens it"},
		"not fenced in DRAIN":       {"DRAIN", func(d *us.Deployment) { kind(d, "v1", "lrps").Fenced = "" }, "not fenced"},
		"pending in DRAIN": {"DRAIN", func(d *us.Deployment) {
			kind(d, "v1", "lrps").Pending = pending(us.PendingFence, "lrps.n2", "lrps.n0")
		}, "pending fence in step"},
		"not to be sealed": {"SEAL_SOURCE", func(d *us.Deployment) { kind(d, "v1", "lrps").Pending = nil }, "not fenced and sealed"},
		"no id":            {"HOLD", func(d *us.Deployment) { d.Upgrade.ID = "" }, "id is empty"},
		"to itself":        {"HOLD", func(d *us.Deployment) { d.Upgrade.TargetVersion = "v1" }, "is the current version"},
		"to nothing":       {"HOLD", func(d *us.Deployment) { d.Upgrade.TargetVersion = "v9" }, "v9 has no kinds"},
		"no attempt":       {"HOLD", func(d *us.Deployment) { d.Upgrade.Attempt = 0 }, "attempt"},
		"foreign shard":    {"DRAIN", func(d *us.Deployment) { d.Upgrade.ReadyShards = []int{2} }, "ring of 2"},
		"unordered shards": {"DRAIN", func(d *us.Deployment) { d.Upgrade.ReadyShards = []int{1, 0} }, "ordered"},
		"ready in HOLD":    {"HOLD", func(d *us.Deployment) { d.Upgrade.ReadyShards = []int{0} }, "ready in step"},
		"pending in SEAL":  {"SEAL_TARGET", func(d *us.Deployment) { d.Upgrade.ReadyShards = []int{0} }, "shards [1] are pending"},
		"step in sync":     {"HOLD", func(d *us.Deployment) { d.Upgrade.State = us.InitialSyncing }, "step HOLD"},
		"no step":          {"DRAIN", func(d *us.Deployment) { d.Upgrade.Step = "NAP" }, "unknown step"},
		"no state":         {"HOLD", func(d *us.Deployment) { d.Upgrade.State = "NAP" }, "unknown state"},
		"switching without step": {"", func(d *us.Deployment) {
			d.Upgrade.State = us.Switching
		}, `step "" in SWITCHING`},
	} {
		t.Run(name, func(t *testing.T) {
			d := at(t, tc.step)
			if tc.step != "" && (d.Upgrade == nil || string(d.Upgrade.Step) != tc.step) {
				t.Fatalf("not at %s: %+v", tc.step, d.Upgrade)
			}
			if err := us.Validate(d); err != nil {
				t.Fatalf("before: %v", err)
			}
			tc.spoil(&d)
			if err := us.Validate(d); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

func TestCheckServers(t *testing.T) {
	t.Parallel()
	good := []us.ServerState{
		{ID: "s1", Protocol: us.MinProtocol, Versions: []string{"v1", "v2"}},
		{ID: "app", Protocol: us.MinProtocol, Client: true},
	}
	if err := us.CheckServers(good, "v2"); err != nil {
		t.Errorf("good servers: %v", err)
	}
	err := us.CheckServers(append(good,
		us.ServerState{ID: "s3", Versions: []string{"v1", "v2"}},
		us.ServerState{ID: "s2", Protocol: us.MinProtocol, Versions: []string{"v1"}}), "v2")
	var r *us.RefusedError
	if want := "begin-upgrade: servers too old for v2: s2 knows only v1; s3 speaks protocol 0, but 1 is needed; update or stop them"; !errors.As(err, &r) || r.Reason != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What an operator would change by hand, announced, is refused with the reason.
func TestAnnounceNamespaceRefusesReplacement(t *testing.T) {
	t.Parallel()
	d := at(t, "")
	ns := us.Clone(d).Namespaces[1]
	if got := step(t, &d, us.AnnounceNamespace{Namespace: ns}); got != "no-op" {
		t.Errorf("repeated: %s", got)
	}
	ns.Kinds[0].ID = "another"
	if got := step(t, &d, us.AnnounceNamespace{Namespace: ns}); !strings.Contains(got, "somebody replaced") {
		t.Errorf("another collection: %s", got)
	}
	ns.Location = "elsewhere"
	if got := step(t, &d, us.AnnounceNamespace{Namespace: ns}); !strings.Contains(got, "not at elsewhere") {
		t.Errorf("another location: %s", got)
	}
	hidden := namespace("v1", []string{"more:fixed-view"}, false)
	d = us.New("n", "v1", 2)
	if got := step(t, &d, us.AnnounceNamespace{Namespace: hidden}); !strings.Contains(got, "clients of the current version use more") {
		t.Errorf("a hidden kind of the current version: %s", got)
	}
}

// TestCloneSharesNothing: with every field set, those that are added later too, a copy is
// equal and has no memory in common. Package deployment decodes a record once and gives
// each of its readers a copy.
func TestCloneSharesNothing(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	fill(t, reflect.ValueOf(&d).Elem(), "record")
	c := us.Clone(d)
	if !reflect.DeepEqual(d, c) {
		t.Fatalf("the copy differs:\n%+v\n%+v", d, c)
	}
	apart(t, reflect.ValueOf(d), reflect.ValueOf(c), "record")
}

// fill sets whatever v consists of.
func fill(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), path)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, path)
		fill(t, value, path)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.Set(reflect.ValueOf(1).Convert(v.Type()))
	}
}

// apart walks two equal values.
func apart(t *testing.T, a, b reflect.Value, path string) {
	t.Helper()
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			apart(t, a.Field(i), b.Field(i), path+"."+a.Type().Field(i).Name)
		}
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.UnsafePointer() == b.UnsafePointer() {
			t.Errorf("%s is shared", path)
			return
		}
		switch a.Kind() {
		case reflect.Pointer:
			apart(t, a.Elem(), b.Elem(), path)
		case reflect.Slice:
			apart(t, a.Index(0), b.Index(0), path)
		case reflect.Map:
			for _, k := range a.MapKeys() {
				apart(t, a.MapIndex(k), b.MapIndex(k), path)
			}
		}
	}
}
