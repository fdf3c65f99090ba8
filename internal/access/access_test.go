package access_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
)

const aliceToken, bobToken = "alice-0123456789abcdef", "bob-0123456789abcdefgh"

// TestEveryCallHasARow: a call that is added to the API is refused, and this fails, until
// somebody has decided who may make it.
func TestEveryCallHasARow(t *testing.T) {
	t.Parallel()
	service := dbv1.File_dbcontroller_v1_deployment_proto.Services().ByName("DeploymentService")
	paths := map[string]bool{}
	for i := range service.Methods().Len() {
		path := fmt.Sprintf("/%s/%s", service.FullName(), service.Methods().Get(i).Name())
		paths[path] = true
		if _, ok := access.Calls[path]; !ok {
			t.Errorf("%s has no row in access.Calls: decide which role may call it", path)
		}
	}
	for path := range access.Calls {
		if !paths[path] {
			t.Errorf("access.Calls has a row for %s, which is no call", path)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := access.Table{"/a": {Least: access.Viewer}, "/a/b/": {Least: access.Operator}}
	for path, want := range map[string]access.Role{"/a": "viewer", "/a/": "", "/a/b/": "operator", "/a/b/c/d": "operator", "/": "", "": "", "/a/b": ""} {
		if row, _ := table.Row(path); row.Least != want {
			t.Errorf("%q wants %q, not %q", path, row.Least, want)
		}
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		has  []access.Role
		want string // of anyone, application, viewer, operator
	}{
		{nil, "1000"}, {[]access.Role{"application"}, "1100"}, {[]access.Role{"viewer"}, "1010"},
		{[]access.Role{"application", "viewer"}, "1110"}, {[]access.Role{"operator"}, "1111"}, {[]access.Role{"anyone"}, "1000"},
	} {
		got := ""
		for _, least := range []access.Role{access.Anyone, access.Application, access.Viewer, access.Operator} {
			got += map[bool]string{true: "1", false: "0"}[access.Caller{Roles: tc.has}.May(least)]
		}
		if got != tc.want {
			t.Errorf("%v may %s, want %s", tc.has, got, tc.want)
		}
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	p, err := access.NewPolicy([]access.Grant{
		{Role: access.Operator, Identity: "token:alice"},
		{Role: access.Viewer, Identity: "spiffe://example.org/ns/shop/*"},
		{Role: access.Application, Identity: "oidc:cluster:system:serviceaccount:shop:*"},
		{Role: access.Viewer, Identity: "token:alice"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]access.Role{
		"token:alice": {"operator", "viewer"}, "token:alice2": nil, "token:ALICE": nil, "cert:alice": nil, "": nil,
		"spiffe://example.org/ns/shop/a": {"viewer"}, "spiffe://example.org/ns/shop/": nil, "spiffe://example.org/ns/shopping/a": nil,
		"oidc:cluster:system:serviceaccount:shop:billing": {"application"}, "oidc:other:system:serviceaccount:shop:billing": nil,
	} {
		if got := p.RolesOf(name); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", name, got, want)
		}
	}
	for _, bad := range []string{"", "alice", "token:", "*", "token:*", "spiffe://*", "spiffe:///*", "oidc:*", "cert:CN=*", "spiffe://a/*/b", "spiffe://a/b*", "token:a\nb"} {
		if _, err := access.NewPolicy([]access.Grant{{Role: access.Viewer, Identity: bad}}); err == nil {
			t.Errorf("%q is taken for identities", bad)
		}
	}
}

// with is a request that brings a header.
func with(authorization string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokens(t *testing.T) {
	t.Parallel()
	hash := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(bobToken)))
	tokens, err := access.OpenTokens(file(t, "# people\nalice "+aliceToken+"\n\nbob "+hash+"\nalice another-0123456789abc\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]string{
		"Bearer " + aliceToken: "token:alice", "bearer " + bobToken: "token:bob", "Bearer another-0123456789abc": "token:alice",
		"": "", "Bearer": "", "Bearer ": "", "Bearer " + hash: "", "Basic " + aliceToken: "", aliceToken: "", "Bearer " + aliceToken + "x": "",
	} {
		id, err := tokens.Authenticate(t.Context(), with(header))
		if id.Name != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, access.ErrNoProof) {
			t.Errorf("%q proves %q (%v), want %q", header, id.Name, err, want)
		}
	}
	twice := with("Bearer " + aliceToken)
	twice.Header.Add("Authorization", "Bearer "+bobToken)
	if id, err := tokens.Authenticate(t.Context(), twice); err == nil {
		t.Errorf("two headers prove %s", id.Name)
	}
}

func TestTokenFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"alice " + aliceToken + " x":            "tokens: tokens:1: want a name and a token",
		aliceToken:                              "tokens: tokens:1: want a name and a token",
		"\nalice short":                         "tokens: tokens:2: the token has fewer than 20 characters: make one with 'openssl rand -hex 32'",
		"alice sha256:abc":                      "tokens: tokens:1: want 64 hexadecimal digits after sha256:",
		"a " + aliceToken + "\nb " + aliceToken: "tokens: tokens:2: another name has this token already",
		aliceToken + " alice":                   "tokens: tokens:1: the token has fewer than 20 characters: make one with 'openssl rand -hex 32'",
		"ü " + aliceToken:                       "tokens: tokens:1: the name is none: want letters, digits, and any of . _ @ / -, and a token after it",
	} {
		_, err := access.OpenTokens(file(t, text), nil)
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), aliceToken) {
			t.Errorf("the error shows a token: %v", err)
		}
	}
	path := file(t, "alice "+aliceToken)
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := access.OpenTokens(path, nil); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a file that others can write: %v", err)
	}
}

