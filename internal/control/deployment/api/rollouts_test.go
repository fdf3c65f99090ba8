package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/upgradestate"
)

func rolloutOf(waves ...string) *dbv1.BeginRolloutRequest {
	req := &dbv1.BeginRolloutRequest{Name: "to-v2", TargetVersion: "v2", RequestedBy: "ann"}
	for _, wave := range waves {
		w := &dbv1.RolloutWave{}
		for name := range strings.FieldsSeq(wave) {
			w.Deployments = append(w.Deployments, &dbv1.RolloutDeployment{Name: name})
		}
		req.Waves = append(req.Waves, w)
	}
	return req
}

// TestRolloutIsBegunBySomebody: the history has the proven identity, and beside it the name that the
// caller gives.
func TestRolloutIsBegunBySomebody(t *testing.T) {
	t.Parallel()
	for want, caller := range map[string]access.Caller{
		"ann":             {Identity: access.Loopback},
		"token:bob (ann)": {Identity: access.Identity{Name: "token:bob", Proof: "token"}},
		"token:ann (ann)": {Identity: access.Identity{Name: "token:ann", Proof: "token"}},
	} {
		w := deploymenttest.New(t).WithVersions(t)
		service := api.New(w.Coord, w.Store, api.Config{})
		ctx := access.WithCaller(t.Context(), caller)
		r, err := service.BeginRollout(ctx, connect.NewRequest(rolloutOf(deploymenttest.Name)))
		if err != nil {
			t.Fatal(err)
		}
		if r.Msg.BeganBy != want || r.Msg.History[0].By != want {
			t.Errorf("it is begun by %q, history %v, want %q", r.Msg.BeganBy, r.Msg.History, want)
		}
	}
}

