package forward_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/appclient/client"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
)

type named map[string]any

// TestVerbsGoToTheOwner: only the controller that runs a deployment can plan, and calls through another one
// reach it. Each call is audited on both sides.
func TestVerbsGoToTheOwner(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a, b := start(t, store, setup{id: "a", runs: []string{ours}}), start(t, store, setup{id: "b", runs: []string{theirs}})
	a.knows(t, theirs, "b")
	a.knows(t, ours, "a")
	if n := b.count("Plan"); n == 0 {
		t.Error("the owner got no call")
	}
	var d struct {
		Name, Region string
		Pace         struct{ Paused bool }
	}
	if code, text := a.call(t, "", "SetPace", named{"name": theirs, "paused": true, "requestedBy": "ann"}, &d); code != "" || d.Name != theirs || !d.Pace.Paused || d.Region != "" {
		t.Errorf("%s %s %+v", code, text, d)
	}
	// A refusal of the owner keeps its code, reason and text.
	if code, text := a.call(t, "", "Switch", named{"name": theirs}, nil); code != "NOT_IN_THIS_STATE" || !strings.HasPrefix(text, "switch: ") {
		t.Errorf("%s %s", code, text)
	}
	lines := b.audit.FilterMessage("call").FilterFieldKey("forwarded_by").All()
	if len(lines) == 0 || lines[0].ContextMap()["forwarded_by"] != "a for loopback" || lines[0].ContextMap()["deployment"] != theirs {
		t.Errorf("the owner's audit: %+v", lines)
	}
	if a.audit.FilterMessage("call").Len() == 0 || a.audit.FilterFieldKey("forwarded_by").Len() != 0 {
		t.Errorf("the audit of the other one: %+v", a.audit.All())
	}
}

// TestEachCallHasItsPlace: every call about a deployment goes to its owner, except those of applications, and
// the creation, which a coordination store decides about.
func TestEachCallHasItsPlace(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a := start(t, store, setup{id: "a", runs: []string{ours}})
	b := start(t, store, setup{id: "b", runs: []string{theirs}})
	a.knows(t, theirs, "b")
	here := []string{"CreateDeployment", "RegisterClient", "DeregisterClient", "AckHold", "GetLocation"}
	methods := pb.File_dbcontroller_v1_deployment_proto.Services().ByName("DeploymentService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		name := m.Input().Fields().ByName("name")
		method := string(m.Name())
		if name == nil || strings.Contains(method, "Rollout") {
			continue // it is about the coordination store
		}
		before := b.count(method)
		if m.IsStreamingServer() {
			a.stream(t, m, theirs)
		} else {
			a.call(t, "", method, named{"name": theirs}, nil)
		}
		if went := b.count(method) > before; went == slices.Contains(here, method) {
			t.Errorf("%s went to the owner: %v", method, went)
		}
	}
}

// stream makes a call with several answers, and leaves after the first one.
func (p *process) stream(t *testing.T, m protoreflect.MethodDescriptor, name string) {
	t.Helper()
	body, err := json.Marshal(named{"name": name})
	if err != nil {
		t.Fatal(err)
	}
	framed := append([]byte{0, 0, 0, 0, byte(len(body))}, body...)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/dbcontroller.v1.DeploymentService/"+string(m.Name()), strings.NewReader(string(framed)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+json")
	res, err := insecure.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = res.Body.Read(make([]byte, 1))
}

