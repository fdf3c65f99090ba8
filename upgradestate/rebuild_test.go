package upgradestate_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestRebuild: after a switch the old version's records count for nothing; a name that is about to
// come stays announced, and what was decided by another record is refused.
func TestRebuild(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	play(t, &d, "new v1 2\nnamespace v1 lrps:uuid users:fixed-view\nnamespace v2 lrps:uuid users:fixed-view\n"+
		"Begin ID=u1 TargetVersion=v2 TransformHash=h\nuntil FLIPPED\ndo\ndo")
	d.LastSwitch.Position = "here"
	seen := func(version string) us.Images {
		ns, _ := d.Namespace(version)
		return ns.Images
	}
	ev := us.Rebuild{Version: "v1", Seen: seen("v1"), Reason: "restored", Found: []us.Place{{Kind: "users", Name: "users", ID: idOf(d, "v1", "users")}}}
	step(t, &d, ev)
	if d.LastSwitch.Position != "" {
		t.Errorf("the plan of the switch counts: %+v", d.LastSwitch)
	}
	ns, _ := d.Namespace("v1")
	users, _ := ns.Kind("users")
	if users.Physical != "users" || users.Hidden || users.Pending == nil || users.Pending.From != "users" {
		t.Errorf("the kind that is open again: %+v", users)
	}
	if as := us.Actions(d); len(as) != 2 || us.ApplyAllowed(d) {
		t.Errorf("actions %+v", as)
	}
	if err := us.Validate(d); err != nil {
		t.Error(err)
	}
	// Once more before the rename is confirmed: it may have been made.
	ev = us.Rebuild{Version: "v1", Seen: seen("v1"), Found: []us.Place{{Kind: "users", Name: users.Pending.To, ID: users.ID}}}
	step(t, &d, ev)
	ns, _ = d.Namespace("v1")
	if again, _ := ns.Kind("users"); again.Pending == nil || *again.Pending != *users.Pending {
		t.Errorf("the announced rename: %+v", again)
	}
	step(t, &d, us.AnnounceAvailable{Available: us.Available{TargetVersion: "v1", TransformHash: "h"}})
	old := seen("v1")
	step(t, &d, us.Rebuild{Version: "v1", Seen: old})
	if is := seen("v1"); is.Generation != old.Generation+1 {
		t.Errorf("images %+v, before %+v", is, old)
	}
	if _, err := us.Apply(d, us.Rebuild{Version: "v1", Seen: old}); !errors.Is(err, us.ErrOutdated) {
		t.Errorf("of a former generation: %v", err)
	}
	for name, e := range map[string]us.Rebuild{
		"the current version":  {Version: "v2", Seen: seen("v2")},
		"no version":           {Version: "v9"},
		"no kind":              {Version: "v1", Seen: seen("v1"), Found: []us.Place{{Kind: "none", Name: "a", ID: "b"}}},
		"no collection":        {Version: "v1", Seen: seen("v1"), Found: []us.Place{{Kind: "users", Name: "a"}}},
		"another's collection": {Version: "v1", Seen: seen("v1"), Found: []us.Place{{Kind: "users", Name: "a", ID: idOf(d, "v1", "lrps")}}},
	} {
		var refusal *us.RefusedError
		if _, err := us.Apply(d, e); !errors.As(err, &refusal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The version that is served was restored to before the switch: only a recovery helps.
	step(t, &d, us.FoundRestored{Restored: us.Restored{Version: "v2", What: "w", Older: true}, Epoch: d.Epoch})
	if line := us.RestoredLine(d); !strings.Contains(line, "older than the names of its collections (w)") || !strings.Contains(line, "'recover --current v2'") {
		t.Errorf("an operator reads %q", line)
	}
	if _, err := us.Apply(d, us.FollowRestored{Version: "v2", Epoch: d.Epoch}); err == nil || !strings.Contains(err.Error(), "'recover --current v2'") {
		t.Errorf("the older state counts: %v", err)
	}
	// The latest switch's old data can be gone back to all the same, as without a controller. What
	// 'restored --keep' does it cannot.
	kept := us.Begin{ID: "u2", TargetVersion: "v1", TransformHash: "h", Snapshot: true}
	d.LastSwitch = nil
	if _, err := us.Apply(d, kept); err == nil || !strings.Contains(err.Error(), "no snapshot of v1") {
		t.Errorf("the other version is kept: %v", err)
	}
	d.Restored[0].Older = false
	if _, err := us.Apply(d, kept); err != nil {
		t.Errorf("kept after a restore to where the names are right: %v", err)
	}
}

// TestRestoredAlone: where no other version follows the restored one goes on by itself, unless the
// record knows other names of its collections.
func TestRestoredAlone(t *testing.T) {
	t.Parallel()
	for _, older := range []bool{false, true} {
		var d us.Deployment
		play(t, &d, "new v1 2\nnamespace v1 lrps:uuid")
		epoch := d.Epoch
		step(t, &d, us.FoundRestored{Restored: us.Restored{Version: "v1", What: "w", Older: older}, Epoch: d.Epoch})
		_, waits := us.WasRestored(d)
		last := d.History[len(d.History)-1]
		if waits != older || (d.Epoch > epoch) == older || last.What != "restored" || last.From != "v1" || strings.HasSuffix(last.Detail, "; no other version followed it") == older {
			t.Errorf("older=%t: waits=%t, epoch %d after %d, %+v", older, waits, d.Epoch, epoch, last)
		}
		// Another controller has found the same, and has looked at the record before.
		if _, err := us.Apply(d, us.FoundRestored{Restored: us.Restored{Version: "v1", What: "w"}, Epoch: epoch}); !older && !errors.Is(err, us.ErrOutdated) {
			t.Errorf("a second controller finds it: %v", err)
		}
		if !older {
			continue
		}
		// The record has the names of the backup by now.
		step(t, &d, us.FoundRestored{Restored: us.Restored{Version: "v1", What: "w"}, Epoch: d.Epoch})
		if _, waits := us.WasRestored(d); waits || d.Epoch == epoch {
			t.Errorf("no longer older: waits=%t, epoch %d after %d", waits, d.Epoch, epoch)
		}
	}
}

// TestRestoredNames: whether the names of a restored database are older is what was seen of it last.
func TestRestoredNames(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	play(t, &d, "new v1 2\nnamespace v1 lrps:uuid\nnamespace v2 lrps:uuid\nBegin ID=u1 TargetVersion=v2 TransformHash=h\nuntil DRAIN")
	found := us.Restored{Version: "v1", What: "w", Older: true}
	step(t, &d, us.FoundRestored{Restored: found, Epoch: d.Epoch})
	history := len(d.History)
	for _, older := range []bool{true, false, true, false} {
		found.Older = older
		step(t, &d, us.FoundRestored{Restored: found, Epoch: d.Epoch})
		if is, waits := us.WasRestored(d); !waits || is != found || len(d.History) != history {
			t.Errorf("it is %+v, %t, want %+v", is, waits, found)
		}
	}
}

// TestAdopt: a collection that was made anew is the kind's from then on, in an epoch that no
// engine takes for the one after a switch, and nothing counts as in sync.
func TestAdopt(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	play(t, &d, "new v1 2\nnamespace v1 lrps:uuid users:fixed-validator\nnamespace v2 lrps:uuid users:fixed-validator\n"+
		"Begin ID=u1 TargetVersion=v2 TransformHash=h\nuntil FLIPPED\ndo\ndo")
	ns, _ := d.Namespace("v2")
	k, _ := ns.Kind("lrps")
	ev := us.Adopt{Epoch: d.Epoch, Collections: []us.Adopted{{Version: "v2", Kind: "lrps", Was: k.ID, Is: "new"}}}
	step(t, &d, ev)
	after := d
	ns, _ = after.Namespace("v2")
	if got, _ := ns.Kind("lrps"); got.ID != "new" || got.Physical != k.Physical {
		t.Errorf("the kind is %+v", got)
	}
	if after.Epoch != ev.Epoch+2 || after.CurrentVersion != "v2" || after.LastSwitch.Synced() || after.LastSwitch.Snapshot || after.LastSwitch.Position != "" {
		t.Errorf("epoch %d at %s, switch %+v", after.Epoch, after.CurrentVersion, after.LastSwitch)
	}
	// The waivers of the switch are kept, at it and after the way back.
	if got := us.OldestDirection(after); after.LastSwitch.Epoch != 1 || got != 1 {
		t.Errorf("the switch ended epoch %d, and what is older than %d is forgotten", after.LastSwitch.Epoch, got)
	}
	back := after
	play(t, &back, "Begin ID=u2 TargetVersion=v1 TransformHash=h2\nuntil FLIPPED")
	if last := back.LastSwitch; back.Epoch != 5 || last.Epoch != 4 || last.BeforeEpoch != 1 || last.Before != "h" || us.OldestDirection(back) != 1 {
		t.Errorf("the switch back to epoch %d is %+v", back.Epoch, last)
	}
	if err := us.Validate(after); err != nil {
		t.Error(err)
	}
	if again, err := us.Apply(after, ev); err != nil || !reflect.DeepEqual(again, after) {
		t.Errorf("repeated: %+v, %v", again, err)
	}
	late := us.Adopt{Epoch: ev.Epoch, Collections: []us.Adopted{{Version: "v2", Kind: "lrps", Was: k.ID, Is: "newer"}}}
	if _, err := us.Apply(after, late); !errors.Is(err, us.ErrOutdated) {
		t.Errorf("decided in another epoch: %v", err)
	}
	late.Epoch = after.Epoch
	if _, err := us.Apply(after, late); !errors.Is(err, us.ErrOutdated) {
		t.Errorf("decided of another collection: %v", err)
	}
	for name, c := range map[string]us.Adopted{
		"no such kind":    {Version: "v2", Kind: "none", Was: "a", Is: "b"},
		"no such version": {Version: "v9", Kind: "lrps", Was: "a", Is: "b"},
		"another kind's":  {Version: "v1", Kind: "lrps", Was: idOf(after, "v1", "lrps"), Is: idOf(after, "v1", "users")},
		"nothing":         {Version: "v1", Kind: "lrps", Was: idOf(after, "v1", "lrps")},
	} {
		var refusal *us.RefusedError
		if _, err := us.Apply(after, us.Adopt{Epoch: after.Epoch, Collections: []us.Adopted{c}}); !errors.As(err, &refusal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	play(t, &after, "Begin ID=u2 TargetVersion=v1 TransformHash=h")
	_, err := us.Apply(after, us.Adopt{Epoch: after.Epoch, Collections: []us.Adopted{{Version: "v2", Kind: "lrps", Was: "new", Is: "newer"}}})
	if err == nil || !strings.Contains(err.Error(), "abort it first") {
		t.Errorf("while an upgrade runs: %v", err)
	}
}

func idOf(d us.Deployment, version, kind string) string {
	ns, _ := d.Namespace(version)
	k, _ := ns.Kind(kind)
	return k.ID
}
