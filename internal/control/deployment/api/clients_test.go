package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/upgradestate"
)

// location is what an application reads.
type location struct {
	State, Version, Database, UpgradeID, Attempt, Revision string
	Deployment, Epoch                                      string
	Kinds                                                  []struct {
		Kind, Database, Collection string
		Fixed                      bool
	}
}

// TestApplication plays an application of a fixed-name kind through a whole switch.
func TestApplication(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serve(t, w)
	var reg struct {
		ClientID string
		TTLMs    int
		Location location
	}
	a.fails(t, "RegisterClient", `{}`, `invalid_argument: application "": want a name of the application, such as billing`)
	a.fails(t, "RegisterClient", `{"application": "a b"}`, `invalid_argument: application "a b": want letters, digits, and any of . _ -`)
	a.fails(t, "RegisterClient", `{"clientId": "bbs-1"}`, `invalid_argument: client_id "bbs-1": want client-APPLICATION-SOMETHING of letters, digits, and any of . _ -, or none to let the controller make one`)
	a.fails(t, "RegisterClient", `{"application": "billing", "ttlMs": 10}`, `invalid_argument: ttl_ms "10": want 1000 to 300000, or 0 for 15000`)
	a.ok(t, "RegisterClient", `{"application": "billing"}`, &reg)
	if !strings.HasPrefix(reg.ClientID, "client-billing-") || reg.TTLMs != 15000 {
		t.Errorf("registered %+v", reg)
	}
	at := reg.Location
	if at.State != "OPEN" || at.Version != "v1" || at.Database != "dbc_v1" || at.Deployment != w.Store.Name() || at.Epoch != "1" || len(at.Kinds) != 1 || at.Kinds[0].Collection != "packages" {
		t.Errorf("location %+v", at)
	}
	a.fails(t, "AckHold", `{"clientId": "`+reg.ClientID+`", "upgradeId": "u1", "attempt": 1}`,
		`failed_precondition: ack-hold: attempt 1 of upgrade "u1" is not switching now: call GetLocation`)

	// Nothing changes in time: the location as it is.
	var same location
	a.ok(t, "GetLocation", `{"waitRevision": "`+at.Revision+`", "timeoutMs": 1}`, &same)
	if diff := cmp.Diff(at, same); diff != "" {
		t.Errorf("unchanged (-want +got):\n%s", diff)
	}

	// It waits for something to happen, until it is to hold.
	holding := make(chan location)
	go func() {
		defer close(holding)
		now := at
		for now.State != "HOLD" {
			_, answer, err := a.call(t.Context(), "GetLocation", fmt.Sprintf(`{"waitRevision": %q}`, now.Revision))
			if err == nil {
				err = json.Unmarshal(answer, &now)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
		holding <- now
	}()
	w.Switching(t)
	now := <-holding
	if now.UpgradeID != "u1" || now.Attempt != "2" && now.Attempt == "" || now.Version != "v1" {
		t.Errorf("hold %+v", now)
	}
	var ack struct{ Acked, Total int }
	a.ok(t, "AckHold", fmt.Sprintf(`{"clientId": %q, "upgradeId": %q, "attempt": %s}`, reg.ClientID, now.UpgradeID, now.Attempt), &ack)
	if ack.Acked != 1 || ack.Total != 1 {
		t.Errorf("ack %+v", ack)
	}
	if err := w.Store.Held(t.Context(), "u1", 2); err != nil {
		t.Error(err)
	}
	a.fails(t, "AckHold", `{"clientId": "client-x-y", "upgradeId": "u1", "attempt": 2}`, `not_found: ack-hold: client-x-y: not registered`)

	// Renewing keeps the acknowledgement.
	a.ok(t, "RegisterClient", `{"clientId": "`+reg.ClientID+`"}`, &reg)
	if acked, _, err := w.Store.Acks(t.Context(), "u1", 2); acked != 1 || err != nil {
		t.Errorf("after renewing %d acks, %v", acked, err)
	}

	d := w.Apply(t, upgradestate.Abort{ID: "u1", Reason: "test"})
	for d.Upgrade != nil {
		for _, act := range upgradestate.Actions(d) {
			switch act := act.(type) {
			case upgradestate.Execute:
				d = w.Apply(t, upgradestate.Confirmed{Version: act.Version, Kind: act.Place.Kind, To: act.Pending.To})
			case upgradestate.FinishAbort:
				d = w.Apply(t, upgradestate.Aborted{ID: act.ID})
			default:
				t.Fatalf("action %T", act)
			}
		}
	}
	a.ok(t, "GetLocation", fmt.Sprintf(`{"waitRevision": %q}`, now.Revision), &same)
	if same.State != "OPEN" || same.Version != "v1" {
		t.Errorf("after the abort %+v", same)
	}
}

// TestRegistrationDuringASwitch: a switch that begins while a client registers either waits for the
// client, or the client learns of it with the registration.
func TestRegistrationDuringASwitch(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serve(t, w)
	others := deploymenttest.World{Coord: w.Coord.Client()}
	others.Store = deployment.New(others.Coord, deploymenttest.Name, deployment.Config{})
	w.Coord.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
		w.Coord.OnCommit(nil)
		others.Switching(t)
		// No client is registered yet, so nobody has to acknowledge.
		if err := others.Store.Held(t.Context(), "u1", 2); err != nil {
			t.Error(err)
		}
		return memcoord.Deliver
	})
	var reg struct{ Location location }
	a.ok(t, "RegisterClient", `{"application": "billing"}`, &reg)
	if at := reg.Location; at.State != "HOLD" || at.UpgradeID != "u1" || at.Attempt != "2" {
		t.Errorf("registered during the switch at %+v", at)
	}
}

