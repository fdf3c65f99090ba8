package upgradestate_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestReplace: a replaced collection is the kind's from then on, no shard is ready, the target is
// fenced, and what was copied counts no longer, in whatever state the sync to it is.
func TestReplace(t *testing.T) {
	t.Parallel()
	const start = "new v1 2\nnamespace v1 lrps:uuid users:fixed-view\nnamespace v2 lrps:uuid users:fixed-view"
	const begin, flip = "Begin ID=u1 TargetVersion=v2 TransformHash=h", "until FLIPPED\ndo\ndo"
	for name, script := range map[string][]string{ // the other version is offered before the second part
		"an upgrade waits":      {"", begin},
		"two shards are ready":  {"", begin + "\nReport ID=u1 State=INITIAL_SYNCING Attempt=1 Shards=[0,1]"},
		"an upgrade was ended":  {"", begin + "\nAbort ID=u1"},
		"after a switch":        {begin + "\n" + flip, ""},
		"after a recovery":      {"", "adopt"},
		"a rollback to be made": {begin + "\n" + flip, "Begin ID=u2 TargetVersion=v1 TransformHash=h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d us.Deployment
			play(t, &d, start+"\n"+script[0])
			source, other := d.CurrentVersion, map[string]string{"v1": "v2", "v2": "v1"}[d.CurrentVersion]
			step(t, &d, us.AnnounceAvailable{Available: us.Available{TargetVersion: other, TransformHash: "h"}})
			if script[1] == "adopt" {
				ns, _ := d.Namespace(d.CurrentVersion)
				k, _ := ns.Kind("lrps")
				step(t, &d, us.Adopt{Epoch: d.Epoch, Collections: []us.Adopted{{Version: d.CurrentVersion, Kind: "lrps", Was: k.ID, Is: "moved"}}})
				if _, bound := us.ImagesOf(d, other); bound {
					t.Fatal("a recovery binds the images")
				}
			} else {
				play(t, &d, script[1])
			}
			before := d
			ns, _ := d.Namespace(source)
			k, _ := ns.Kind("users")
			ev := us.Replace{Collections: []us.Replaced{{Kind: "users", Was: k.ID, Is: "new", Restore: "r", Detail: "swapped"}}}
			step(t, &d, ev)
			ns, _ = d.Namespace(source)
			got, _ := ns.Kind("users")
			if got.ID != "new" || got.Physical != "users" || got.Restore != "r" || got.Replaced != 1 || d.Epoch != before.Epoch {
				t.Errorf("the kind is %+v in epoch %d", got, d.Epoch)
			}
			if u := d.Upgrade; u != nil && (len(u.ReadyShards) > 0 || u.ID != before.Upgrade.ID) {
				t.Errorf("the upgrade is %+v", u)
			}
			was, _ := us.ImagesOf(before, other)
			is, ok := us.ImagesOf(d, other)
			if !ok || is.Generation != was.Generation+1 || is.Fences != 0 {
				t.Errorf("images of %s were %+v and are %+v", other, was, is)
			}
			if _, follows := us.Followed(d); follows && us.ApplyAllowed(d) {
				t.Error("who has read the former collection can write to the target")
			}
			if e := d.History[len(d.History)-1]; e.What != "replace" || !strings.Contains(e.Detail, k.ID) || !strings.Contains(e.Detail, "new") {
				t.Errorf("history %+v", e)
			}
			if err := us.Validate(d); err != nil {
				t.Error(err)
			}
			if _, err := us.Apply(d, ev); !errors.Is(err, us.ErrOutdated) {
				t.Errorf("noted twice: %v", err)
			}
			away := us.Replace{Collections: []us.Replaced{{Kind: "users", Was: "new", Is: "new", Count: 1, Detail: "it was away"}}}
			step(t, &d, away)
			if _, err := us.Apply(d, away); !errors.Is(err, us.ErrOutdated) {
				t.Errorf("noted twice that it was away: %v", err)
			}
			ns, _ = d.Namespace(source)
			if again, _ := ns.Kind("users"); again.Restore != "r" {
				t.Errorf("away and back, it is %+v", again)
			}
			lrps, _ := ns.Kind("lrps")
			for what, c := range map[string]us.Replaced{
				"a managed kind":     {Kind: "lrps", Was: lrps.ID, Is: "x"},
				"no such kind":       {Kind: "none", Was: "a", Is: "x"},
				"nothing instead":    {Kind: "users", Was: "new", Count: 2},
				"another kind's":     {Kind: "users", Was: "new", Is: lrps.ID, Count: 2},
				"no collection said": {},
			} {
				var refusal *us.RefusedError
				if _, err := us.Apply(d, us.Replace{Collections: []us.Replaced{c}}); !errors.As(err, &refusal) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// TestReplaceWaitsForASwitch: in no step of a switch, nor of its abort, is a collection taken for
// another one.
func TestReplaceWaitsForASwitch(t *testing.T) {
	t.Parallel()
	for _, until := range []string{"HOLD", "FENCE", "DRAIN", "SEAL_TARGET", "SEAL_SOURCE"} {
		for _, abort := range []string{"", "\nAbort ID=u1"} {
			var d us.Deployment
			play(t, &d, "new v1 2\nnamespace v1 users:fixed-view\nnamespace v2 users:fixed-view\n"+
				"Begin ID=u1 TargetVersion=v2 TransformHash=h\nuntil "+until+abort)
			ns, _ := d.Namespace("v1")
			k, _ := ns.Kind("users")
			next, err := us.Apply(d, us.Replace{Collections: []us.Replaced{{Kind: "users", Was: k.ID, Is: "new"}}})
			if err == nil || !strings.Contains(err.Error(), "abort it first") || !reflect.DeepEqual(next, d) {
				t.Errorf("in %s%s: %v", until, abort, err)
			}
		}
	}
}

// TestAnew: replaced collections are shown from the replacement until everything is compared for
// that very direction and generation, or the direction ends.
func TestAnew(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	play(t, &d, "new v1 2\nnamespace v1 users:fixed-view logs:fixed-view\nnamespace v2 users:fixed-view logs:fixed-view")
	step(t, &d, us.AnnounceAvailable{Available: us.Available{TargetVersion: "v2", TransformHash: "h"}})
	replace := func(kind, at string) {
		t.Helper()
		ns, _ := d.Namespace("v1")
		k, _ := ns.Kind(kind)
		step(t, &d, us.Replace{At: at, Collections: []us.Replaced{{Kind: kind, Was: k.ID, Is: k.ID + "x", Count: k.Replaced}}})
	}
	kinds := func() (names string) {
		if x := us.OpenAnew(d); x != nil {
			for _, k := range x.Kinds {
				names += k.Kind + "@" + k.At + " "
			}
		}
		return names
	}
	replace("users", "0")
	if d.Anew != nil {
		t.Fatalf("nothing follows v1, and %+v is copied anew", d.Anew)
	}
	play(t, &d, "Begin ID=u1 TargetVersion=v2 TransformHash=h")
	replace("users", "1")
	seen, _ := us.ImagesOf(d, "v2")
	replace("logs", "2")
	replace("users", "3")
	if got := kinds(); got != "logs@2 users@3 " {
		t.Fatalf("replaced are %s", got)
	}
	if x := us.OpenAnew(d); x.Version != "v1" || x.To != "v2" || x.Kinds[1].Was == "" {
		t.Errorf("%+v", x)
	}
	now, _ := us.ImagesOf(d, "v2")
	for what, e := range map[string]us.CopiedAnew{
		"a comparison from before the latest replacement": {To: "v2", Epoch: d.Epoch, Seen: seen},
		"one of another epoch":                            {To: "v2", Epoch: d.Epoch + 1, Seen: now},
		"one of no version":                               {To: "v3", Epoch: d.Epoch},
	} {
		if _, err := us.Apply(d, e); !errors.Is(err, us.ErrOutdated) {
			t.Errorf("%s: %v", what, err)
		}
	}
	followed := d
	step(t, &d, us.CopiedAnew{To: "v2", Epoch: d.Epoch, Seen: now})
	if d.Anew != nil {
		t.Errorf("compared, and %+v is left", d.Anew)
	}
	step(t, &d, us.CopiedAnew{To: "v2", Epoch: d.Epoch, Seen: now}) // by another controller
	if err := us.Validate(d); err != nil {
		t.Error(err)
	}

	d = followed
	play(t, &d, "until HOLD")
	now, _ = us.ImagesOf(d, "v2")
	if _, err := us.Apply(d, us.CopiedAnew{To: "v2", Epoch: d.Epoch, Seen: now}); !errors.Is(err, us.ErrOutdated) {
		t.Errorf("noted in a switch: %v", err)
	}
	play(t, &d, "until FLIPPED")
	if got := kinds(); got != "" {
		t.Errorf("after the switch %s is copied anew", got)
	}

	d = followed
	play(t, &d, "Abort ID=u1")
	if got := kinds(); got != "" {
		t.Errorf("nothing follows v1, and %s is copied anew", got)
	}
}
