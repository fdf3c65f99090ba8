package forward_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
)

// TestNoLoops: controllers that wrongly announce each other's deployments send a call on once, and the error
// says what is wrong. So does one that others take for an owner, at an address that it has taken over.
func TestNoLoops(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs, far)
	a := start(t, store, setup{id: "a", runs: []string{ours}, announces: []string{theirs}})
	b := start(t, store, setup{id: "b", announces: []string{theirs}})
	start(t, store, setup{id: "moved", announces: []string{far}, at: a.url})
	for name, to := range map[string]*process{theirs: b, far: a} {
		id := map[*process]string{a: "a", b: "b"}[to]
		eventually(t, "a asks "+id, func() error {
			code, text := a.call(t, "", "Plan", named{"name": name}, nil)
			if code != "NOT_IN_THIS_STATE" || text != "controller "+id+" does not run "+name+", but its address was announced for it: check api.address of the controllers that run it" {
				return fmt.Errorf("%s %s", code, text)
			}
			return nil
		})
		before := a.count("Plan") + b.count("Plan")
		a.call(t, "", "Plan", named{"name": name}, nil)
		if n := a.count("Plan") + b.count("Plan") - before; n != 2 {
			t.Errorf("%d calls about %s, want one and its forwarding", n, name)
		}
		// What needs no owner works.
		if code, text := a.call(t, "", "SetPace", named{"name": name, "paused": true}, nil); code != "" {
			t.Errorf("%s %s", code, text)
		}
	}
}

// TestSameID: two controllers with one id both have their calls.
func TestSameID(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	one := start(t, store, setup{id: "twin", runs: []string{ours}})
	other := start(t, store, setup{id: "twin", runs: []string{theirs}})
	a := start(t, store, setup{id: "a"})
	for _, name := range []string{ours, theirs} {
		a.knows(t, name, "twin")
	}
	if one.count("Plan") == 0 || other.count("Plan") == 0 {
		t.Errorf("%d and %d calls", one.count("Plan"), other.count("Plan"))
	}
	one.knows(t, theirs, "twin")
	if one.audit.FilterMessage("another controller has the id of this one: give each its own --id").Len() != 1 {
		t.Error("the log does not say that two have one id")
	}
}

// TestStrangeAnnouncements: what cannot be an address is left out with one line, and the rest counts.
func TestStrangeAnnouncements(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a := start(t, store, setup{id: "a", runs: []string{ours}})
	strange := []string{
		"ftp://x", "http://user:secret@x:1", "http://x:1/path", "http://x:1,http://y:1", "\x00", "unix:///run/api.sock", "http://fd00::1:80",
		"http://169.254.169.254", "http://[::ffff:169.254.169.254]:80", "http://[fe80::1%25eth0]:80", "http://0.0.0.0:80", "http://[ff02::1]:80",
	}
	for i, at := range strange {
		start(t, store, setup{id: fmt.Sprint("strange", i), announces: []string{theirs}, at: at})
	}
	// These are no announcements at all.
	many := make([]string, 100_000)
	for i, value := range []string{"{", "[]", `{"id": "x", "address": "http://` + strings.Repeat("x", 1<<20) + `:1", "deployments": ["` + theirs + `"]}`, fmt.Sprintf(`{"id": "y", "address": "http://y:1", "deployments": %s]}`, strings.ReplaceAll(fmt.Sprintf("%q", many), " ", ","))} {
		if _, err := store.Commit(t.Context(), nil, []coord.Op{{Key: fmt.Sprintf("%s/addresses/wrong%d/1", deployment.DefaultPrefix, i), Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	start(t, store, setup{id: "b", runs: []string{theirs}})
	a.knows(t, theirs, "b")
	if n := a.audit.FilterMessage("cannot use the address of a controller: calls are not forwarded to it").Len(); n != len(strange) {
		t.Errorf("%d lines, want %d", n, len(strange))
	}
	if n := a.audit.FilterMessage("cannot read the address of a controller").Len(); n != 4 {
		t.Errorf("%d lines, want 4", n)
	}
	for _, l := range a.audit.All() {
		if text := fmt.Sprint(l.ContextMap()); strings.Contains(text, "secret") || len(text) > 2000 {
			t.Errorf("the log has a password, or too much: %.300s", text)
		}
	}
}

// TestOtherServers: an address leads to a controller of another etcd, of an older build, or to something
// else. Calls are answered without it as far as possible, and else the error says what is there.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	answers := func(status int, kind, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	older := func(w http.ResponseWriter, r *http.Request) bool {
		_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeUnimplemented, errors.New("nothing can be called here")))
		return true
	}
	for name, there := range map[string]struct {
		setup
		plan, text string // code and text of the error
		pace       string // code; empty: this process carries it out
	}{
		"another etcd":   {setup{runs: []string{far}}, "NOT_IN_THIS_STATE", "controller b does not run " + theirs, ""},
		"an older build": {setup{broken: older}, "unimplemented", "does not know this call: its build is older", ""},
		"a web server":   {setup{broken: answers(http.StatusNotFound, "text/html", "<html>")}, "COORDINATION_UNAVAILABLE", "something else answers there: check the address: ", ""},
		"TLS alone":      {setup{broken: answers(http.StatusBadRequest, "text/plain", "Client sent an HTTP request to an HTTPS server.")}, "COORDINATION_UNAVAILABLE", "something else answers there: check the address: ", ""},
		"a login page":   {setup{broken: answers(http.StatusFound, "text/html", "")}, "COORDINATION_UNAVAILABLE", "something else answers there: check the address: ", ""},
		// A proxy may have sent the call on.
		"a proxy":  {setup{broken: answers(http.StatusGatewayTimeout, "text/html", "")}, "COORDINATION_UNAVAILABLE", "504 Gateway Timeout", "OUTCOME_UNKNOWN"},
		"anything": {setup{broken: answers(http.StatusOK, "text/html", "<html>")}, "COORDINATION_UNAVAILABLE", "text/html", "OUTCOME_UNKNOWN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := etcd(t, ours, theirs)
			a := start(t, store, setup{id: "a", runs: []string{ours}})
			there.id, there.at = "b", "none"
			b := start(t, etcd(t, far), there.setup)
			start(t, store, setup{id: "wrong", announces: []string{theirs}, at: b.url})
			for _, method := range []string{"Plan", "StreamPlan"} {
				eventually(t, "a asks there", func() error {
					code, text := a.call(t, "", method, named{"name": theirs}, nil)
					if method == "StreamPlan" {
						code, text = a.streamed(t, theirs)
					}
					if code != there.plan || !strings.Contains(text, there.text) || strings.Contains(text, "\n") {
						return fmt.Errorf("%s %s", code, text)
					}
					return nil
				})
			}
			if code, text := a.call(t, "", "SetPace", named{"name": theirs, "paused": true}, nil); code != there.pace {
				t.Errorf("%s %s", code, text)
			}
			if code, text := a.call(t, "", "GetDeployment", named{"name": theirs}, nil); code != "" {
				t.Errorf("%s %s", code, text)
			}
			pause(t, store, theirs, "seen")
			sees(t, a.watch(t, theirs), "seen", "")
		})
	}
}