// TestLocationAfterTheSwitch: no writing before the collection of the new version bears its
// name, and reading where there is something to read.
func TestLocationAfterTheSwitch(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	d := w.Flip(t)
	a := serve(t, w)
	var at location
	a.ok(t, "GetLocation", `{}`, &at)
	if at.State != "HOLD" || at.Version != "v1" || at.Database != "dbc_v1" || at.Kinds[0].Database != "dbc_v1" || at.UpgradeID != "u1" {
		t.Errorf("before it is open %+v", at)
	}
	// An application that holds from now on has nobody to tell it to.
	var answer map[string]any
	a.ok(t, "AckHold", `{"clientId": "client-late", "upgradeId": "u1"}`, &answer)
	for _, act := range upgradestate.Actions(d) {
		if p, ok := act.(upgradestate.Execute); ok {
			d = w.Apply(t, upgradestate.Confirmed{Version: p.Version, Kind: p.Place.Kind, To: p.Pending.To})
		}
	}
	a.ok(t, "GetLocation", `{}`, &at)
	if at.State != "OPEN" || at.Version != "v2" || at.Database != "dbc_v2" || at.Kinds[0].Collection != "packages" {
		t.Errorf("open %+v (record %+v)", at, d)
	}
}

// TestClientThatStopsCalling: its registration ends after its ttl; a switch does not
// wait for the dead.
func TestClientThatStopsCalling(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	a := serve(t, w)
	var gone, stays struct{ ClientID string }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a.ok(t, "RegisterClient", `{"application": "stays", "ttlMs": 300000}`, &stays)
	a.ok(t, "RegisterClient", `{"application": "gone", "ttlMs": 1000}`, &gone) // which it was, whatever a watch shows
	for servers := range w.Store.WatchServers(ctx) {
		if len(servers) == 1 {
			if servers[0].ID != stays.ClientID || !servers[0].Client {
				t.Errorf("left is %+v", servers)
			}
			return
		}
	}
	t.Error("the registration did not end")
}

// TestClientMovesToAnotherController: the registration survives the end of the one that
// it was made through.
func TestClientMovesToAnotherController(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	b := serve(t, deploymenttest.World{Coord: w.Coord.Client(), Store: w.Store})
	var reg struct{ ClientID string }
	t.Run("first", func(t *testing.T) {
		a := serve(t, deploymenttest.World{Coord: w.Coord.Client(), Store: w.Store})
		a.ok(t, "RegisterClient", `{"application": "billing"}`, &reg)
		b.ok(t, "RegisterClient", `{"clientId": "`+reg.ClientID+`"}`, &reg)
	}) // the first controller stops here
	servers, err := w.Store.Servers(t.Context())
	if err != nil || len(servers) != 1 || servers[0].ID != reg.ClientID {
		t.Errorf("got %+v, %v", servers, err)
	}
}

