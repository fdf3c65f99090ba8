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
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/localmongo"
)

// TestPassiveDatabaseIsAway: while the cluster of the other version is down, servers and
// controllers start and do what they can, and say what is missing; and they go on by
// themselves once it is back.
func TestPassiveDatabaseIsAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	other := start(ctx, t, localmongo.Options{Own: true})
	s := newSystem(ctx, t, settings{uris: map[string]string{"v2": other.URI()}})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	s.kill(s.controller("first", breakPoint{}).ready(ctx))

	node := other.Nodes()[0]
	node.Kill()
	again := s.controller("again", breakPoint{}).listening(ctx)
	server := s.server("server", 0).ready(ctx)
	lrp := process{guid: "p", made: 1, changed: 1}
	write := newBBSClient(s.http, server).v1[0].CreateDesiredLRP
	if _, err := write(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: lrp.v1()})); err != nil {
		t.Errorf("v1 cannot be written while v2 is away: %v", err)
	}
	eventually(ctx, t, "the controller says what it waits for", func() error {
		_, operator := again.addresses()
		code, body, err := get(ctx, "http://"+operator+"/readyz")
		if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(body, "database of v2") || !strings.Contains(body, node.Addr())) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	eventually(ctx, t, "the API shows it", func() error {
		res, err := s.apis()[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err != nil {
			return err
		}
		if waits := strings.Join(res.Msg.Progress.WaitsFor, "\n"); !strings.Contains(waits, "controller again: ") || !strings.Contains(waits, "database of v2") {
			return errors.New(waits)
		}
		return nil
	})
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	again.ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	if n := strings.Count(again.output(), "database cannot be opened"); n > 4 {
		t.Errorf("the reason is logged %d times", n)
	}
}

// TestDisabledDatabaseIsNotNeeded: what is disabled and not active is never asked.
func TestDisabledDatabaseIsNotNeeded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[{from: packages, to: packages, lens: packages.yaml}]"})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	s.edit(func(text string) string {
		at := strings.LastIndex(text, "disabled: false")
		return text[:at] + "disabled: true" + text[at+len("disabled: false"):]
	})
	s.env = append(s.env, "MONGO_V2=mongodb://127.0.0.1:1/?replicaSet=rs0")
	c := s.controller("controller", breakPoint{}).ready(ctx)
	server := s.server("server", 0).ready(ctx)
	for _, p := range []*child{c, server} {
		if strings.Contains(p.output(), "127.0.0.1:1/") {
			t.Errorf("%s asked the disabled database:\n%s", p.name, tail(p.output(), 5))
		}
	}
}

// TestCurrentDatabaseIsAway: a controller waits for it, answers the API and leads meanwhile.
func TestCurrentDatabaseIsAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	own := start(ctx, t, localmongo.Options{Own: true})
	s := newSystem(ctx, t, settings{uris: map[string]string{"v1": own.URI()}})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	s.kill(s.controller("first", breakPoint{}).ready(ctx))
	node := own.Nodes()[0]
	node.Kill()
	again := s.controller("again", breakPoint{}).listening(ctx)
	eventually(ctx, t, "the controller leads, and says what it waits for", func() error {
		if leader := s.leader(ctx); leader != "again" {
			return errors.New("leader is " + leader)
		}
		_, operator := again.addresses()
		code, body, err := get(ctx, "http://"+operator+"/readyz")
		if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(body, "database of v1")) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	again.ready(ctx)
}

// TestDisabledIsAwayAtFirst: the server of a disabled entry is away at the very first start. The
// documents of another version decide where the deployment begins.
func TestDisabledIsAwayAtFirst(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{decide: true})
	s.edit(func(text string) string {
		at := strings.LastIndex(text, "disabled: false")
		return text[:at] + "disabled: true" + text[at+len("disabled: false"):]
	})
	s.env = append(s.env, "MONGO_V2=mongodb://127.0.0.1:1/?replicaSet=rs0&serverSelectionTimeoutMS=500")
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	s.controller("controller", breakPoint{}).ready(ctx)
	if d, err := s.record.Get(ctx); err != nil || d.CurrentVersion != "v1" {
		t.Errorf("%v: it begins at %s", err, d.CurrentVersion)
	}
}
