package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/record"
	us "dbcontroller.dev/upgradestate"
)

// deafConnection is an open database that answers with an error, or with its identity.
type deafConnection struct {
	Connection
	err error
	id  record.Identity
}

func (deafConnection) Opened() bool                                   { return true }
func (deafConnection) Problem() error                                 { return nil }
func (c deafConnection) Marks(context.Context) ([]record.Mark, error) { return nil, c.err }
func (awayConnection) Opened() bool                                   { return false }

func (c deafConnection) Identity(context.Context) (record.Identity, error) { return c.id, c.err }
func (c deafConnection) Claims(context.Context) ([]record.Claim, error)    { return nil, c.err }

// askedConnection counts how often it is asked.
type askedConnection struct {
	deafConnection
	asked *int
}

func (c askedConnection) Marks(context.Context) ([]record.Mark, error) {
	*c.asked++
	return nil, c.err
}

// TestBackIsAskedSeldom: the record changes many times within a switch, and each question would take
// time from it. Only the time and another database are a reason to ask.
func TestBackIsAskedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := deafConnection{err: fmt.Errorf("%w: no primary now", record.ErrUnavailable)}
		var v1, v2 int
		w := &wayBack{
			cfg:         Settings{Databases: []Database{{Version: "v1"}, {Version: "v2"}}},
			connections: &connections{databases: map[string]Connection{"v1": askedConnection{away, &v1}, "v2": askedConnection{away, &v2}}},
			backend:     shutBackend{},
		}
		look := w.looking(t.Context())
		step := func(d us.Deployment) (again time.Duration) {
			t.Helper()
			again, err := look(d)
			if err != nil || again <= 0 || again > lookAtBack {
				t.Fatalf("again in %v, %v", again, err)
			}
			return again
		}
		d := us.Deployment{CurrentVersion: "v2", LastSwitch: &us.Switch{From: "v1", To: "v2"}}
		for range 20 {
			d.Revision++
			step(d)
		}
		if v1 != 1 {
			t.Errorf("asked %d times by 20 changes of the record, want once", v1)
		}
		time.Sleep(step(d))
		if step(d); v1 != 2 {
			t.Errorf("asked %d times after the interval, want twice", v1)
		}
		d.CurrentVersion, d.LastSwitch = "v1", &us.Switch{From: "v2", To: "v1"}
		if step(d); v2 != 1 || w.BackAway(d) == "" {
			t.Errorf("the other database was asked %d times after a switch back, want once at once", v2)
		}
	})
}

// shutBackend knows no error of its own as temporary.
type shutBackend struct{ Backend }

func (shutBackend) Unavailable(error) bool { return false }

// TestBackAway: a controller knows of a database that a rollback needs whether it answers, if it
// never opened and if it went away later, and whether it was dropped.
func TestBackAway(t *testing.T) {
	t.Parallel()
	own := record.Identity{Cluster: "c", Database: "d"}
	known := deployment.New(memcoord.New(), "services/a/deployments/b", deployment.Config{})
	if _, err := known.Create(t.Context(), "v2", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := known.Apply(t.Context(), us.AnnounceNamespace{Namespace: us.Namespace{
		Version: "v1", Location: "mem:v1", Identity: us.Identity{Cluster: own.Cluster, Database: own.Database},
	}}); err != nil {
		t.Fatal(err)
	}
	switched := us.Deployment{CurrentVersion: "v2", LastSwitch: &us.Switch{From: "v1", To: "v2"}}
	retired := switched
	retired.Retired = []string{"v1"}
	for _, tc := range []struct {
		name     string
		d        us.Deployment
		disabled bool
		v1       Connection
		want     string // "": nothing is said
	}{
		{name: "it never opened", d: switched, v1: awayConnection{}, want: "no primary"},
		{name: "it went away", d: switched, v1: deafConnection{err: fmt.Errorf("%w: no primary now", record.ErrUnavailable)}, want: "database of v1 does not answer: "},
		{name: "it hangs", d: switched, v1: deafConnection{err: context.DeadlineExceeded}, want: "database of v1 does not answer: "},
		{name: "it answers", d: switched, v1: deafConnection{id: own}},
		{name: "it was dropped", d: switched, v1: deafConnection{}, want: "database of v1: it is empty or the wrong database"},
		{name: "another one answers", d: switched, v1: deafConnection{id: record.Identity{Cluster: "c", Database: "e"}}, want: "database of v1: it is database e in cluster c"},
		{name: "it answers with another error", d: switched, v1: deafConnection{err: errors.New("not authorized")}},
		{name: "before any switch", d: us.Deployment{CurrentVersion: "v2"}, v1: awayConnection{}},
		{name: "it is retired", d: retired, v1: awayConnection{}},
		{name: "it is disabled", d: switched, disabled: true, v1: awayConnection{}},
		{name: "it is not configured", d: us.Deployment{CurrentVersion: "v2", LastSwitch: &us.Switch{From: "v0", To: "v2"}}, v1: awayConnection{}},
	} {
		w := &wayBack{
			deployment: known, cfg: Settings{Databases: []Database{{Version: "v1", Disabled: tc.disabled}, {Version: "v2"}}},
			connections: &connections{databases: map[string]Connection{"v1": tc.v1, "v2": deafConnection{}}}, backend: shutBackend{},
		}
		if version, db := w.backDatabase(tc.d); db != nil {
			w.back.set(version, w.lookAtBack(t.Context(), version, db))
		}
		if got := w.BackAway(tc.d); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
