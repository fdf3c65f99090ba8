package upgradestate_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// completed is a deployment at v2 that is retiring v1.
func completed(t *testing.T) us.Deployment {
	t.Helper()
	d := us.New("services/bbs/deployments/test", "v2", 4)
	for _, v := range []string{"v1", "v2"} {
		ns := us.Namespace{Version: v, Location: "mem:" + v, Kinds: []us.Kind{{Kind: "things", Physical: "things.n1", ID: v}}}
		d = applied(t, d, us.AnnounceNamespace{Namespace: ns})
	}
	return applied(t, d, us.Complete{Version: "v1", Until: "2026-01-01T00:00:00Z"})
}

func applied(t *testing.T, d us.Deployment, ev us.Event) us.Deployment {
	t.Helper()
	next, err := us.Apply(d, ev)
	if err == nil {
		err = us.Validate(next)
	}
	if err != nil {
		t.Fatalf("%#v: %v", ev, err)
	}
	return us.Note(d, next, "test", "now")
}

// TestRetireLost: a database that is declared lost keeps no retirement open, and no kept data.
func TestRetireLost(t *testing.T) {
	t.Parallel()
	lost := us.Complete{Version: "v1", Lost: true}
	d := applied(t, completed(t), lost)
	if d.Retire == nil || !d.Retire.Lost || d.Retire.Until != "" {
		t.Fatalf("retire: %+v", d.Retire)
	}
	// A leader that is setting the collections aside has not heard of it.
	if _, err := us.Apply(d, us.SetAside{Version: "v1"}); !errors.Is(err, us.ErrOutdated) {
		t.Errorf("set aside: %v", err)
	}
	d = applied(t, applied(t, d, lost), us.Dropped{Version: "v1"})
	if d.Retire != nil || !us.Retired(d, "v1") || len(d.Namespaces) != 1 {
		t.Errorf("after the end: %+v", d)
	}
	kept := applied(t, completed(t), us.SetAside{Version: "v1"})
	if len(kept.Kept) != 1 {
		t.Fatalf("kept: %+v", kept.Kept)
	}
	if kept = applied(t, kept, lost); len(kept.Kept) != 0 || !us.Retired(kept, "v1") {
		t.Errorf("still kept: %+v", kept.Kept)
	}
	// Nothing was dropped there.
	if last := kept.History[len(kept.History)-1]; last.What != "drop" || last.From != "v1" || !strings.HasPrefix(last.Outcome, "given up") || last.At == "" || last.Ended == "" {
		t.Errorf("history: %+v", last)
	}
}

// TestAdoptDuringARetirement: a retirement that waits for its database does not keep the served
// version down, whose collections a cluster has moved. Collections of the retiring version wait.
func TestAdoptDuringARetirement(t *testing.T) {
	t.Parallel()
	d := completed(t)
	if _, err := us.Apply(d, us.Adopt{Epoch: d.Epoch, Collections: []us.Adopted{{"v1", "things", "v1", "new"}}}); err == nil {
		t.Error("a collection that is being dropped was adopted")
	}
	epoch := d.Epoch
	d = applied(t, d, us.Adopt{Epoch: d.Epoch, Collections: []us.Adopted{{"v2", "things", "v2", "new"}}})
	if d.Epoch == epoch || d.Retire == nil {
		t.Errorf("epoch %d, retire %+v", d.Epoch, d.Retire)
	}
	d = applied(t, d, us.FoundRestored{Restored: us.Restored{Version: "v2", What: "restored"}, Epoch: d.Epoch})
	epoch = d.Epoch
	if d = applied(t, d, us.FollowRestored{Version: "v2", Epoch: d.Epoch}); d.Epoch == epoch {
		t.Error("the decision about a restored database waits for a retirement")
	}
}

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
