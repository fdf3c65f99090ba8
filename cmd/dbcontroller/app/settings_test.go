package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/controller"
	"dbcontroller.dev/hooks"
	"dbcontroller.dev/rehearsal"
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
		s := settings(config.Config{Etcd: c.etcd, DBs: []config.DB{{Version: "v1", Endpoint: c.db}}}, true)
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
	s := settings(config.Config{Kinds: []config.Kind{{From: "a", To: "b"}, {From: "b", To: "c", Fence: "view"}}}, false)
	if got := fmt.Sprint(s.Fences); got != "map[a: b: c:view]" {
		t.Errorf("fences %s", got)
	}
}

// TestScratchDatabaseIsQuiet: it is on the server of its version, and what is done there is
// not felt elsewhere.
func TestScratchDatabaseIsQuiet(t *testing.T) {
	t.Parallel()
	b := backend{config.Config{DBs: []config.DB{
		{Version: "v1", Database: "old", Endpoint: config.NewSecret("mongodb://db1"), Disabled: true},
		{Version: "v2", Database: "new", Endpoint: config.NewSecret("mongodb://db2")},
	}}, zap.NewNop()}
	db := controller.Database{Version: "v1", Name: rehearsal.ScratchName("old")}
	if cfg := b.scratch(db); cfg.URI != "mongodb://db1" || cfg.Database != "old_dbcrehearsal" || !cfg.Quiet {
		t.Errorf("%+v", cfg)
	}
	if entry := b.entry(db); entry.Disabled {
		t.Error("the scratch database is disabled")
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
	err = New(cfg, nil, nil, Options{}, zap.NewNop()).Run(t.Context())
	if want := `bbs.yaml: hooks[1].command: "/no/such/program": no such file or directory: want a program that this process may run`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
