package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// itemReferences is a task for items whose regions are keys of another service, one kind of
// which has to be looked up.
func itemReferences(t *testing.T, kind string, keys transform.Keys) (transform.Task, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"zones.yaml": "kinds: {from: zones, to: zones}\nkey: {from: 'zones/{z}', to: 'world/zones/{z}'}\noperations: []\n",
		"rooms.yaml": "kinds: {from: rooms, to: rooms}\nkey: {from: 'rooms/{r}', to: 'cities/{c}/rooms/{r}', with: {c: {field: city}}}\noperations: []\n",
		"items.yaml": "imports: {places: [zones.yaml, rooms.yaml]}\noperations:\n  - reference: {field: region, kind: " + kind + ", service: places}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return backfill.FromLens("follow", "v1", "items", filepath.Join(dir, "items.yaml"), keys)
}

// finder knows the other key of every room but that of one, once it has failed a few times.
type finder struct {
	fails, asked atomic.Int32
}

func (f *finder) FindKeys(_ context.Context, asked []transform.Question) (transform.Answers, error) {
	if f.fails.Add(-1) >= 0 {
		return nil, errors.New("the other service switches")
	}
	answers := transform.Answers{}
	for _, q := range asked {
		f.asked.Add(1)
		if name, _ := q.Key.Name(); q.Up && q.Service == "places" && q.Old == "rooms" && name != "rooms/gone" {
			answers[q] = record.StringKey("cities/c/" + name)
		}
	}
	return answers, nil
}

// TestFollowsReferences: by the key alone, to the new keys and back to the old ones.
func TestFollowsReferences(t *testing.T) {
	t.Parallel()
	there, err := itemReferences(t, "zones", transform.NewKeys)
	if err != nil {
		t.Fatal(err)
	}
	back, err := itemReferences(t, "zones", transform.OldKeys)
	if err != nil {
		t.Fatal(err)
	}
	back.Name = "back"
	if there.Hash() == back.Hash() || len(there.Imports) != 1 || there.Imports[0].Keys != transform.NewKeys {
		t.Errorf("the tasks are %+v and %+v", there, back)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		for i := range 30 {
			w.put(item{ID: key(i), Region: fmt.Sprintf("zones/%d", i)})
		}
		w.put(item{ID: "new", Region: "world/zones/x"}, item{ID: "odd", Region: "nowhere"}, item{ID: "none"})
		e := w.engine(w.owner(0, 1, 2, 3), there, func(p *backfill.Parts) {
			r := transform.NewRegistry("items")
			w.check(r.AddTasks(there, back))
			p.Tasks = r
		})
		defer e.stop(t)
		w.begin("u1", there)
		if got := w.outcome("u1"); !strings.HasPrefix(got, "not done: 1 records failed, such as odd: reference region to zones: region is ") || !strings.HasSuffix(got, "; 33 seen, 30 changed") {
			t.Errorf("it ended as %q", got)
		}
		if have := w.items(); have[key(7)].Region != "world/zones/7" || have["new"].Region != "world/zones/x" || have["odd"].Region != "nowhere" || have["none"].Region != "" {
			t.Errorf("there are %+v", have)
		}
		w.begin("u2", back)
		w.outcome("u2")
		if have := w.items(); have[key(7)].Region != "zones/7" || have["new"].Region != "zones/x" {
			t.Errorf("there are %+v", have)
		}
	})
}

// TestLooksKeysUp: while the other service cannot be asked the update waits, and goes on by
// itself; a reference to nothing fails and stays, and nobody is asked about what is done.
func TestLooksKeysUp(t *testing.T) {
	t.Parallel()
	task, err := itemReferences(t, "rooms", transform.NewKeys)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		for i := range 30 {
			w.put(item{ID: key(i), Region: fmt.Sprintf("rooms/%d", i)})
		}
		w.put(item{ID: "done", Region: "cities/c/rooms/1"}, item{ID: "lost", Region: "rooms/gone"})
		places := &finder{}
		places.fails.Store(6)
		e := w.engine(w.owner(0, 1, 2, 3), task, func(p *backfill.Parts) { p.Keys = places })
		defer e.stop(t)
		w.begin("u1", task)
		if got := w.outcome("u1"); !strings.HasPrefix(got, "not done: 1 records failed, such as lost: reference region to rooms: region is ") || !strings.HasSuffix(got, "; 32 seen, 30 changed") {
			t.Errorf("it ended as %q", got)
		}
		if n := places.asked.Load(); n != 31 {
			t.Errorf("%d keys were asked for, want 31", n)
		}
		if have := w.items(); have[key(7)].Region != "cities/c/rooms/7" || have["lost"].Region != "rooms/gone" {
			t.Errorf("there are %+v", have)
		}
	})
}

func TestFromLensOfReferences(t *testing.T) {
	t.Parallel()
	if _, err := itemReferences(t, "zones", ""); err == nil || !strings.Contains(err.Error(), "items.yaml has references: set references to the keys that they shall hold, new, old or both") {
		t.Errorf("without keys: %v", err)
	}
	if _, err := itemReferences(t, "zones", transform.BothKeys); err == nil || !strings.Contains(err.Error(), "set both to the field that lists them") {
		t.Errorf("both without a list: %v", err)
	}
	file := filepath.Join(t.TempDir(), "fill.yaml")
	if err := os.WriteFile(file, []byte("operations: [add: {field: region, default: us}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := backfill.FromLens("fill", "v1", "items", file, transform.NewKeys); err == nil || !strings.Contains(err.Error(), "it has no references") {
		t.Errorf("keys without references: %v", err)
	}
}
