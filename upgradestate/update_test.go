package upgradestate_test

import (
	"errors"
	"strings"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestUpdateWithFailures: a run whose task failed on some records is none that is done.
func TestUpdateWithFailures(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	run := us.Update{ID: "d1", Name: "fill", Hash: "h", Version: "v1", Kind: "a"}
	r.apply("eve", us.BeginUpdate{Update: run})
	first := us.UpdateDone{ID: "d1", Shard: 0, Count: us.UpdateCount{Seen: 3, Changed: 1, Failed: 2}, Example: "x: it is bad"}
	r.apply("c-1", first)
	r.apply("c-1", first) // counts once
	r.apply("c-2", us.UpdateDone{ID: "d1", Shard: 1, Count: us.UpdateCount{Seen: 4, Failed: 1}, Example: "y: it is worse"})
	if e := r.d.History[0]; e.Outcome != "not done: 3 records failed, such as x: it is bad; 7 seen, 1 changed" {
		t.Errorf("it ended as %q", e.Outcome)
	}
	run.ID, run.Count, run.Example = "d2", us.UpdateCount{Failed: 7}, "z: of another run"
	r.apply("eve", us.BeginUpdate{Update: run})
	if u := r.d.Update; u.Count != (us.UpdateCount{}) || u.Example != "" {
		t.Errorf("it begins with %+v", u)
	}
}

// TestRotationOverKinds: records are brought under a key kind by kind, as one update, of which a
// late report of a kind before is no part.
func TestRotationOverKinds(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	play(t, &d, `new v1 2
namespace v1 a:uuid b:uuid c:fixed-view`)
	r := &told{t: t, d: d}
	u := us.Update{ID: "d1", Name: us.RotateKeys, Hash: "h", Version: "v1", Kind: "a", Key: "a002", Rest: []string{"b"}}
	for _, kind := range []string{"none", "c"} { // c is an application's
		bad := u
		bad.Rest = []string{kind}
		if _, err := us.Apply(r.d, us.BeginUpdate{Update: bad}); err == nil {
			t.Errorf("it begins over %s", kind)
		}
	}
	r.apply("c-1", us.BeginUpdate{Update: u})
	done := func(run string, shard int) { // of 5 records
		r.apply("c-1", us.UpdateDone{ID: run, Shard: shard, Count: us.UpdateCount{Seen: 5, Changed: 4}})
	}
	done("d1", 0)
	done("d1", 1)
	if got := r.d.Update; got == nil || got.Run() != "d1.1" || got.Kind != "b" || len(got.Rest) != 0 || len(got.Done) != 0 {
		t.Fatalf("after the first kind: %+v", got)
	}
	if _, err := us.Apply(r.d, us.UpdateDone{ID: "d1", Shard: 0}); err == nil {
		t.Error("a late report of the first kind counts for the second")
	}
	done("d1.1", 1)
	done("d1.1", 0)
	if e := r.d.History[0]; r.d.Update != nil || len(r.d.History) != 1 || e.Detail != "rotate-keys to a002" || e.Outcome != "done; 20 seen, 16 changed" || e.Ended == "" {
		t.Errorf("update %+v, history %+v", r.d.Update, r.d.History)
	}
}

// TestRotationCoversWhatJoins: a kind that the one that began the rotation did not know of, or that
// joins while it runs, is gone over as well; one of an application, or of another version, is not.
func TestRotationCoversWhatJoins(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	play(t, &d, `new v1 1
namespace v1 a:uuid b:uuid
namespace v2 a:uuid`)
	r := &told{t: t, d: d}
	r.apply("c-1", us.BeginUpdate{Update: us.Update{ID: "d1", Name: us.RotateKeys, Hash: "h", Version: "v1", Kind: "a", Key: "a002"}})
	for _, late := range []us.Namespace{namespace("v1", []string{"c:uuid"}, true), namespace("v1", []string{"f:fixed-view"}, true), namespace("v2", []string{"g:uuid"}, false)} {
		r.apply("c-1", us.AnnounceNamespace{Namespace: late})
		r.apply("c-1", us.AnnounceNamespace{Namespace: late})
	}
	var over []string
	for r.d.Update != nil && len(over) < 5 {
		over = append(over, r.d.Update.Kind)
		r.apply("c-1", us.UpdateDone{ID: r.d.Update.Run()})
	}
	if got := strings.Join(over, " "); got != "a b c" {
		t.Errorf("it goes over %s, want a b c", got)
	}
	r.apply("eve", us.BeginUpdate{Update: us.Update{ID: "d2", Name: "fill", Hash: "h", Version: "v1", Kind: "a"}})
	r.apply("c-1", us.AnnounceNamespace{Namespace: namespace("v1", []string{"e:uuid"}, true)})
	if u := r.d.Update; len(u.Rest) > 0 {
		t.Errorf("a task of the service goes over %v, too", u.Rest)
	}
}

// TestUpgradeEndsRotation: an upgrade, and so a rollback, waits for no rotation, which is begun
// again afterwards; a task of the service is for its operator to end.
func TestUpgradeEndsRotation(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "a002"} {
		r := newTold(t)
		r.apply("c-1", us.BeginUpdate{Update: us.Update{ID: "d1", Name: "n", Hash: "h", Version: "v1", Kind: "a", Key: key}})
		r.apply("eve", us.Begin{ID: "u1", TargetVersion: "v2", TransformHash: "h"})
		if runs := r.d.Update != nil; runs == (key != "") || r.d.Upgrade == nil {
			t.Errorf("key %q: it still runs: %t", key, runs)
		}
		if ns, _ := r.d.Namespace("v1"); ns.DeclinedKey != "" {
			t.Errorf("key %s was declined by nobody", ns.DeclinedKey)
		}
		for _, e := range r.d.History {
			if want := "cancelled: upgrade u1 begins; 0 seen, 0 changed"; key != "" && e.What == "update" && (e.Outcome != want || e.Ended == "") {
				t.Errorf("it ended as %q at %q", e.Outcome, e.Ended)
			}
		}
	}
}