// TestBeginRolloutRefuses what could not be carried out, and stores nothing.
func TestBeginRolloutRefuses(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	other := deployment.New(w.Coord, "services/bbs.example.com/deployments/new", deployment.Config{})
	if _, err := other.Create(t.Context(), "v1", 4); err != nil {
		t.Fatal(err)
	}
	service := api.New(w.Coord, w.Store, api.Config{RolloutChecks: []string{"errors"}})
	for want, change := range map[string]func(*dbv1.BeginRolloutRequest){
		"invalid_argument: rollout begin: name":     func(r *dbv1.BeginRolloutRequest) { r.Name = "To V2" },
		"invalid_argument: rollout begin: no waves": func(r *dbv1.BeginRolloutRequest) { r.Waves = nil },
		"name it once": func(r *dbv1.BeginRolloutRequest) { r.Waves = append(r.Waves, r.Waves[0]) },
		"invalid_argument: rollout begin: target version":                func(r *dbv1.BeginRolloutRequest) { r.TargetVersion = "" },
		"want longer than the hold":                                      func(r *dbv1.BeginRolloutRequest) { r.Policy = &dbv1.RolloutPolicy{GateLimitMs: 1} },
		"check latency: the configuration of this controller has no":     func(r *dbv1.BeginRolloutRequest) { r.Policy = &dbv1.RolloutPolicy{Checks: []string{"latency"}} },
		"services/none/deployments/x: deployment does not exist":         func(r *dbv1.BeginRolloutRequest) { r.Waves = rolloutOf("services/none/deployments/x").Waves },
		"invalid_argument: rollout begin: wave 1: deployment name \"x\"": func(r *dbv1.BeginRolloutRequest) { r.Waves = rolloutOf("x").Waves },
		// To other calls an empty name means this process's deployment.
		"invalid_argument: rollout begin: wave 2: deployment name \"\"": func(r *dbv1.BeginRolloutRequest) {
			r.Waves = append(r.Waves, &dbv1.RolloutWave{Deployments: []*dbv1.RolloutDeployment{{}}})
		},
		"services/bbs.example.com/deployments/new has no version v2": func(r *dbv1.BeginRolloutRequest) { r.Waves = rolloutOf(other.Name()).Waves },
		"requested_by": func(r *dbv1.BeginRolloutRequest) { r.RequestedBy = "a\nb" },
	} {
		req := rolloutOf(deploymenttest.Name)
		change(req)
		_, err := service.BeginRollout(t.Context(), connect.NewRequest(req))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if all, _, err := w.Store.Rollouts().All(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%d rollouts are stored, %v", len(all), err)
	}
}

// TestRolloutVerbs: each verb has a dry run, may be repeated, and is refused where it makes no sense.
func TestRolloutVerbs(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	service := api.New(w.Coord, w.Store, api.Config{})
	begin := func(dry bool) (*dbv1.Rollout, error) {
		req := rolloutOf(deploymenttest.Name)
		req.DryRun = dry
		res, err := service.BeginRollout(t.Context(), connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	change := func(verb dbv1.ChangeRolloutRequest_Verb, dry bool) string {
		res, err := service.ChangeRollout(t.Context(), connect.NewRequest(&dbv1.ChangeRolloutRequest{Name: "to-v2", Verb: verb, DryRun: dry, RequestedBy: "ann"}))
		if err != nil {
			return "refused"
		}
		if strings.HasPrefix(res.Msg.Effects[0], "nothing: ") {
			return "nothing"
		}
		return res.Msg.State.String()
	}
	forget := func(dry bool) string {
		_, err := service.ForgetRollout(t.Context(), connect.NewRequest(&dbv1.ForgetRolloutRequest{Name: "to-v2", DryRun: dry}))
		return fmt.Sprint(err)
	}
	if _, err := service.GetRollout(t.Context(), connect.NewRequest(&dbv1.GetRolloutRequest{Name: "to-v2"})); err == nil || !strings.Contains(err.Error(), "rollout does not exist") {
		t.Errorf("before it: %v", err)
	}
	if r, err := begin(true); err != nil || !strings.Contains(r.Effects[0], "upgrade 1 deployment to v2 in 1 wave") {
		t.Fatalf("dry run: %v, %v", r, err)
	}
	if all := must(service.ListRollouts(t.Context(), connect.NewRequest(&dbv1.ListRolloutsRequest{}))).Msg.Rollouts; len(all) > 0 {
		t.Fatalf("the dry run stored %v", all)
	}
	if r, err := begin(false); err != nil || r.State != dbv1.Rollout_RUNNING || r.BeganBy != "ann" || r.Revision == 0 {
		t.Fatalf("%v, %v", r, err)
	}
	if r, err := begin(false); err != nil || !strings.HasPrefix(r.Effects[0], "nothing: ") {
		t.Errorf("again: %v, %v", r, err)
	}
	second := rolloutOf(deploymenttest.Name)
	second.Name = "second"
	if _, err := service.BeginRollout(t.Context(), connect.NewRequest(second)); err == nil || !strings.Contains(err.Error(), "is in rollout to-v2, which is RUNNING") {
		t.Errorf("a second one: %v", err)
	}
	second.Name, second.TargetVersion = "to-v2", "v3"
	if _, err := service.BeginRollout(t.Context(), connect.NewRequest(second)); err == nil || !strings.Contains(err.Error(), "with other arguments") {
		t.Errorf("others under its name: %v", err)
	}
	const pause, resume, stop, back = dbv1.ChangeRolloutRequest_PAUSE, dbv1.ChangeRolloutRequest_RESUME, dbv1.ChangeRolloutRequest_STOP, dbv1.ChangeRolloutRequest_ROLLBACK
	got := []string{
		change(dbv1.ChangeRolloutRequest_VERB_UNSPECIFIED, false), change(resume, false), change(pause, true), change(pause, false), change(pause, false),
		forget(false), change(resume, false), change(back, false), change(stop, false), change(stop, false), forget(true), forget(false), change(stop, false),
	}
	want := []string{"refused", "nothing", "RUNNING", "PAUSED", "nothing", "rollout forget: to-v2 is PAUSED: stop it first", "RUNNING", "nothing", "STOPPED", "nothing", "<nil>", "<nil>", "refused"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestRolloutLostAnswer: a change whose answer etcd has lost is made once.
func TestRolloutLostAnswer(t *testing.T) {
	t.Parallel()
	for _, fault := range []memcoord.Fault{memcoord.LoseAnswer, memcoord.LoseRequest} {
		w := deploymenttest.New(t).WithVersions(t)
		service := api.New(w.Coord, w.Store, api.Config{})
		must(service.BeginRollout(t.Context(), connect.NewRequest(rolloutOf(deploymenttest.Name))))
		once := true
		w.Coord.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
			if once {
				once = false
				return fault
			}
			return memcoord.Deliver
		})
		r := must(service.ChangeRollout(t.Context(), connect.NewRequest(&dbv1.ChangeRolloutRequest{Name: "to-v2", Verb: dbv1.ChangeRolloutRequest_PAUSE}))).Msg
		pauses := 0
		for _, e := range r.History {
			if strings.HasPrefix(e.What, "pause") {
				pauses++
			}
		}
		if r.State != dbv1.Rollout_PAUSED || pauses != 1 || strings.HasPrefix(r.Effects[0], "nothing") {
			t.Errorf("fault %d: %s after %d pauses, and it says %q", fault, r.State, pauses, r.Effects)
		}
	}
}

// TestRolloutOrdersDoNotHold: where the configuration holds upgrades for an operator, the orders of a
// rollout switch all the same, there and back. They keep the rest of the configured policy.
func TestRolloutOrdersDoNotHold(t *testing.T) {
	t.Parallel()
	cfg := api.Config{Upgrades: everyWay{}, Policy: upgradestate.Policy{Hold: true, DeadlineMillis: 5000}}
	want := upgradestate.Policy{DeadlineMillis: 5000}
	forward := deploymenttest.New(t).WithVersions(t)
	back := deploymenttest.New(t).WithVersions(t)
	back.Flip(t)
	for target, w := range map[string]deploymenttest.World{"v2": forward, "v1": back} {
		w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: target, TransformHash: "h2", Precopied: true}})
		if err := api.New(w.Coord, w.Store, cfg).BeginFor(t.Context(), "r-1", target, "rollout r"); err != nil {
			t.Fatal(err)
		}
		d, err := w.Store.Get(t.Context())
		if err != nil || d.Upgrade == nil || d.Upgrade.Policy != want {
			t.Errorf("to %s: %+v, %v", target, d.Upgrade, err)
		}
	}
}

