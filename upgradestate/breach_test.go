package upgradestate_test

import (
	"fmt"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

func TestBreaches(t *testing.T) {
	t.Parallel()
	d := us.New("services/s/deployments/d", "v1", 2)
	apply := func(e us.Event) us.Deployment {
		t.Helper()
		next, err := us.Apply(d, e)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	d = apply(us.AnnounceNamespace{Namespace: us.Namespace{Version: "v1", Location: "here", Kinds: []us.Kind{{Kind: "users", Fixed: true, Fence: "view", Physical: "users"}}}})
	found := us.Breach{Version: "v1", Kind: "users", What: "a collection was made", Aside: "aside.1", Count: 3}
	d = apply(us.Breached{Breach: found})
	d = apply(us.Breached{Breach: found})
	if open := us.OpenBreaches(d); len(open) != 1 || open[0].Count != 3 {
		t.Fatalf("open: %+v", open)
	}
	if _, err := us.Apply(d, us.Breached{Breach: us.Breach{Version: "v9", Kind: "users", What: "x"}}); err == nil {
		t.Error("a breach of an unknown version is noted")
	}
	d = apply(us.AcceptBreaches{})
	d = apply(us.Breached{Breach: found}) // found again by the next leader
	if open := us.OpenBreaches(d); len(open) != 0 {
		t.Errorf("open after it was accepted: %+v", open)
	}
	// What leaves no collection counts again after it was accepted.
	gone := us.Breach{Version: "v1", Kind: "users", What: "the view was dropped"}
	d = apply(us.Breached{Breach: gone})
	d = apply(us.AcceptBreaches{})
	d = apply(us.Breached{Breach: gone})
	if open := us.OpenBreaches(d); len(open) != 1 {
		t.Errorf("open: %+v", open)
	}
	for i := range 200 {
		found.Aside = fmt.Sprint("aside.", i)
		d = apply(us.Breached{Breach: found})
	}
	if open := us.OpenBreaches(d); len(d.Breaches) > 50 || len(open) != len(d.Breaches) {
		t.Errorf("%d noted, %d open", len(d.Breaches), len(open))
	}
	if err := us.Validate(d); err != nil {
		t.Error(err)
	}
}