// TestDeclinedKey: a rotation that was cancelled, or in which records failed, leaves which key it
// was for, until it is begun again, or another key is configured.
func TestDeclinedKey(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	declined := func(want string) {
		t.Helper()
		if ns, _ := r.d.Namespace("v1"); ns.DeclinedKey != want {
			t.Errorf("declined is %q, want %q", ns.DeclinedKey, want)
		}
	}
	begin := func(id, key string) {
		r.apply("c-1", us.BeginUpdate{Update: us.Update{ID: id, Name: us.RotateKeys, Hash: "h", Version: "v1", Kind: "a", Key: key}})
	}
	begin("d1", "a002")
	r.apply("eve", us.CancelUpdate{})
	declined("a002")
	r.apply("c-1", us.ConfigureKey{Version: "v1", Key: "a002"})
	r.apply("c-1", us.ConfigureKey{Version: "v9", Key: "a009"})
	declined("a002")
	r.apply("c-1", us.ConfigureKey{Version: "v1", Key: "a001"})
	declined("")
	begin("d2", "a002")
	r.apply("eve", us.CancelUpdate{})
	begin("d3", "a002")
	declined("")
	failed := us.UpdateCount{Failed: 1}
	for r.d.Update != nil {
		for shard := range 2 {
			r.apply("c-1", us.UpdateDone{ID: r.d.Update.Run(), Shard: shard, Count: failed})
			if failed.Failed = 0; r.d.Update == nil {
				break
			}
		}
	}
	declined("a002")
	r.apply("eve", us.BeginUpdate{Update: us.Update{ID: "d4", Name: "fill", Hash: "h", Version: "v1", Kind: "a"}})
	r.apply("eve", us.CancelUpdate{})
	declined("a002")
}

// TestUnasked: an update that a controller begins by itself does not begin where what it was decided
// by has changed meanwhile, and that is no refusal; one that a person asks for does.
func TestUnasked(t *testing.T) {
	t.Parallel()
	u := us.Update{ID: "d1", Name: us.RotateKeys, Hash: "h", Version: "v1", Kind: "a", Key: "a002"}
	for name, tc := range map[string]struct {
		before func(r *told)
		key    string // of u
		begins bool   // unasked; one that is asked for does anyway
	}{
		"nothing has changed": {func(*told) {}, "a002", true},
		"an upgrade runs": {func(r *told) {
			r.apply("eve", us.Begin{ID: "u1", TargetVersion: "v2", TransformHash: "h"})
		}, "a002", false},
		"it was declined": {func(r *told) {
			r.apply("c-1", us.BeginUpdate{Update: u, Unasked: true})
			r.apply("eve", us.CancelUpdate{})
		}, "a002", false},
		"another one was declined": {func(r *told) {
			r.apply("c-1", us.BeginUpdate{Update: u, Unasked: true})
			r.apply("eve", us.CancelUpdate{})
		}, "a003", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTold(t)
			tc.before(r)
			next := u
			next.ID, next.Key = "d2", tc.key
			for _, unasked := range []bool{true, false} {
				d, err := us.Apply(r.d, us.BeginUpdate{Update: next, Unasked: unasked})
				begins := err == nil && d.Update != nil && d.Update.ID == "d2"
				if begins != (tc.begins || !unasked) {
					t.Errorf("unasked %t: it begins: %t, %v", unasked, begins, err)
				}
				if err != nil && !errors.Is(err, us.ErrOutdated) {
					t.Errorf("unasked %t: %v, want ErrOutdated", unasked, err)
				}
			}
		})
	}
	other := u
	other.Version = "v2"
	if _, err := us.Apply(newTold(t).d, us.BeginUpdate{Update: other, Unasked: true}); !errors.Is(err, us.ErrOutdated) {
		t.Errorf("of another version than the current one: %v", err)
	}
}
