package forward_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/control/forward"
)

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
	eventually(t, "open forwards a token", func() error {
		if code, text := open.call(t, operatorToken, "Plan", named{"name": theirs}, nil); code != "" {
			return fmt.Errorf("%s %s", code, text)
		}
		return nil
	})
	if code, text := open.call(t, "", "Plan", named{"name": theirs}, nil); code != "permission_denied" || !strings.Contains(text, "refuses: who calls is not proven") {
		t.Errorf("it borrows the certificate: %s %s", code, text)
	}
	// Who calls is what the caller proves, whatever it says about others.
	if code, text := b.callAs(t, insecureWith(t, authority.Certificate(t, accesstest.Leaf{SPIFFE: []string{"spiffe://example.org/ops/ann"}})), "", "GetDeployment", named{"name": theirs}, nil); code != "permission_denied" {
		t.Errorf("ann at the owner: %s %s", code, text)
	}
}

// heard keeps the tokens that a process gets.
type heard struct {
	mu     sync.Mutex
	tokens []string
}

func (h *heard) listen(_ http.ResponseWriter, r *http.Request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v := r.Header.Get("Authorization"); v != "" {
		h.tokens = append(h.tokens, v)
	}
	return false
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.tokens)
}

// TestProofsGoToNamedControllers: whoever can write etcd can announce an address. It gets no token, and no
// certificate is shown to it, unless the configuration vouches for it.
func TestProofsGoToNamedControllers(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t)
	cert, key := authority.Files(t, t.TempDir(), "a", accesstest.Leaf{SPIFFE: []string{"spiffe://example.org/controller/a"}})
	store := etcd(t, ours, theirs, far)
	plain, secured := &heard{}, &heard{}
	b := start(t, store, setup{id: "b", runs: []string{theirs}, broken: plain.listen})
	start(t, store, setup{id: "c", runs: []string{far}, broken: secured.listen, authority: authority})
	guarded := setup{
		id: "a", runs: []string{ours}, authority: authority, tokens: "operator " + operatorToken + "\n",
		roles: []access.Grant{{Role: access.Operator, Identity: "token:operator"}, {Role: access.Operator, Identity: "spiffe://example.org/ops/ann"}},
	}
	a := start(t, store, guarded)
	const why = ", because only etcd names this address: set api.peers.caFile here, or add the address to api.controllers"
	for _, name := range []string{theirs, far} {
		eventually(t, "a knows the address", func() error {
			code, text := a.call(t, operatorToken, "Plan", named{"name": name}, nil)
			if code != "NOT_IN_THIS_STATE" || !strings.Contains(text, "does not get your token"+why) {
				return fmt.Errorf("%s %s", code, text)
			}
			return nil
		})
	}
	// What needs no owner works here.
	if code, text := a.call(t, operatorToken, "SetPace", named{"name": theirs, "paused": true}, nil); code != "" {
		t.Errorf("%s %s", code, text)
	}
	if got := append(plain.all(), secured.all()...); len(got) != 0 {
		t.Errorf("they got %q", got)
	}
	// A certificate proves nothing to somebody else, but it shows who calls.
	guarded.id, guarded.peers = "certified", client.Config{Cert: cert, Key: key}
	certified := start(t, store, guarded)
	ann := insecureWith(t, authority.Certificate(t, accesstest.Leaf{SPIFFE: []string{"spiffe://example.org/ops/ann"}}))
	eventually(t, "certified knows the address", func() error {
		code, text := certified.callAs(t, ann, "", "Plan", named{"name": far}, nil)
		if code != "NOT_IN_THIS_STATE" || !strings.Contains(text, "does not get this controller's certificate"+why) {
			return fmt.Errorf("%s %s", code, text)
		}
		return nil
	})
	// The configuration names the address.
	guarded.id, guarded.peers, guarded.known = "named", client.Config{}, []string{b.url}
	informed := start(t, store, guarded)
	eventually(t, "the token arrives", func() error {
		code, text := informed.call(t, operatorToken, "Plan", named{"name": theirs}, nil)
		if code != "" || !slices.Contains(plain.all(), "Bearer "+operatorToken) {
			return fmt.Errorf("%s %s", code, text)
		}
		return nil
	})
}

// TestTokensNeedTLS: a token goes to no address where others could read it, even if the configuration names
// the address.
func TestTokensNeedTLS(t *testing.T) {
	t.Parallel()
	eu := &heard{}
	b := start(t, etcd(t, far), setup{id: "eu", runs: []string{far}, broken: eu.listen})
	// This address reaches the listener, but does not say that it is on this machine.
	readable := strings.Replace(b.url, "127.0.0.1", "0.0.0.0", 1)
	a := start(t, etcd(t, ours), setup{id: "a", runs: []string{ours}, regions: []forward.Region{region("eu", readable)}})
	var l listed
	if code, text := a.call(t, "", "ListDeployments", named{}, &l); code != "" || len(l.Deployments) != 2 {
		t.Fatalf("without a token: %s %s %+v", code, text, l)
	}
	l = listed{}
	if code, text := a.call(t, operatorToken, "ListDeployments", named{}, &l); code != "" || len(l.Regions) != 1 || !strings.Contains(l.Regions[0].Unavailable, "your token would be readable on the way") {
		t.Errorf("%s %s %+v", code, text, l)
	}
	if got := eu.all(); len(got) != 0 {
		t.Errorf("it got %q", got)
	}
}

// insecureWith is insecure with a client certificate.
func insecureWith(t *testing.T, pair tls.Certificate) *http.Client {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}, DisableKeepAlives: true}} //nolint:gosec // as it says
	t.Cleanup(c.CloseIdleConnections)
	return c
}
