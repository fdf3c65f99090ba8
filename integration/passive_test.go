package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/localmongo"
)

// TestPassiveDatabaseIsAway: while the server of the version that is not served is down, before a
// switch and after it, servers and controllers start and do what they can, applications go on, and
// it is said what is missing; and all goes on by itself once it is back. After the switch it comes
// back with the data of a backup, and is made anew under traffic. The versions are in two clusters,
// with clocks of their own.
func TestPassiveDatabaseIsAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := &restorable{t: t, servers: map[string]*localmongo.Server{}}
	uris := map[string]string{}
	for _, version := range []string{"v1", "v2"} {
		r.servers[version] = start(ctx, t, localmongo.Options{Own: true})
		uris[version] = r.servers[version].URI()
	}
	s := newSystem(ctx, t, settings{uris: uris, toSwitch: "{maxLag: 5s}"})
	r.system = s
	tr := newTraffic(ctx, s, appClients*ownDocuments)
	c := s.controller("first", breakPoint{}).ready(ctx)
	tr.start(ctx, s.server("server", 0).ready(ctx))
	// outage has the server of the passive version down while controllers and servers start. It comes
	// back with the data of a backup, where there is one.
	outage := func(served, passive, backup string) {
		t.Helper()
		s.kill(c)
		node := r.servers[passive].Nodes()[0]
		node.Kill()
		c = s.controller("without-"+passive, breakPoint{}).listening(ctx)
		s.server("server-without-"+passive, 0).ready(ctx)
		tr.awaitWrites(ctx, served, max(tr.processes.count(served), tr.packages.count(served))+10)
		eventually(ctx, t, "the controller says what it waits for", func() error {
			_, operator := c.addresses()
			code, body, err := get(ctx, "http://"+operator+"/readyz")
			if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(body, "database of "+passive) || !strings.Contains(body, node.Addr())) {
				err = fmt.Errorf("%d %s", code, body)
			}
			return err
		})
		eventually(ctx, t, "the API shows it", func() error {
			res, err := s.apis()[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
			if err != nil {
				return err
			}
			if waits := strings.Join(res.Msg.Progress.WaitsFor, "\n"); !strings.Contains(waits, "controller without-"+passive+": ") || !strings.Contains(waits, "database of "+passive) {
				return errors.New(waits)
			}
			safe := res.Msg.GetRollbackSafe()
			if safe.GetSafe() {
				return errors.New("the rollback is said to be safe")
			}
			// Only the version before the latest switch can be needed for a rollback.
			if reason := safe.GetReason(); served == "v2" && !(strings.Contains(reason, "the database of v1 cannot be used now, but a rollback needs it") && strings.Contains(reason, node.Addr())) {
				return fmt.Errorf("the rollback is said not to be safe because %q", reason)
			}
			return nil
		})
		eventually(ctx, t, "metrics show it", func() error {
			_, operator := c.addresses()
			_, body, err := get(ctx, "http://"+operator+"/metrics")
			if err == nil && !regexp.MustCompile(`(?m)^dbcontroller_controller_ready{.*} 0$`).MatchString(body) {
				err = errors.New(body)
			}
			return err
		})
		if backup != "" {
			r.putBack(passive, backup)
		}
		if err := node.Start(ctx); err != nil {
			t.Fatal(err)
		}
		c.ready(ctx)
		if n := strings.Count(c.output(), "database cannot be opened"); n > 4 {
			t.Errorf("the reason is logged %d times", n)
		}
	}
	outage("v1", "v2", "")
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	s.awaitSync(ctx)
	backup, was := r.backup(ctx, "v1"), r.generation(ctx, "v1")
	tr.awaitWrites(ctx, "v2", max(tr.processes.count("v2"), tr.packages.count("v2"))+20)
	outage("v2", "v1", backup)
	r.rebuilds(ctx, "v1", was)
	s.awaitSync(ctx)
	s.beginTo(ctx, "v1")
	d := s.await(ctx, "the rollback", flipped("v1"))
	tr.awaitWrites(ctx, "v1", 10)
	tr.settle(ctx, d)
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
