package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
)

// TestRollbackWithoutItsKey: after a switch the key of the former version is taken out of the
// configuration. Going back is refused with one line before anything changes, as long as a process
// that would be needed for it, or could not start anew after it, lacks the key, and plans say so
// before anyone asks for it; once the key is back, the rollback begins.
func TestRollbackWithoutItsKey(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[]", encryption: map[string]string{
		"v1": keysSection("a001", "a001"), "v2": keysSection("b001", "b001"),
	}})
	s.makeKeys("a001", "a002", "b001")
	controller := s.controller("controller", breakPoint{}).ready(ctx)
	server := s.server("server", 0).ready(ctx)
	client := newBBSClient(s.http, server)
	p := process{guid: "process", made: 1, changed: 1}
	if _, err := client.v1[0].CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: p.v1()})); err != nil {
		t.Fatal(err)
	}
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	s.awaitSync(ctx)

	api, _ := controller.addresses()
	back := func() result { return execute(ctx, t, nil, "rollback", "--server", api) }
	with, without := keysSection("a001", "a001"), keysSection("a002", "a002")
	s.edit(replace(with, without))
	eventually(ctx, t, "both have read the configuration", func() error {
		for _, c := range []*child{controller, server} {
			if !strings.Contains(c.output(), "a key that records are under was taken out of encryption.keys") {
				return errTooFew
			}
		}
		// What a process has is announced after it was read.
		has, err := s.record.ControllerKeys(ctx)
		if err != nil {
			return err
		}
		servers, err := s.record.Servers(ctx)
		if err != nil {
			return err
		}
		announced := [][]string{has["controller"]["v1"]}
		for _, server := range servers {
			announced = append(announced, server.Keys["v1"])
		}
		for _, keys := range announced {
			if len(keys) != 1 || !strings.HasPrefix(keys[0], "a002") {
				return fmt.Errorf("announced are %v", announced)
			}
		}
		return nil
	})
	s.awaitKept(ctx)
	s.unchanged(ctx, t, func() {
		back().refuses(t, "begin-upgrade: records of v1 are encrypted with key a001", "encryption.keys", "controller controller", "server server", "add the file of a001")
	})
	planned := func(want []string, args ...string) {
		t.Helper()
		res := execute(ctx, t, s.env, append([]string{"plan", "--target-version", "v1"}, args...)...)
		for _, line := range strings.Split(res.stdout, "\n") {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "FAILED" && f[1] == "keys" && f[2] == "v1" && !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(line, w) }) {
				return
			}
		}
		t.Errorf("plan %v does not say %q: %+v", args, want, res)
	}
	planned([]string{"records of v1 are encrypted with key a001", "controller controller", "server server"}, "--server", api)
	planned([]string{"records are encrypted with key a001", "add the file of a001"}, "--config", s.config)
	// None is started without the key that would begin it later.
	s.refusesToRun(ctx, nil, "database of v1", "records are encrypted with key a001", "add the file of a001")

	s.kill(controller)
	eventually(ctx, t, "the lease of the controller ends", func() error {
		alive, err := s.record.Controllers(ctx)
		if err == nil && len(alive) > 0 {
			err = errTooFew
		}
		return err
	})
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	emergency := filepath.Join(filepath.Dir(s.config), "emergency.yaml")
	put(t, emergency, replace(without, with)(string(text)))
	// What the controller said of its keys goes with it too, but may be seen for a moment longer.
	eventually(ctx, t, "the rollback without a controller says what is found at the server", func() error {
		offline := execute(ctx, t, s.env, "rollback", "--to-snapshot", "--offline", "--config", emergency, "--dry-run")
		if want := "found: records of v1 are encrypted with key a001, which is missing from encryption.keys or has changed at server server: "; offline.code != 0 || !strings.Contains(offline.stderr, want) {
			return fmt.Errorf("%+v", offline)
		}
		return nil
	})

	s.edit(replace(without, with))
	api, _ = s.controller("controller", breakPoint{}).ready(ctx).addresses()
	eventually(ctx, t, "the rollback begins", func() error {
		if res := back(); res.code != 0 {
			return errors.New(res.stderr)
		}
		return nil
	})
	s.await(ctx, "the rollback", flipped("v1"))
	if _, err := client.v1[0].GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: p.guid})); err != nil {
		t.Error(err)
	}
}