// TestTokensAreReadAgain: a token that is taken out counts no more, be it the last one; nor does one
// whose line is broken, while the others stay valid. No token is in the log.
func TestTokensAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, seen := observer.New(zap.InfoLevel)
		path := file(t, "alice "+aliceToken)
		tokens, err := access.OpenTokens(path, zap.New(logs))
		if err != nil {
			t.Fatal(err)
		}
		proves := func(token string) bool {
			time.Sleep(2 * time.Second) // of the bubble
			_, err := tokens.Authenticate(t.Context(), with("Bearer "+token))
			return err == nil
		}
		for _, tc := range []struct {
			text       string
			alice, bob bool
			broken     int
		}{
			{"alice\nbob " + bobToken, false, true, 1},
			{"alice " + aliceToken + "\nbob", true, false, 1},
			{aliceToken + " alice\nbob " + bobToken + " x\n", false, false, 2},
			{"", false, false, 0},
			{"# alice " + aliceToken, false, false, 0},
			{"x " + strings.Repeat("x", 100_000) + " y\nalice " + aliceToken, true, false, 1},
		} {
			seen.TakeAll()
			accesstest.Replace(t, path, []byte(tc.text))
			if alice, bob := proves(aliceToken), proves(bobToken); alice != tc.alice || bob != tc.bob {
				t.Errorf("with %.40q alice is known %t, bob %t", tc.text, alice, bob)
			}
			if n := seen.FilterLevelExact(zap.ErrorLevel).Len(); n != tc.broken {
				t.Errorf("with %.40q the log has %d lines", tc.text, n)
			}
			for _, e := range seen.All() {
				if text := fmt.Sprint(e.Message, e.ContextMap()); strings.Contains(text, bobToken) || strings.Contains(text, aliceToken) {
					t.Errorf("the log shows a token: %s", text)
				}
			}
		}
		accesstest.Replace(t, path, []byte("bob "+bobToken))
		if proves(aliceToken) || !proves(bobToken) {
			t.Error("the new file does not count")
		}
		// A file that others can write takes tokens away, and adds none.
		for _, tc := range []struct {
			text       string
			mode       os.FileMode
			alice, bob bool
		}{
			{"alice " + aliceToken + "\nbob " + bobToken, 0o664, false, true},
			{"alice " + aliceToken + "\nbob " + bobToken, 0o600, true, true},
			{"bob " + bobToken, 0o664, false, true},
			{"bob " + aliceToken, 0o622, false, false},
			{"bob " + bobToken, 0o640, false, true},
		} {
			accesstest.Replace(t, path, []byte(tc.text))
			if err := os.Chmod(path, tc.mode); err != nil {
				t.Fatal(err)
			}
			if alice, bob := proves(aliceToken), proves(bobToken); alice != tc.alice || bob != tc.bob {
				t.Errorf("with %.40q of mode %o alice is known %t, bob %t", tc.text, tc.mode, alice, bob)
			}
		}
		for _, e := range seen.All() {
			if text := fmt.Sprint(e.Message, e.ContextMap()); strings.Contains(text, bobToken) || strings.Contains(text, aliceToken) {
				t.Errorf("the log shows a token: %s", text)
			}
		}
	})
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t)
	for name, tc := range map[string]struct {
		leaf       accesstest.Leaf
		want, fail string
	}{
		"subject":         {leaf: accesstest.Leaf{Subject: pkix.Name{CommonName: "alice", Organization: []string{"ops"}}}, want: "cert:CN=alice,O=ops"},
		"SPIFFE":          {leaf: accesstest.Leaf{Subject: pkix.Name{CommonName: "alice"}, SPIFFE: []string{"spiffe://example.org/a"}}, want: "spiffe://example.org/a"},
		"two SPIFFE ids":  {leaf: accesstest.Leaf{SPIFFE: []string{"spiffe://example.org/a", "spiffe://example.org/b"}}, fail: "more than one URI"},
		"SPIFFE and more": {leaf: accesstest.Leaf{SPIFFE: []string{"spiffe://example.org/a", "https://example.org/b"}}, fail: "more than one URI"},
		"nothing":         {leaf: accesstest.Leaf{}, fail: "neither a subject"},
		"expired since":   {leaf: accesstest.Leaf{Subject: pkix.Name{CommonName: "alice"}, Expired: true}, fail: "expired"},
		// A subject cannot be made to read as another proof's name.
		"a disguise": {leaf: accesstest.Leaf{Subject: pkix.Name{CommonName: "token:alice"}}, want: "cert:CN=token:alice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair := authority.Certificate(t, tc.leaf)
			r := with("")
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf}}
			if _, err := (access.Certificates{}).Authenticate(t.Context(), r); !errors.Is(err, access.ErrNoProof) {
				t.Errorf("a certificate that nobody has verified: %v", err)
			}
			r.TLS.VerifiedChains = [][]*x509.Certificate{{pair.Leaf}}
			id, err := (access.Certificates{}).Authenticate(t.Context(), r)
			var unproven *access.UnprovenError
			if id.Name != tc.want || (err != nil) != (tc.fail != "") || err != nil && (!errors.As(err, &unproven) || !strings.Contains(err.Error(), tc.fail)) {
				t.Errorf("it proves %q (%v), want %q (%s)", id.Name, err, tc.want, tc.fail)
			}
		})
	}
}

