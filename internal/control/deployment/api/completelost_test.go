package api_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/upgradestate"
)

// TestCompleteOfALostDatabase: a retirement that could never end is refused, with the confirmation
// that gives the data up. The same confirmation ends a retirement that waits already.
func TestCompleteOfALostDatabase(t *testing.T) {
	t.Parallel()
	const right = name + "/replicaSet/c1/mongo:dbc_v1"
	const hint = "the data of v1 cannot be dropped: it does not answer; if its database is lost for good, give --confirm " + right + "/lost, and nothing is dropped there"
	for _, when := range []string{"before", "while it is dropped", "while it is kept"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			w := deploymenttest.New(t).WithVersions(t)
			w.Flip(t)
			var away atomic.Bool
			a := serveWith(t, w, api.Config{RetireLacks: func(context.Context, upgradestate.Deployment, string) (bool, error) {
				if away.Load() {
					return true, errors.New("it does not answer")
				}
				return false, nil
			}})
			a.fails(t, "Complete", `{"version": "v1", "confirm": "`+right+`/lost"}`,
				"failed_precondition: complete: the database of v1 is not lost, as far as this controller can see: give --confirm "+right)
			var does told
			switch when {
			case "before":
				away.Store(true)
				for _, dry := range []string{"", `, "dryRun": true`} {
					a.fails(t, "Complete", `{"version": "v1", "confirm": "`+right+`"`+dry+`}`, "failed_precondition: complete: "+hint)
				}
			case "while it is dropped":
				a.ok(t, "Complete", `{"version": "v1", "keepForMs": "0", "confirm": "`+right+`"}`, &does)
				away.Store(true)
				a.ok(t, "Complete", `{"version": "v1"}`, &does)
				if text := strings.Join(does.Effects, "; "); text != "nothing: v1 is being retired already; "+hint {
					t.Errorf("it says %q", text)
				}
			case "while it is kept":
				a.ok(t, "Complete", `{"version": "v1", "confirm": "`+right+`"}`, &does)
				w.Apply(t, upgradestate.SetAside{Version: "v1"})
				away.Store(true)
			}
			a.ok(t, "Complete", `{"version": "v1", "confirm": "`+right+`/lost"}`, &does)
			if text := strings.Join(does.Effects, "; "); strings.HasPrefix(text, "nothing") || strings.Contains(text, "drop collection") {
				t.Errorf("it would %s", text)
			}
			d, err := w.Store.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if when == "while it is kept" {
				if len(d.Kept) != 0 {
					t.Errorf("kept: %+v", d.Kept)
				}
				return
			}
			if d.Retire == nil || !d.Retire.Lost {
				t.Fatalf("retire: %+v", d.Retire)
			}
			w.Apply(t, upgradestate.Dropped{Version: "v1"})
			a.ok(t, "Complete", `{"version": "v1", "confirm": "`+right+`/lost"}`, &does)
			if text := strings.Join(does.Effects, "; "); text != "nothing: v1 was retired already" {
				t.Errorf("a repetition says %q", text)
			}
		})
	}
}

// TestCompleteOfADatabaseThatRefuses: the data of a database that answers are not given up. The
// operator learns what to correct.
func TestCompleteOfADatabaseThatRefuses(t *testing.T) {
	t.Parallel()
	const right = name + "/replicaSet/c1/mongo:dbc_v1"
	w := deploymenttest.New(t).WithVersions(t)
	w.Flip(t)
	a := serveWith(t, w, api.Config{RetireLacks: func(context.Context, upgradestate.Deployment, string) (bool, error) {
		return false, errors.New("login refused")
	}})
	for _, confirm := range []string{right, right + "/lost"} {
		a.fails(t, "Complete", `{"version": "v1", "confirm": "`+confirm+`"}`,
			"failed_precondition: complete: the data of v1 cannot be dropped: login refused; its database answers, so it is not lost: "+
				"correct this and repeat the command (if it is lost for good and another server has its address, remove v1 from dbs first)")
	}
	if d, err := w.Store.Get(t.Context()); err != nil || d.Retire != nil {
		t.Errorf("retire: %+v, %v", d.Retire, err)
	}
}

// TestCompleteOfALostTarget: the database of a version that never served is lost. Its version can be
// given up before the first switch, and only then.
func TestCompleteOfALostTarget(t *testing.T) {
	t.Parallel()
	const right = name + "/replicaSet/c2/mongo:dbc_v2"
	w := deploymenttest.New(t).WithVersions(t)
	var away atomic.Bool
	a := serveWith(t, w, api.Config{RetireLacks: func(context.Context, upgradestate.Deployment, string) (bool, error) {
		if away.Load() {
			return true, errors.New("it does not answer")
		}
		return false, nil
	}})
	a.fails(t, "Complete", `{"version": "v2", "confirm": "`+right+`"}`, "failed_precondition: complete: v2 is still in use: no switch was made yet")
	away.Store(true)
	a.fails(t, "Complete", `{"version": "v2", "confirm": "`+right+`"}`,
		"failed_precondition: complete: the data of v2 cannot be dropped: it does not answer; if its database is lost for good, give --confirm "+right+"/lost, and nothing is dropped there")
	var does told
	a.ok(t, "Complete", `{"version": "v2", "confirm": "`+right+`/lost"}`, &does)
	d := w.Apply(t, upgradestate.Dropped{Version: "v2"})
	if d.CurrentVersion != "v1" || len(d.Namespaces) != 1 || !upgradestate.Retired(d, "v2") {
		t.Errorf("at %s with %+v", d.CurrentVersion, d.Namespaces)
	}
}