// registered waits until the clients that are registered are these.
func registered(t *testing.T, w deploymenttest.World, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var have []string
	for servers := range w.Store.WatchServers(ctx) {
		have = nil
		for _, s := range servers {
			have = append(have, s.ID)
		}
		if slices.Equal(have, want) {
			return
		}
	}
	t.Fatalf("registered are %v, want %v", have, want)
}

// TestDeregistration: whichever controller is asked, no switch waits for the client any
// longer, and the one that held the registration does not bring it back.
func TestDeregistration(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	a := serve(t, deploymenttest.World{Coord: w.Coord.Client(), Store: w.Store})
	b := serve(t, deploymenttest.World{Coord: w.Coord.Client(), Store: w.Store})
	var here, there struct{ ClientID string }
	a.ok(t, "RegisterClient", `{"application": "here"}`, &here)
	b.ok(t, "RegisterClient", `{"application": "there"}`, &there)
	a.fails(t, "DeregisterClient", `{"clientId": "bbs-1"}`, `invalid_argument: client_id "bbs-1": want the id that RegisterClient returned`)
	registered(t, w, here.ClientID, there.ClientID)
	var answer map[string]any
	for _, id := range []string{here.ClientID, there.ClientID, there.ClientID} {
		a.ok(t, "DeregisterClient", `{"clientId": "`+id+`"}`, &answer)
	}
	registered(t, w)
	a.ok(t, "RegisterClient", `{"clientId": "`+there.ClientID+`"}`, &there)
	registered(t, w, there.ClientID)
}

// lookups is a coordination store that tells which registrations are looked up.
type lookups struct {
	coord.Store
	ids chan string
}

func (l lookups) Get(ctx context.Context, key string) (coord.KV, error) {
	if dir, id := path.Split(key); path.Base(dir) == "servers" {
		l.ids <- id
	}
	return l.Store.Get(ctx, key)
}

// TestDeadClient: its registration ends with the call in which it waited, long before its
// time is over; that of one which goes on calling stays. So does one that was made at another
// controller.
func TestDeadClient(t *testing.T) {
	t.Parallel()
	for range 20 {
		if deadClient(t) {
			return
		}
	}
	t.Fatal("on a machine as busy as this one no client can call again in time")
}

// deadClient returns false if the client called again so late that its registration may rightly end.
func deadClient(t *testing.T) bool {
	t.Helper()
	w := deploymenttest.New(t).WithVersions(t)
	l := lookups{w.Coord, make(chan string, 1000)}
	a := serve(t, deploymenttest.World{Coord: w.Coord, Store: deployment.New(l, deploymenttest.Name, deployment.Config{})})
	b := serve(t, deploymenttest.World{Coord: w.Coord.Client(), Store: w.Store})
	var at location
	a.ok(t, "GetLocation", `{}`, &at)
	wait := func(ctx context.Context, id string) { // until it is broken off
		_, _, _ = a.call(ctx, "GetLocation", fmt.Sprintf(`{"clientId": %q, "waitRevision": %q, "timeoutMs": 300000}`, id, at.Revision))
	}
	dies := map[string]context.CancelFunc{}
	ids := map[string]string{}
	for name, at := range map[string]served{"calls": a, "dead": a, "victim": b} {
		var reg struct{ ClientID string }
		at.ok(t, "RegisterClient", `{"application": "`+name+`", "ttlMs": 300000}`, &reg)
		ids[name] = reg.ClientID
	}
	for len(l.ids) > 0 {
		<-l.ids
	}
	for name, id := range ids { // of the victim as well at a, and so not at its controller
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		dies[name] = cancel
		go wait(ctx, id)
	}
	// A call counts from its look-up on. Before that, the framework may drop one that is broken off.
	for seen := map[string]bool{}; len(seen) < len(ids); {
		seen[<-l.ids] = true
	}
	start := time.Now()
	for _, name := range []string{"victim", "calls", "dead"} { // the dead one lapses last
		dies[name]()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go wait(ctx, ids["calls"])
	for <-l.ids != ids["calls"] {
	}
	if time.Since(start) > 500*time.Millisecond {
		return false
	}
	registered(t, w, ids["calls"], ids["victim"])
	if took := time.Since(start); took < time.Second {
		t.Errorf("it had %s to call again", took)
	}
	return true
}