// TestNoLoops: controllers that wrongly announce each other's deployments send a call on once.
func TestNoLoops(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a := start(t, store, setup{id: "a", runs: []string{ours}, announces: []string{theirs}})
	b := start(t, store, setup{id: "b", announces: []string{theirs}})
	eventually(t, "a asks b", func() error {
		a.call(t, "", "ListUpdates", named{"name": theirs}, nil)
		if b.count("ListUpdates") == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	before, asked := b.count("Plan"), a.count("Plan")
	code, text := a.call(t, "", "Plan", named{"name": theirs}, nil)
	if code != "NOT_IN_THIS_STATE" || text != "plan: this controller is not configured for "+theirs+": ask a controller that is" {
		t.Errorf("%s %s", code, text)
	}
	if b.count("Plan") != before+1 || a.count("Plan") != asked+1 {
		t.Errorf("%d calls at b, %d at a", b.count("Plan")-before, a.count("Plan")-asked)
	}
}

const (
	operatorToken = "operator-0123456789abcdef"
	viewerToken   = "viewer-0123456789abcdef"
	onlyHere      = "onlyhere-0123456789abcdef"
)

// TestRightsOfForwardedCalls: a caller can do through another controller what both allow, and nothing else.
func TestRightsOfForwardedCalls(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t)
	dir := t.TempDir()
	ca := authority.File(t, dir+"/ca.crt")
	cert, key := authority.Files(t, dir, "a", accesstest.Leaf{SPIFFE: []string{"spiffe://example.org/controller/a"}})
	store := etcd(t, ours, theirs)
	roles := []access.Grant{
		{Role: access.Operator, Identity: "token:operator"}, {Role: access.Viewer, Identity: "token:viewer"},
		{Role: access.Operator, Identity: "token:onlyhere"}, {Role: access.Operator, Identity: "spiffe://example.org/ops/ann"},
	}
	a := start(t, store, setup{
		id: "a", runs: []string{ours}, authority: authority, roles: roles, peers: client.Config{CA: ca, Cert: cert, Key: key},
		tokens: "operator " + operatorToken + "\nviewer " + viewerToken + "\nonlyhere " + onlyHere + "\n",
	})
	b := start(t, store, setup{
		id: "b", runs: []string{theirs}, authority: authority,
		tokens: "operator " + operatorToken + "\nviewer " + viewerToken + "\n",
		roles:  append(slices.Clone(roles[:2]), access.Grant{Role: access.Viewer, Identity: "spiffe://example.org/controller/*"}),
	})
	eventually(t, "a forwards", func() error {
		if code, text := a.call(t, operatorToken, "Plan", named{"name": theirs}, nil); code != "" {
			return fmt.Errorf("%s %s", code, text)
		}
		return nil
	})
	before := b.count("Plan")
	if code, text := a.call(t, viewerToken, "Plan", named{"name": theirs}, nil); code != "permission_denied" || !strings.Contains(text, "wants the role operator") || b.count("Plan") != before {
		t.Errorf("a viewer: %s %s; %d calls", code, text, b.count("Plan")-before)
	}
	if code, text := a.call(t, viewerToken, "GetDeployment", named{"name": theirs}, nil); code != "" {
		t.Errorf("a viewer cannot look: %s %s", code, text)
	}
	// The page would ask for a login after 'unauthenticated'.
	if code, text := a.call(t, onlyHere, "GetDeployment", named{"name": theirs}, nil); code != "permission_denied" || !strings.Contains(text, "refuses: the bearer token is not known here") {
		t.Errorf("a token that the owner does not know: %s %s", code, text)
	}
	if code, text := a.call(t, "", "GetDeployment", named{"name": theirs}, nil); code != "unauthenticated" {
		t.Errorf("nobody: %s %s", code, text)
	}
	// An operator with a certificate has the roles of this controller's certificate there.
	pair := authority.Certificate(t, accesstest.Leaf{SPIFFE: []string{"spiffe://example.org/ops/ann"}})
	ann := insecureWith(t, pair)
	if code, text := a.callAs(t, ann, "", "GetDeployment", named{"name": theirs}, nil); code != "" {
		t.Errorf("ann cannot look: %s %s", code, text)
	}
	if code, text := a.callAs(t, ann, "", "Plan", named{"name": theirs}, nil); code != "permission_denied" || !strings.Contains(text, "spiffe://example.org/controller/a has the role viewer") {
		t.Errorf("ann plans: %s %s", code, text)
	}
	// A caller that proves nothing does not borrow the certificate of the process that it calls.
	open := start(t, store, setup{id: "open", runs: []string{ours}, at: "none", peers: client.Config{CA: ca, Cert: cert, Key: key}})
	eventually(t, "open forwards", func() error {
		code, text := open.call(t, "", "Plan", named{"name": theirs}, nil)
		if code != "permission_denied" || !strings.Contains(text, "refuses: who calls is not proven") {
			return fmt.Errorf("%s %s", code, text)
		}
		return nil
	})
	if code, text := open.call(t, operatorToken, "Plan", named{"name": theirs}, nil); code != "" {
		t.Errorf("with a token: %s %s", code, text)
	}
	// Who calls is what the caller proves, whatever it says about others.
	if code, text := b.callAs(t, insecureWith(t, authority.Certificate(t, accesstest.Leaf{SPIFFE: []string{"spiffe://example.org/ops/ann"}})), "", "GetDeployment", named{"name": theirs}, nil); code != "permission_denied" {
		t.Errorf("ann at the owner: %s %s", code, text)
	}
}

// TestTokensNeedTLS: a token goes to no address where others could read it.
func TestTokensNeedTLS(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	// 198.51.100.0/24 belongs to nobody. Nothing may be sent there.
	start(t, store, setup{id: "b", runs: []string{theirs}, at: "http://198.51.100.7:7090"})
	a := start(t, store, setup{id: "a", runs: []string{ours}, tokens: "operator " + operatorToken + "\n", roles: []access.Grant{{Role: access.Operator, Identity: "token:operator"}}})
	eventually(t, "a knows the address", func() error {
		code, text := a.call(t, operatorToken, "Plan", named{"name": theirs}, nil)
		if code != "NOT_IN_THIS_STATE" || !strings.Contains(text, "http://198.51.100.7:7090 is reached without TLS, and your token would be readable on the way") {
			return fmt.Errorf("%s %s", code, text)
		}
		return nil
	})
	// What needs no owner works here.
	if code, text := a.call(t, operatorToken, "SetPace", named{"name": theirs, "paused": true}, nil); code != "" {
		t.Errorf("%s %s", code, text)
	}
}

// TestOwnersThatAreGone: calls go to the next owner, or are answered here as far as that is possible.
func TestOwnersThatAreGone(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a := start(t, store, setup{id: "a", runs: []string{ours}})
	closed := "http://" + accesstest.ClosedPort(t)
	start(t, store, setup{id: "gone", announces: []string{theirs}, at: closed})
	eventually(t, "a knows the address", func() error {
		code, text := a.call(t, "", "Plan", named{"name": theirs}, nil)
		if code != "COORDINATION_UNAVAILABLE" || !strings.Contains(text, "the controller that runs it at "+closed+" does not answer") {
			return fmt.Errorf("%s %s", code, text)
		}
		return nil
	})
	for _, method := range []string{"GetDeployment", "ListParked"} {
		if code, text := a.call(t, "", method, named{"name": theirs}, nil); code != "" {
			t.Errorf("%s: %s %s", method, code, text)
		}
	}
	if code, text := a.call(t, "", "SetPace", named{"name": theirs, "paused": true}, nil); code != "" {
		t.Errorf("a verb that needs etcd alone: %s %s", code, text)
	}
	start(t, store, setup{id: "b", runs: []string{theirs}})
	a.knows(t, theirs, "b")
}

// TestUnknownOutcomes: an owner that dies in the middle of a call may have made the change. The call is not
// sent again. One that changes nothing is.
func TestUnknownOutcomes(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a := start(t, store, setup{id: "a", runs: []string{ours}})
	dies := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get(access.ForwardedHeader) == "" || strings.HasSuffix(r.URL.Path, "ListUpdates") {
			return false
		}
		panic(http.ErrAbortHandler)
	}
	b := start(t, store, setup{id: "b", runs: []string{theirs}, broken: dies})
	eventually(t, "a forwards", func() error {
		a.call(t, "", "ListUpdates", named{"name": theirs}, nil)
		if b.count("ListUpdates") == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	code, text := a.call(t, "", "SetPace", named{"name": theirs, "paused": true}, nil)
	if code != "OUTCOME_UNKNOWN" || !strings.Contains(text, "may or may not have made the change") || b.count("SetPace") != 1 {
		t.Errorf("%s %s, %d calls", code, text, b.count("SetPace"))
	}
	// A dry run changes nothing, so that this process may answer.
	if code, text := a.call(t, "", "SetPace", named{"name": theirs, "paused": true, "dryRun": true}, nil); code != "" {
		t.Errorf("%s %s", code, text)
	}
	if code, text := a.call(t, "", "GetDeployment", named{"name": theirs}, nil); code != "" || b.count("GetDeployment") == 0 {
		t.Errorf("%s %s", code, text)
	}
}

// TestStrangeAnnouncements: what cannot be an address is left out, and the rest counts.
func TestStrangeAnnouncements(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a := start(t, store, setup{id: "a", runs: []string{ours}})
	for i, at := range []string{"ftp://x", "http://user:secret@x:1", "http://x:1/path", "http://x:1,http://y:1", "\x00"} {
		start(t, store, setup{id: fmt.Sprint("strange", i), announces: []string{theirs}, at: at})
	}
	start(t, store, setup{id: "b", runs: []string{theirs}})
	a.knows(t, theirs, "b")
	for _, l := range a.audit.All() {
		if strings.Contains(fmt.Sprint(l.ContextMap()["error"]), "secret") {
			t.Errorf("the log has a password: %v", l.ContextMap())
		}
	}
}

// insecureWith is insecure with a client certificate.
func insecureWith(t *testing.T, pair tls.Certificate) *http.Client {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}, DisableKeepAlives: true}} //nolint:gosec // as it says
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// arrivedCall returns nil once one of the processes got a call.
func arrivedCall(method string, all ...*process) error {
	for _, p := range all {
		if p.count(method) > 0 {
			return nil
		}
	}
	return fmt.Errorf("no %s has come", method)
}
