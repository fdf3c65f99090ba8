package access

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/zap"

	"dbcontroller.dev/watchedfile"
)

// IssuerConfig describes who signs JSON web tokens: an OpenID Connect provider, or a
// Kubernetes cluster, whose service accounts are subjects system:serviceaccount:NS:NAME.
type IssuerConfig struct {
	Name     string // in names of identities: oidc:NAME:SUBJECT
	Issuer   string // as in the tokens, and where it is discovered
	Audience string // that tokens must be for
	Claim    string // that names the identity; empty: sub
	KeysURL  string // of the key set; empty: as discovered
	CA       string // file of certificates that vouch for the issuer's server; empty: the system's
	// TokenFile has what the keys are asked for with; empty: nothing. A cluster asks for its
	// service account's token unless it shows its keys to everybody.
	TokenFile string
}

// Issuer proves identities by JSON web tokens of one issuer. Its keys are fetched when
// they are first needed, so that a controller starts without it.
type Issuer struct {
	cfg    IssuerConfig
	log    *zap.Logger
	client *http.Client

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil: not discovered yet
	tried    time.Time
	failure  error
}

var _ Authenticator = (*Issuer)(nil)

const (
	// fetchEvery bounds how often an issuer is asked: tokens that somebody makes up must not
	// become requests to it.
	fetchEvery   = 5 * time.Second
	fetchTimeout = 10 * time.Second
	longestKeys  = 1 << 20
	longestToken = 16 << 10
)

// algorithms are those with public keys alone: a shared secret would let the one who
// checks sign.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

// OpenIssuer prepares an issuer. It reads CA, and asks nobody.
func OpenIssuer(cfg IssuerConfig, log *zap.Logger) (*Issuer, error) {
	if cfg.Claim == "" {
		cfg.Claim = "sub"
	}
	i := &Issuer{cfg: cfg, log: log}
	var authorities *Authorities
	if cfg.CA != "" {
		var err error
		if authorities, err = OpenAuthorities("CA of issuer "+cfg.Name, cfg.CA, log); err != nil {
			return nil, err
		}
	}
	i.client = &http.Client{
		Timeout:   fetchTimeout,
		Transport: &modest{next: NewTransport(authorities, nil), tokenFile: cfg.TokenFile, last: map[string]time.Time{}},
		// A token for the issuer must not go elsewhere, and keys come from where it was said.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return i, nil
}

func (i *Issuer) Wants() string { return "a token of " + i.cfg.Issuer }

func (i *Issuer) Authenticate(ctx context.Context, r *http.Request) (Identity, error) {
	raw, ok := bearer(r)
	if !ok || len(raw) > longestToken || issuerOf(raw) != i.cfg.Issuer {
		return Identity{}, ErrNoProof
	}
	verifier, err := i.discovered(ctx)
	if err != nil {
		i.log.Warn("tokens cannot be checked", zap.String("issuer", i.cfg.Name), zap.Error(err))
		return Identity{}, unproven("the keys of %s cannot be had now: try again", i.cfg.Issuer)
	}
	token, err := verifier.Verify(ctx, raw)
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return Identity{}, unproven("the token has expired")
	case err != nil:
		// The library's text names audiences and algorithms, for the log alone.
		i.log.Info("a token was refused", zap.String("issuer", i.cfg.Name), zap.Error(err))
		return Identity{}, unproven("the token of %s does not count here: it must be signed by it and be for the audience %q", i.cfg.Issuer, i.cfg.Audience)
	}
	name, err := i.nameIn(token)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Name: "oidc:" + i.cfg.Name + ":" + name, Proof: "oidc"}, nil
}

// nameIn is the claim that names the identity.
func (i *Issuer) nameIn(token *oidc.IDToken) (string, error) {
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return "", unproven("the claims of the token cannot be read")
	}
	name, _ := claims[i.cfg.Claim].(string)
	if name == "" || len(name) > 500 || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return "", unproven("the token has no claim %s that names somebody", i.cfg.Claim)
	}
	if verified, said := claims["email_verified"].(bool); i.cfg.Claim == "email" && (!said || !verified) {
		return "", unproven("the token does not say that its e-mail address was verified")
	}
	return name, nil
}

// discovered is the verifier, once the issuer has answered.
func (i *Issuer) discovered(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil {
		return i.verifier, nil
	}
	if i.failure != nil && time.Since(i.tried) < fetchEvery {
		return nil, i.failure
	}
	i.tried = time.Now()
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), i.client)
	cfg := &oidc.Config{ClientID: i.cfg.Audience, SupportedSigningAlgs: algorithms}
	if i.cfg.KeysURL != "" {
		i.verifier = oidc.NewVerifier(i.cfg.Issuer, oidc.NewRemoteKeySet(ctx, i.cfg.KeysURL), cfg)
		return i.verifier, nil
	}
	provider, err := oidc.NewProvider(ctx, i.cfg.Issuer)
	if err != nil {
		i.failure = fmt.Errorf("discover %s: %w", i.cfg.Issuer, err)
		return nil, i.failure
	}
	i.verifier, i.failure = provider.VerifierContext(ctx, cfg), nil
	return i.verifier, nil
}

// issuerOf is what a token says of its issuer, to choose who checks it; empty if it is no
// JSON web token.
func issuerOf(raw string) string {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// modest asks for each address once in fetchEvery at most, and reads no endless answers.
type modest struct {
	next      http.RoundTripper
	tokenFile string

	mu   sync.Mutex
	last map[string]time.Time
}

func (m *modest) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	soon := time.Since(m.last[r.URL.String()]) < fetchEvery
	if !soon {
		m.last[r.URL.String()] = time.Now()
	}
	m.mu.Unlock()
	if soon {
		return nil, errors.New("it was asked a moment ago")
	}
	if m.tokenFile != "" {
		token, err := watchedfile.Read("token for the issuer", watchedfile.Secret(m.tokenFile))
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token[0])))
	}
	res, err := m.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, longestKeys), res.Body}
	}
	return res, err
}