func TestIssuer(t *testing.T) {
	t.Parallel()
	signer, stranger := accesstest.NewIssuer(t), accesstest.NewIssuer(t)
	issuer, err := access.OpenIssuer(access.IssuerConfig{Name: "corp", Issuer: signer.URL, Audience: "dbcontroller"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	mails, err := access.OpenIssuer(access.IssuerConfig{Name: "mail", Issuer: signer.URL, Audience: "dbcontroller", Claim: "email", KeysURL: signer.URL + "/keys"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	forged := stranger.Token(t, "dbcontroller", map[string]any{"iss": signer.URL, "sub": "alice"})
	for name, tc := range map[string]struct {
		by         *access.Issuer
		token      string
		want, fail string // neither: it is nothing for this issuer
	}{
		"a person":          {by: issuer, token: signer.Token(t, "dbcontroller", map[string]any{"sub": "alice"}), want: "oidc:corp:alice"},
		"a service account": {by: issuer, token: signer.Token(t, "dbcontroller", map[string]any{"sub": "system:serviceaccount:shop:billing"}), want: "oidc:corp:system:serviceaccount:shop:billing"},
		"another audience":  {by: issuer, token: signer.Token(t, "billing", map[string]any{"sub": "alice"}), fail: `for the audience "dbcontroller"`},
		"expired":           {by: issuer, token: signer.Token(t, "dbcontroller", map[string]any{"sub": "alice", "exp": time.Now().Add(-time.Minute).Unix()}), fail: "has expired"},
		"without expiry":    {by: issuer, token: signer.Token(t, "dbcontroller", map[string]any{"sub": "alice", "exp": 0}), fail: "has expired"},
		"without subject":   {by: issuer, token: signer.Token(t, "dbcontroller", nil), fail: "no claim sub"},
		"another issuer":    {by: issuer, token: stranger.Token(t, "dbcontroller", map[string]any{"sub": "alice"})},
		"forged":            {by: issuer, token: forged, fail: "must be signed by it"},
		"no JWT":            {by: issuer, token: aliceToken},
		"e-mail":            {by: mails, token: signer.Token(t, "dbcontroller", map[string]any{"email": "a@example.org", "email_verified": true}), want: "oidc:mail:a@example.org"},
		"unverified e-mail": {by: mails, token: signer.Token(t, "dbcontroller", map[string]any{"email": "a@example.org"}), fail: "verified"},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := tc.by.Authenticate(t.Context(), with("Bearer "+tc.token))
			var unproven *access.UnprovenError
			switch {
			case id.Name != tc.want:
				t.Errorf("it proves %q (%v), want %q", id.Name, err, tc.want)
			case tc.fail != "" && (!errors.As(err, &unproven) || !strings.Contains(err.Error(), tc.fail)):
				t.Errorf("%v, want %q", err, tc.fail)
			case tc.want == "" && tc.fail == "" && !errors.Is(err, access.ErrNoProof):
				t.Errorf("%v, want ErrNoProof", err)
			}
		})
	}
	asked := signer.Asked
	for range 20 {
		if _, err := issuer.Authenticate(t.Context(), with("Bearer "+forged)); err == nil {
			t.Fatal("a forged token counts")
		}
	}
	if more := signer.Asked - asked; more > 1 {
		t.Errorf("20 forged tokens became %d requests to the issuer", more)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t)
	pair := authority.Certificate(t, accesstest.Leaf{Subject: pkix.Name{CommonName: "server"}})
	pair.Leaf.DNSNames = []string{"controller.example.org"}
	guard, err := access.NewGuard(access.GuardConfig{
		Unproven: access.Loopback, Table: access.Table{"/": {Least: access.Viewer}, "/x": {Least: access.Viewer}},
		Names: access.Names{Hosts: []string{"ctl"}, Origins: []string{"https://ops.example.org"}, Certificate: func() *x509.Certificate { return pair.Leaf }},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for name, tc := range map[string]struct {
		method, host string
		header       map[string]string
		want         int
	}{
		"address":                   {host: "127.0.0.1:7090", want: http.StatusTeapot},
		"IPv6":                      {host: "[::1]:7090", want: http.StatusTeapot},
		"localhost":                 {host: "LocalHost:7090", want: http.StatusTeapot},
		"configured":                {host: "ctl:7090", want: http.StatusTeapot},
		"of the certificate":        {host: "controller.example.org", want: http.StatusTeapot},
		"rebound":                   {host: "evil.example.com:7090", want: http.StatusForbidden},
		"rebound, by GET":           {method: http.MethodGet, host: "evil.example.com", want: http.StatusForbidden},
		"alike":                     {host: "localhost.evil.example.com", want: http.StatusForbidden},
		"empty":                     {host: "", want: http.StatusForbidden},
		"own page":                  {host: "ctl:7090", header: map[string]string{"Origin": "http://ctl:7090"}, want: http.StatusTeapot},
		"other port":                {host: "localhost:7090", header: map[string]string{"Origin": "http://localhost:8080"}, want: http.StatusForbidden},
		"foreign page":              {host: "127.0.0.1:7090", header: map[string]string{"Origin": "https://evil.example.com"}, want: http.StatusForbidden},
		"sandboxed page":            {host: "127.0.0.1:7090", header: map[string]string{"Origin": "null"}, want: http.StatusForbidden},
		"foreign page reads":        {method: http.MethodGet, host: "127.0.0.1:7090", header: map[string]string{"Origin": "https://evil.example.com"}, want: http.StatusForbidden},
		"foreign page embeds":       {method: http.MethodGet, host: "127.0.0.1:7090", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, want: http.StatusForbidden},
		"another port embeds":       {method: http.MethodGet, host: "localhost:7080", header: map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "script"}, want: http.StatusForbidden},
		"another port frames":       {method: http.MethodGet, host: "localhost:7080", header: map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "iframe"}, want: http.StatusForbidden},
		"link on another port":      {method: http.MethodGet, host: "localhost:7080", header: map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "document"}, want: http.StatusTeapot},
		"link":                      {method: http.MethodGet, host: "127.0.0.1:7090", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, want: http.StatusTeapot},
		"form on a foreign page":    {host: "127.0.0.1:7090", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, want: http.StatusForbidden},
		"page of the same site":     {host: "127.0.0.1:7090", header: map[string]string{"Sec-Fetch-Site": "same-site"}, want: http.StatusForbidden},
		"trusted page of elsewhere": {host: "127.0.0.1:7090", header: map[string]string{"Origin": "https://ops.example.org", "Sec-Fetch-Site": "cross-site"}, want: http.StatusTeapot},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			method := tc.method
			if method == "" {
				method = http.MethodPost
			}
			r := httptest.NewRequest(method, "/x", nil)
			r.Host = tc.host
			for k, v := range tc.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != tc.want {
				t.Errorf("%d %s, want %d", w.Code, w.Body, tc.want)
			}
		})
	}
}
