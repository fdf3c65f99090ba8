package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
)

// reader is a response whose connection notes that its reads were ended.
type reader struct {
	*httptest.ResponseRecorder
	ended bool
}

func (r *reader) SetReadDeadline(time.Time) error {
	r.ended = true
	return nil
}

// changing proves alice as long as its error is nil.
type changing struct{ err atomic.Pointer[error] }

func (c *changing) refuse(err error) { c.err.Store(&err) }

func (c *changing) Wants() string { return "" }

func (c *changing) Authenticate(context.Context, *http.Request) (access.Identity, error) {
	if err := c.err.Load(); err != nil {
		return access.Identity{}, *err
	}
	return access.Identity{Name: "token:alice", Proof: "token"}, nil
}

// TestRevokedWhileItRuns: a watch ends soon after its caller's token or authority was removed. An
// expired proof ends it some minutes later, and an issuer that is away does not.
func TestRevokedWhileItRuns(t *testing.T) {
	t.Parallel()
	expired, away := &access.UnprovenError{Reason: "it has expired", Expired: true}, errors.New("away")
	for name, tc := range map[string]struct {
		revoke            func(t *testing.T, alice *changing, tokens, authorities string)
		path              string        // default: /watch
		file, certificate bool          // of the proof; neither: alice
		runs              time.Duration // at least, from the revocation on
		ends              bool
	}{
		"nothing": {runs: time.Hour},
		"a token": {file: true, revoke: func(t *testing.T, _ *changing, tokens, _ string) { accesstest.Replace(t, tokens, nil) }, ends: true},
		"its token": {file: true, revoke: func(t *testing.T, _ *changing, tokens, _ string) {
			accesstest.Replace(t, tokens, []byte("alice "+bobToken))
		}, ends: true},
		"another token": {file: true, runs: time.Hour, revoke: func(t *testing.T, _ *changing, tokens, _ string) {
			accesstest.Replace(t, tokens, []byte("bob "+bobToken+"\nalice "+aliceToken))
		}},
		"a name": {file: true, revoke: func(t *testing.T, _ *changing, tokens, _ string) {
			accesstest.Replace(t, tokens, []byte("bob "+aliceToken))
		}, ends: true},
		"an authority": {certificate: true, revoke: func(t *testing.T, _ *changing, _, authorities string) {
			accesstest.Replace(t, authorities, nil)
		}, ends: true},
		"expiry":             {revoke: func(_ *testing.T, alice *changing, _, _ string) { alice.refuse(expired) }, runs: 5 * time.Minute, ends: true},
		"expiry of a change": {path: "/change", revoke: func(_ *testing.T, alice *changing, _, _ string) { alice.refuse(expired) }, runs: time.Hour},
		"refused change":     {path: "/change", revoke: func(_ *testing.T, alice *changing, _, _ string) { alice.refuse(access.ErrNoProof) }, ends: true},
		"an issuer is away":  {revoke: func(_ *testing.T, alice *changing, _, _ string) { alice.refuse(away) }, runs: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				logs, seen := observer.New(zap.InfoLevel)
				dir := t.TempDir()
				tokens := accesstest.Replace(t, filepath.Join(dir, "tokens"), []byte("alice "+aliceToken))
				authority := accesstest.NewAuthority(t)
				authorities := authority.File(t, filepath.Join(dir, "ca.crt"))
				alice := &changing{}
				by, subject := access.Authenticator(alice), "token:alice"
				r := httptest.NewRequest(http.MethodPost, "http://localhost/watch", nil)
				var err error
				switch {
				case tc.file:
					by, err = access.OpenTokens(tokens, nil)
					r.Header.Set("Authorization", "Bearer "+aliceToken)
				case tc.certificate:
					var clients *access.Authorities
					clients, err = access.OpenClientAuthorities("authorities", authorities, nil)
					by, subject = access.Certificates{Authorities: clients}, "cert:CN=alice"
					leaf := authority.Certificate(t, accesstest.Leaf{Subject: pkix.Name{CommonName: "alice"}}).Leaf
					r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
				}
				if err != nil {
					t.Fatal(err)
				}
				policy, err := access.NewPolicy([]access.Grant{{Role: access.Viewer, Identity: subject}})
				if err != nil {
					t.Fatal(err)
				}
				guard, err := access.NewGuard(access.GuardConfig{
					Authenticators: []access.Authenticator{by}, Policy: policy, Audit: access.NewAudit(zap.New(logs)),
					Table: access.Table{"/watch": {Least: access.Viewer}, "/change": {Least: access.Viewer, Changes: true}},
				})
				if err != nil {
					t.Fatal(err)
				}
				if tc.path != "" {
					r.URL.Path = tc.path
				}
				began := time.Now()
				if tc.revoke != nil {
					time.AfterFunc(time.Minute, func() { tc.revoke(t, alice, tokens, authorities) })
				}
				w := &reader{ResponseRecorder: httptest.NewRecorder()}
				var ran time.Duration
				var cause error
				guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					r.Header.Del("Authorization") // as a handler may do
					select {
					case <-r.Context().Done():
						cause = context.Cause(r.Context())
					case <-time.After(2 * time.Hour):
					}
					ran = time.Since(began)
				})).ServeHTTP(w, r)
				switch {
				case ran < max(time.Minute, tc.runs):
					t.Errorf("it ended after %s: %v", ran, cause)
				case tc.ends && ran > time.Minute+tc.runs+time.Minute:
					t.Errorf("it went on for %s", ran)
				case tc.ends != (connect.CodeOf(cause) == connect.CodeUnauthenticated && cause != nil), tc.ends != w.ended:
					t.Errorf("its cause is %v, and that reads end is %t", cause, w.ended)
				}
				if n := seen.FilterMessage("ended").FilterField(zap.String("identity", subject)).Len(); (n == 1) != tc.ends {
					t.Errorf("the audit has %v", seen.All())
				}
				w.ended = false
				time.Sleep(time.Hour)
				if w.ended {
					t.Error("a request that is over is still checked")
				}
			})
		})
	}
}
