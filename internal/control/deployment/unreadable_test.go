package deployment_test

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// TestUnreadableValuesHideNothing: whichever value next to the record cannot be read, the state has
// the rest and names the key, once and by a feed.
func TestUnreadableValuesHideNothing(t *testing.T) {
	t.Parallel()
	escaped := url.PathEscape(string(dir))
	for _, rest := range []string{
		"progress/c-1", "servers/s-1", "insecure/c-1", "readiness", "formernames", "updating/c-1",
		"parked/" + escaped + "/00002/0123", "parked/" + escaped + "/overflow",
	} {
		t.Run(rest, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := deploymenttest.New(t)
				bad := deploymenttest.Key(rest)
				deploymenttest.Put(t, w.Coord, deploymenttest.Key("progress/c-2"), `[{"shard": 1, "owner": "c-2"}]`)
				deploymenttest.Put(t, w.Coord, deploymenttest.Key("servers/s-2"), `{"id": "s-2"}`)
				if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, 1, 1)); err != nil {
					t.Fatal(err)
				}
				deploymenttest.Put(t, w.Coord, bad, "{")
				d, err := w.Store.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				d.LastSwitch, d.Update = &upgradestate.Switch{From: "v0", To: d.CurrentVersion}, &upgradestate.Update{}
				s, err := w.Store.State(t.Context(), d)
				if err != nil || len(s.Progress) != 1 || len(s.Servers) != 1 {
					t.Errorf("%+v, %v", s, err)
				}
				list, err := w.Store.Parked(t.Context(), dir, -1)
				if err != nil || !slices.ContainsFunc(list, func(p syncer.Parked) bool { return p.Shard == 1 && p.Spec >= 0 }) {
					t.Errorf("parked: %+v, %v", list, err)
				}
				lines := s.Unreadable
				if strings.HasPrefix(rest, "parked/") { // it blocks, and is shown where parked groups are
					if n := deployment.CountParked(list).Blocking; n != 2 {
						t.Errorf("%d entries block the switch, want both", n)
					}
					for _, p := range list {
						if p.Spec == syncer.UnreadableSpec {
							lines = append(lines, p.Error)
						}
					}
				}
				if len(lines) != 1 || !strings.Contains(lines[0], "stored value is corrupt: "+bad) {
					t.Errorf("said %q, want one line that names %s", lines, bad)
				}

				ctx, stop := context.WithCancel(t.Context())
				feed := w.Store.Feed()
				go feed.Run(ctx) //nolint:errcheck // it ends with ctx
				synctest.Wait()
				fed, ok, err := feed.State()
				if !ok || err != nil || len(fed.Progress) != 1 || len(fed.Servers) != 1 {
					t.Errorf("fed %+v, %t, %v", fed, ok, err)
				}
				stop()
				synctest.Wait()
			})
		})
	}
}

// TestUnreadableParkedIsMadeAnew: a group that fails again gets a readable entry, and an entry that
// cannot be read is not taken for an older one.
func TestUnreadableParkedIsMadeAnew(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	p := deploymenttest.Parked(dir, 1, 1)
	if err := w.Store.Park(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	kvs, _, err := w.Coord.List(t.Context(), deploymenttest.Key("parked/"))
	if err != nil || len(kvs) != 1 {
		t.Fatalf("%d keys, %v", len(kvs), err)
	}
	if _, err := w.Coord.Commit(t.Context(), nil, []coord.Op{{Key: kvs[0].Key, Value: []byte("{")}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Store.Unpark(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	list, err := w.Store.Parked(t.Context(), dir, -1)
	if err != nil || len(list) != 1 || list[0].Spec != syncer.UnreadableSpec || list[0].Shard != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := w.Store.Park(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if list, err = w.Store.Parked(t.Context(), dir, -1); err != nil || len(list) != 1 || list[0].Key != p.Key {
		t.Errorf("%+v, %v", list, err)
	}
}