// TestRolloutOfALongName: whoever may begin a rollout, its orders are not refused for the name.
func TestRolloutOfALongName(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	service := api.New(w.Coord, w.Store, api.Config{Upgrades: everyWay{}})
	w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h2", Precopied: true}})
	req := rolloutOf(deploymenttest.Name)
	req.RequestedBy = strings.Repeat("é", 100)
	ctx := access.WithCaller(t.Context(), access.Caller{Identity: access.Identity{Name: "cert:a\n" + strings.Repeat("b", 300), Proof: "certificate"}})
	r := must(service.BeginRollout(ctx, connect.NewRequest(req))).Msg
	if n := len(r.BeganBy); n > 200 || n < 190 || strings.Contains(r.BeganBy, "\n") {
		t.Errorf("it is begun by %q", r.BeganBy)
	}
	by := "rollout to-v2 of " + r.BeganBy
	if err := service.BeginFor(t.Context(), "r-1", "v2", by); err != nil {
		t.Fatal(err)
	}
	if err := service.AbortFor(t.Context(), "r-1", "a test", by); err != nil {
		t.Fatal(err)
	}
	d, err := w.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e := d.History[len(d.History)-1]; len(e.By) > 200 || !strings.HasPrefix(e.By, "rollout to-v2 of cert:a?b") {
		t.Errorf("the history has %q", e.By)
	}
}

