package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/rehearsal"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/transform"
)

// TestSettingsSayWhoCanListen: what goes to other machines in plaintext reaches the
// controller, which warns of it, and no secret does.
func TestSettingsSayWhoCanListen(t *testing.T) {
	t.Parallel()
	near := config.NewSecret("mongodb://localhost:1")
	for name, c := range map[string]struct {
		etcd             config.Etcd
		db               config.Secret
		etcdFar, farther int
	}{
		"all near":           {config.Etcd{Endpoints: []string{"127.0.0.1:2379"}}, near, 0, 0},
		"etcd elsewhere":     {config.Etcd{Endpoints: []string{"http://etcd1:2379"}}, near, 1, 0},
		"etcd with TLS":      {config.Etcd{Endpoints: []string{"etcd1:2379"}, CAFile: "ca.crt"}, near, 0, 0},
		"database elsewhere": {config.Etcd{Endpoints: []string{"https://etcd1:2379"}}, config.NewSecret("mongodb://me:hidden@db1"), 0, 1},
		"database with TLS":  {config.Etcd{Endpoints: []string{"https://etcd1:2379"}}, config.NewSecret("mongodb://me:hidden@db1/?tls=true"), 0, 0},
	} {
		s := settings(config.Config{Etcd: c.etcd, DBs: []config.DB{{Version: "v1", Endpoint: c.db}}}, true, zap.NewNop())
		if len(s.Coordination.Plaintext) != c.etcdFar || len(s.Databases[0].Plaintext) != c.farther || !s.Coordination.Embedded {
			t.Errorf("%s: %+v", name, s)
		}
		if text := fmt.Sprintf("%+v", s); strings.Contains(text, "hidden") {
			t.Errorf("%s: the password is shown", name)
		}
	}
}

// TestSettingsFences: the first entry that names a kind says which fence it has.
func TestSettingsFences(t *testing.T) {
	t.Parallel()
	s := settings(config.Config{Kinds: []config.Kind{{From: "a", To: "b"}, {From: "b", To: "c", Fence: "view"}}}, false, zap.NewNop())
	if got := fmt.Sprint(s.Fences); got != "map[a: b: c:view]" {
		t.Errorf("fences %s", got)
	}
}

// TestScratchDatabase: it is on the server of its version, by its own name.
func TestScratchDatabase(t *testing.T) {
	t.Parallel()
	b := backend{config.Config{DBs: []config.DB{
		{Version: "v1", Database: "old", Endpoint: config.NewSecret("mongodb://db1"), Disabled: true},
		{Version: "v2", Database: "new", Endpoint: config.NewSecret("mongodb://db2")},
		{Version: "v3", Backend: "etcd", Database: "/new", Kinds: []config.EtcdKind{{Name: "a", Prefix: "/a", Format: "json"}}},
	}}, nil, zap.NewNop()}
	for name, kinds := range map[string]int{"/new": 1, rehearsal.ScratchName("/new"): 0} {
		if entry := b.entry(controller.Database{Version: "v3", Name: name}); len(entry.Kinds) != kinds {
			t.Errorf("%s has the keys of applications %+v", name, entry.Kinds)
		}
	}
	for _, scratch := range []func(context.Context, controller.Database) error{b.CheckScratch, b.ClaimScratch} {
		err := scratch(t.Context(), controller.Database{Version: "v3", Name: rehearsal.ScratchName("/new")})
		if err == nil || !strings.Contains(err.Error(), "rehearse with a configuration of its own") {
			t.Errorf("a scratch database for keys of an application: %v", err)
		}
	}
	db := controller.Database{Version: "v1", Name: rehearsal.ScratchName("old")}
	if entry := b.entry(db); entry.Endpoint.Reveal() != "mongodb://db1" || entry.Database != "old_dbcrehearsal" || entry.Disabled {
		t.Errorf("%+v", entry)
	}
}

// TestHooksOfAConfiguration: it knows the events that there are, and a program that is not
// there is found at the start.
func TestHooksOfAConfiguration(t *testing.T) {
	t.Parallel()
	var known []string
	for _, e := range hooks.Types {
		known = append(known, string(e))
	}
	if !slices.Equal(known, config.HookEvents) {
		t.Errorf("events %v, and the configuration knows %v", known, config.HookEvents)
	}
	cfg := config.Config{Path: "/etc/dbc/bbs.yaml", Hooks: []config.Hook{
		{Name: "a", URL: config.NewKey("https://hidden"), Secret: config.NewKey("hidden-hidden-hidden"), Events: []string{"ready"}, Timeout: time.Second, GiveUp: time.Hour},
		{Name: "b", Command: []string{"/bin/sh"}},
	}}
	made, err := hooksOf(cfg)
	if err != nil || len(made) != 2 || made[0].Events[0] != hooks.Ready || made[0].Timeout != time.Second || made[0].GiveUp != time.Hour || made[1].Sender == nil {
		t.Errorf("%+v, %v", made, err)
	}
	cfg.Hooks[1].Command[0] = "/no/such/program"
	err = New(cfg, transform.NewRegistry("bbs.example.com"), nil, Options{}, zap.NewNop()).Run(t.Context())
	if want := `bbs.yaml: hooks[1].command: "/no/such/program": no such file or directory: want a program that this process may run`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
