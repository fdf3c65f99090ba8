package upgradestate_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

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
