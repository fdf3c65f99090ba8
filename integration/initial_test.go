package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/engine/switchover"
)

// TestNewServiceBeginsAtTheNewestVersion: nobody wants to begin with what is about to be
// replaced. Once it has begun, what is configured changes nothing.
func TestNewServiceBeginsAtTheNewestVersion(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{decide: true, kinds: "[]"})
	server := s.server("server", 0).listening(ctx)
	c := s.controller("controller", breakPoint{}).ready(ctx)
	server.ready(ctx)
	if d, err := s.record.Get(ctx); err != nil || d.CurrentVersion != "v2" {
		t.Fatalf("it begins at %q, %v, want v2", d.CurrentVersion, err)
	}
	made := process{guid: "p", made: 1, changed: 1}.v1()
	res, err := newBBSClient(s.http, server).v1[0].CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: made}))
	if err != nil || res.Header().Get("Dbcontroller-Version") != "v2" {
		t.Errorf("a client of v1 is answered by %q, %v", res.Header().Get("Dbcontroller-Version"), err)
	}
	if _, err := newBBSClient(s.http, server).v2[0].GetLRPDeployment(ctx, connect.NewRequest(&bbsv2.GetLRPDeploymentRequest{ProcessGuid: "p"})); err != nil {
		t.Error(err)
	}
	dbc := func(args ...string) result {
		api, _ := c.addresses()
		return execute(ctx, t, s.env, append(args, "--server", api)...)
	}
	if r := dbc("create", "deployment", "--initial-version", "v1"); r.code != 0 || !strings.Contains(r.stderr, "exists already, at v2") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	dbc("create", "deployment", "--initial-version", "v1", "--ring-size", "4").refuses(t, "has a ring of 8")
}

// TestDataDecidesWhereADeploymentBegins: the application's collections are v2's already.
func TestDataDecidesWhereADeploymentBegins(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := newSystem(ctx, t, settings{decide: true})
			insert(ctx, s, version, packageDoc(version, "a", 0))
			s.controller("controller", breakPoint{}).ready(ctx)
			if d, err := s.record.Get(ctx); err != nil || d.CurrentVersion != version {
				t.Errorf("it begins at %q, %v, want %s", d.CurrentVersion, err, version)
			}
		})
	}
}

// TestServersObeyTheTable: a server that comes after the upgrade began and does not know its
// target holds the switch back; and one that does not know the active version says so and
// serves nothing.
func TestServersObeyTheTable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[]"})
	s.controller("controller", breakPoint{}).ready(ctx)
	eventually(ctx, t, "an upgrade that holds begins", func() error {
		_, err := s.apis()[0].BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{TargetVersion: "v2", Policy: &dbv1.SwitchPolicy{Hold: true}}))
		return err
	})
	s.edit(func(text string) string { // without the second entry of dbs
		head, rest, _ := strings.Cut(text, "- namespace")
		first, second, _ := strings.Cut(rest, "- namespace")
		_, kinds, _ := strings.Cut(second, "kinds:")
		return head + "- namespace" + first + "kinds:" + kinds
	})
	old := s.server("old", 0).ready(ctx) // it serves until the flip
	eventually(ctx, t, "the old server says that it is too old", func() error {
		if !strings.Contains(old.output(), "this server is too old for the upgrade that runs") {
			return errors.New(tail(old.output(), 3))
		}
		return nil
	})
	if _, err := s.apis()[0].Switch(ctx, connect.NewRequest(&dbv1.SwitchRequest{})); err != nil {
		t.Fatal(err)
	}
	s.awaitReadiness(ctx, "that the old server is waited for", func(o *switchover.Readiness) bool {
		return strings.Contains(strings.Join(o.WaitsFor, "\n"), "old knows only v1; update or stop them")
	})
	old.kill()
	s.await(ctx, "the flip", flipped("v2"))
	again := s.server("again", 0).listening(ctx)
	eventually(ctx, t, "the old server says why it does not serve", func() error {
		_, operator := again.addresses()
		code, body, err := get(ctx, "http://"+operator+"/readyz")
		if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(body, "the database is at version v2, this binary knows only v1: use one that knows v2")) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}
