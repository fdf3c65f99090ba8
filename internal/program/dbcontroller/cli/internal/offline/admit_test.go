package offline

import (
	"context"
	"errors"
	"fmt"
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

// TestAdmitPlain: an operator has plain records taken for records, of a version that has any.
func TestAdmitPlain(t *testing.T) {
	t.Parallel()
	keys, err := sealed.NewKeys("a001", sealed.Key{Name: "a001", Bytes: make([]byte, sealed.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	notes := &recordtest.Notes{}
	s := sealed.New("v1", func() *sealed.Keys { return keys }, notes)
	first, err := s.First(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if changes, err := acceptKeys(t.Context(), "v1", s, false, &out); err != nil || !changes || !strings.Contains(out.String(), "written with off, and may be encrypted with off; fields that stay readable: none") {
		t.Errorf("%t, %v, %q", changes, err, &out)
	}
	if _, _, err := s.Noted(t.Context()); err != nil {
		t.Error(err)
	}
	// The operator is asked to believe this line, so the mark must add none.
	forge := func(fields map[string][]string) {
		t.Helper()
		if err := notes.Change(t.Context(), func(st *sealed.State) (bool, error) { st.Clear = fields; return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	forge(map[string][]string{"users\nFORGED row": {"x"}})
	out.Reset()
	if _, err := acceptKeys(t.Context(), "v1", s, false, &out); err != nil || strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), `users\nFORGED row (x)`) {
		t.Errorf("of a mark with a line of its own: %v, %q", err, &out)
	}
	forge(nil)
	if _, err := s.State(t.Context()); !errors.Is(err, sealed.ErrState) {
		t.Errorf("it is accepted without a confirmation: %v", err)
	}
	if _, err := acceptKeys(t.Context(), "v1", s, true, &out); err != nil {
		t.Error(err)
	}
	if changes, err := acceptKeys(t.Context(), "v1", s, false, &out); err != nil || changes {
		t.Errorf("the second time: %t, %v", changes, err)
	}
	plain, err := notes.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s = sealed.New("v1", func() *sealed.Keys { return keys }, notes) // a process of its own for each command
	for _, step := range []struct {
		state sealed.State
		want  string
	}{
		{sealed.State{New: true}, "v1 is not used yet"},
		{sealed.State{}, "the state of keys in the database's mark is refused"},
		{plain, "may be plain already"},
		{*first, "plain records of v1 are accepted until a rotation ends"},
	} {
		if err := notes.Change(t.Context(), func(st *sealed.State) (bool, error) { *st = step.state; return true, nil }); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		changes, err := admitPlain(t.Context(), "v1", s, false, &out)
		if changes {
			if st, _ := s.State(t.Context()); st.Promised() == "" || out.Len() > 0 {
				t.Errorf("without a confirmation: %+v, %s", st, &out)
			}
			_, err = admitPlain(t.Context(), "v1", s, true, &out)
		}
		if said := out.String() + fmt.Sprint(err); !strings.Contains(said, step.want) {
			t.Errorf("%+v: %s, want %q", step.state, said, step.want)
		}
	}
	if st, err := s.State(t.Context()); err != nil || strings.Join(st.InUse(), " ") != "a001 off" || st.Promised() != "" {
		t.Errorf("%+v, %v", st, err)
	}
}
