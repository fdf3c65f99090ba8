package upgradestate_test

import (
	"errors"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

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
