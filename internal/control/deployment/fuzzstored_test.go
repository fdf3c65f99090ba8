package deployment

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// FuzzStored: plans, checkpoints, beats, deliveries and names in the coordination store are read,
// or are corrupt. What is read says the same when it is written again.
func FuzzStored(f *testing.F) {
	ranges := map[string][]record.Range{"orders": {{To: record.Cursor("m")}, {From: record.Cursor("m")}}}
	for _, v := range []any{
		storedPlan{Start: record.Position{At: record.Version{1}}, Ranges: elsewhere, Dealt: ranges, Totals: map[string]int64{"orders": 3}},
		map[string]any{"ranges": ranges},
		storedPlan{Ranges: elsewhere, Parts: "p", Count: -1},
		storedPlan{Ranges: elsewhere, Parts: "p", Count: 1 << 60},
		syncer.Checkpoint{Position: record.Position{At: record.Version{1}, Token: []byte{1}}, Copied: map[string]record.Range{"orders/0": {To: record.Cursor("m")}}, DoneBits: []byte{3}},
		backfill.Checkpoint{Rest: record.Range{From: record.Cursor("a")}, Examples: []backfill.Failure{{Key: "k", Error: "e"}}},
		identity.Beat{Count: 1 << 63, Nonce: "n"},
		hooks.State{Format: 1, Sequence: 5, Queue: []hooks.Event{{}}, Done: map[string]int64{"h": 4}},
		FormerNames{ID: "u", Uses: []NameUse{{Version: "v1", Kind: "orders", Users: []NameUser{{Application: "a"}}}}},
	} {
		value, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Add([]byte(`null`))
	f.Add([]byte(`{"ranges":{"orders":[{"from":1}]},"rest":[],"count":"x","format":-1}`))
	const dir, again, id = syncer.DirectionKey("1-v1-v2"), syncer.DirectionKey("2-v1-v2"), "u1"
	db := memcoord.New()
	s := New(db, "services/a/deployments/b", Config{})
	f.Fuzz(func(t *testing.T, value []byte) {
		ctx := t.Context()
		ops := []coord.Op{{Key: s.planKey(again), Delete: true}, {Key: s.updateKey(id, "plan"), Value: value}, {Key: s.updateCheckpointKey(id, 0), Value: value}}
		for _, key := range []string{s.planKey(dir), s.checkpointKey(dir, 0), s.hooksKey(), s.beatKey("v1"), s.incarnationKey(), s.namesKey()} {
			ops = append(ops, coord.Op{Key: key, Value: value})
		}
		if _, err := db.Commit(ctx, nil, ops); err != nil {
			return // such as a value that is too large for etcd
		}
		// same reports what is read another time as another value.
		same := func(what string, was, is any, err error) {
			a, aErr := json.Marshal(was)
			b, bErr := json.Marshal(is)
			if err != nil || aErr != nil || bErr != nil || !bytes.Equal(a, b) {
				t.Errorf("%s %s is read again as %s: %v, %v, %v", what, a, b, err, aErr, bErr)
			}
		}
		refused := func(what string, found bool, err error) bool {
			if err != nil && !errors.Is(err, ErrCorrupt) || err != nil && found || err == nil && !found {
				t.Errorf("%s: found %t, %v", what, found, err)
			}
			return err != nil
		}
		p, found, err := s.LoadPlan(ctx, dir)
		if !refused("plan", found, err) {
			_, err := s.CreatePlan(ctx, again, p)
			if err != nil {
				t.Fatal(err)
			}
			is, _, err := s.LoadPlan(ctx, again)
			if same("plan", p, is, err); p.Dealt != is.Dealt {
				t.Errorf("plan: dealt %t is read again as %t", p.Dealt, is.Dealt)
			}
			var head storedPlan
			if json.Unmarshal(value, &head) == nil && head.Parts != "" {
				t.Errorf("a plan without its parts: %+v", p)
			}
		}
		c, found, err := s.LoadCheckpoint(ctx, dir, 0)
		if !refused("checkpoint", found, err) {
			err := s.SaveCheckpoints(ctx, dir, map[int]syncer.Checkpoint{0: c})
			if err != nil {
				t.Fatal(err)
			}
			is, _, err := s.LoadCheckpoint(ctx, dir, 0)
			same("checkpoint", c, is, err)
		}
		up, found, err := s.LoadUpdatePlan(ctx, id)
		if !refused("plan of an update", found, err) {
			ops := []coord.Op{{Key: s.updateKey(id, "plan"), Value: mustJSON(t, up)}}
			if _, err := db.Commit(ctx, nil, ops); err != nil {
				t.Fatal(err)
			}
			is, _, err := s.LoadUpdatePlan(ctx, id)
			same("plan of an update", up, is, err)
		}
		uc, found, err := s.LoadUpdateCheckpoint(ctx, id, 0)
		if !refused("checkpoint of an update", found, err) {
			if err := s.SaveUpdateCheckpoint(ctx, id, 0, uc); err != nil {
				t.Fatal(err)
			}
			is, _, err := s.LoadUpdateCheckpoint(ctx, id, 0)
			same("checkpoint of an update", uc, is, err)
		}
		state, rev, err := s.LoadHooks(ctx)
		if !refused("deliveries", rev > 0, err) {
			if _, err := s.SaveHooks(ctx, state, rev); err != nil {
				t.Fatal(err)
			}
			is, _, err := s.LoadHooks(ctx)
			same("deliveries", state, is, err)
		}
		names, err := s.FormerNames(ctx)
		if !refused("names", names != nil, err) {
			if err := s.PublishNames(ctx, names, 0); err != nil {
				t.Fatal(err)
			}
			is, err := s.FormerNames(ctx)
			same("names", names, is, err)
		}
		b, incarnation, err := s.LoadBeat(ctx, "v1")
		if refused("beat", err == nil, err) {
			return
		}
		if incarnation != string(value) {
			t.Errorf("incarnation %q of %q", incarnation, value)
		}
		later := identity.Beat{Count: b.Count + 1, Nonce: "later"}
		if err := s.SaveBeat(ctx, "v1", later); err != nil {
			t.Fatal(err)
		}
		// A count never goes back.
		is, _, err := s.LoadBeat(ctx, "v1")
		if want := max(later.Count, b.Count); err != nil || is.Count != want {
			t.Errorf("beat %+v after %+v, %v", is, b, err)
		}
	})
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