// TestOneRolloutOfADeployment: what was stopped does not go on while another rollout has its
// deployment, and of two that begin at the same time one begins.
func TestOneRolloutOfADeployment(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	service := api.New(w.Coord, w.Store, api.Config{})
	begin := func(name string) error {
		req := rolloutOf(deploymenttest.Name)
		req.Name = name
		_, err := service.BeginRollout(t.Context(), connect.NewRequest(req))
		return err
	}
	change := func(name string, verb dbv1.ChangeRolloutRequest_Verb) error {
		_, err := service.ChangeRollout(t.Context(), connect.NewRequest(&dbv1.ChangeRolloutRequest{Name: name, Verb: verb}))
		return err
	}
	check := func(what string, err error, want string) {
		t.Helper()
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	const resume, stop, back = dbv1.ChangeRolloutRequest_RESUME, dbv1.ChangeRolloutRequest_STOP, dbv1.ChangeRolloutRequest_ROLLBACK
	check("begin first", begin("first"), "")
	// An order, so that a rollback has something to do.
	_, err := w.Store.Rollouts().Change(t.Context(), "first", func(r rollout.Rollout) (rollout.Rollout, bool, error) {
		r.Waves[0].Items[0].Order, r.Waves[0].Items[0].ID = rollout.Forward, "r-1-0-0-1"
		return r, true, nil
	})
	check("order", err, "")
	check("stop first", change("first", stop), "")
	check("begin second", begin("second"), "")
	check("resume first", change("first", resume), "rollout resume: "+deploymenttest.Name+" is in rollout second, which is RUNNING")
	check("roll first back", change("first", back), "rollout rollback: "+deploymenttest.Name+" is in rollout second, which is RUNNING")
	check("stop second", change("second", stop), "")
	// Between the check and the commit of one, the other becomes active.
	race := func(rival func() error) {
		once := true
		w.Coord.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
			if once {
				once = false
				check("the rival", rival(), "")
			}
			return memcoord.Deliver
		})
	}
	race(func() error { return begin("third") })
	check("resume in a race", change("first", resume), "is in rollout third, which is RUNNING")
	check("stop third", change("third", stop), "")
	race(func() error { return change("first", resume) })
	check("begin in a race", begin("fourth"), "is in rollout first, which is RUNNING")
	// A rival with other deployments does not stand in the way.
	other := deployment.New(w.Coord, "services/bbs.example.com/deployments/new", deployment.Config{})
	_, err = other.Create(t.Context(), "v1", 4)
	check("create another deployment", err, "")
	deploymenttest.World{Coord: w.Coord, Store: other}.WithVersions(t)
	beginOther := func(name string) error {
		req := rolloutOf(other.Name())
		req.Name = name
		_, err := service.BeginRollout(t.Context(), connect.NewRequest(req))
		return err
	}
	check("stop first again", change("first", stop), "")
	race(func() error { return beginOther("fifth") })
	check("begin in a race of others", begin("sixth"), "")
	for _, name := range []string{"fifth", "sixth"} {
		if r, err := w.Store.Rollouts().Get(t.Context(), name); err != nil || r.State != rollout.Running {
			t.Errorf("%s is %s, %v", name, r.State, err)
		}
	}
}

// TestForgetUnreadable: a record that cannot be read blocks others, which say how to delete it. Its
// name has to be confirmed.
func TestForgetUnreadable(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"not JSON", `{"format": 99}`} {
		w := deploymenttest.New(t).WithVersions(t)
		service := api.New(w.Coord, w.Store, api.Config{})
		if _, err := w.Coord.Commit(t.Context(), nil, []coord.Op{{Key: deployment.DefaultPrefix + "/rollouts/broken", Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
		begin := func() error {
			_, err := service.BeginRollout(t.Context(), connect.NewRequest(rolloutOf(deploymenttest.Name)))
			return err
		}
		forget := func(confirm string, dry bool) error {
			_, err := service.ForgetRollout(t.Context(), connect.NewRequest(&dbv1.ForgetRolloutRequest{Name: "broken", Confirm: confirm, DryRun: dry}))
			return err
		}
		if err := begin(); err == nil || !strings.Contains(err.Error(), "'rollout forget broken --confirm broken' deletes it") {
			t.Errorf("begin beside it: %v", err)
		}
		for _, confirm := range []string{"", "to-v2"} {
			if err := forget(confirm, false); err == nil || !strings.Contains(err.Error(), "give its name again as confirm") {
				t.Errorf("forget with confirm %q: %v", confirm, err)
			}
		}
		if err := forget("", true); err != nil {
			t.Errorf("dry run: %v", err)
		}
		if err := begin(); err == nil {
			t.Error("a dry run has deleted it")
		}
		if err := forget("broken", false); err != nil {
			t.Errorf("confirmed: %v", err)
		}
		if err := begin(); err != nil {
			t.Errorf("after it: %v", err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
