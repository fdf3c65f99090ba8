package upgradestate_test

import (
	"maps"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestAnnounceExpiry: a note is replaced only by somebody who knew it.
func TestAnnounceExpiry(t *testing.T) {
	t.Parallel()
	d := us.New("services/s/deployments/d", "v1", 4)
	d.Namespaces = []us.Namespace{{Version: "v1", Location: "x", Kinds: []us.Kind{{Kind: "k", Physical: "k.n1", ID: "id", NextSeq: 2, Fence: "uuid"}}}}
	for i, step := range []struct{ expiry, noted, want map[string]int64 }{
		{map[string]int64{"a": 60}, nil, map[string]int64{"a": 60}},
		{map[string]int64{"a": 7, "b": 5}, nil, map[string]int64{"a": 60, "b": 5}},
		{map[string]int64{"a": 7}, map[string]int64{"a": 61}, map[string]int64{"a": 60, "b": 5}},
		{map[string]int64{"a": 7}, map[string]int64{"a": 60, "b": 5}, map[string]int64{"a": 7, "b": 5}},
		{map[string]int64{"a": 7}, map[string]int64{"a": 7}, map[string]int64{"a": 7, "b": 5}},
		{nil, nil, map[string]int64{"a": 7, "b": 5}},
	} {
		next, err := us.Apply(d, us.AnnounceExpiry{Version: "v1", Kind: "k", Expiry: step.expiry, Noted: step.noted})
		if err != nil {
			t.Fatal(err)
		}
		ns, _ := next.Namespace("v1")
		if have := ns.Kinds[0].Expiry; !maps.Equal(have, step.want) {
			t.Errorf("step %d: %v, want %v", i, have, step.want)
		}
		d = next
	}
	if _, err := us.Apply(d, us.AnnounceExpiry{Version: "v1", Kind: "other"}); err == nil {
		t.Error("an unknown kind was noted")
	}
}
