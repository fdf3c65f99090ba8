package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/internal/store/sealed"
)

// TestKeysAreNoted: admit-plain and accept change nothing without the confirmation for this very
// deployment, nor where the history cannot note who did it. Otherwise it says who, before it is done.
func TestKeysAreNoted(t *testing.T) {
	t.Parallel()
	keys, err := sealed.NewKeys("a001", sealed.Key{Name: "a001", Bytes: make([]byte, sealed.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []keysVerb{{name: "admit-plain", change: admitPlain}, {name: "accept-keys", change: acceptKeys}} {
		t.Run(verb.name, func(t *testing.T) {
			t.Parallel()
			etcd := &failing{Store: memcoord.New()}
			store := deployment.New(etcd, "services/a/deployments/b", deployment.Config{By: "ann"})
			if _, err := store.Create(t.Context(), "v1", 4); err != nil {
				t.Fatal(err)
			}
			notes := &recordtest.Notes{}
			s := sealed.New("v1", func() *sealed.Keys { return keys }, notes)
			if verb.name == "admit-plain" { // records are encrypted
				notes.Begin(t, s)
			}
			before, err := notes.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			v := verb
			v.version = "v1"
			history := func() (entries []string) {
				d, err := store.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range d.History {
					if e.What == v.name {
						entries = append(entries, e.What+" "+e.Detail+" by "+e.By)
					}
				}
				return entries
			}
			same := func(when string) {
				t.Helper()
				if now, err := notes.State(t.Context()); err != nil || !now.Same(before) || now.Count != before.Count {
					t.Errorf("%s the state is %+v, want %+v: %v", when, now, before, err)
				}
			}
			d, err := store.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want, _ := api.Confirmation(d, "v1")
			for _, confirm := range []string{"", "services/a/deployments/staging/x"} {
				v.confirm = confirm
				if err := v.apply(t.Context(), store, s, io.Discard); err == nil || !strings.Contains(err.Error(), "--confirm "+want) {
					t.Errorf("with %q: %v, want the confirmation %s", confirm, err, want)
				}
				same("without the confirmation")
			}
			v.confirm = want
			etcd.full = true
			if err := v.apply(t.Context(), store, s, io.Discard); !errors.Is(err, errFull) {
				t.Errorf("where it cannot be noted: %v", err)
			}
			same("where it cannot be noted")
			if entries := history(); entries != nil {
				t.Errorf("the history has %q before anything was done", entries)
			}
			etcd.full = false
			if err := v.apply(t.Context(), store, s, io.Discard); err != nil {
				t.Fatal(err)
			}
			if entries := history(); len(entries) != 1 || entries[0] != v.name+" v1 by ann" {
				t.Errorf("the history has %q", entries)
			}
			if now, err := notes.State(t.Context()); err != nil || now.Count == before.Count {
				t.Errorf("it is not done: %+v, %v", now, err)
			}
		})
	}
}

var errFull = errors.New("etcd has no room")

// failing is a store that takes nothing while it is full.
type failing struct {
	coord.Store
	full bool
}

func (f *failing) Commit(ctx context.Context, conds []coord.Condition, ops []coord.Op) (int64, error) {
	if f.full {
		return 0, errFull
	}
	return f.Store.Commit(ctx, conds, ops)
}
