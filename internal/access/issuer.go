package access

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/watchedfile"
)

// IssuerConfig describes a signer of JSON web tokens: an OpenID Connect provider, or a Kubernetes
// cluster. The service accounts of a cluster are subjects system:serviceaccount:NS:NAME.
type IssuerConfig struct {
	Name     string // part of the identity's name: oidc:NAME:SUBJECT
	Issuer   string // issuer in the tokens, and address for discovery
	Audience string // required audience of the tokens
	Claim    string // claim with the identity's name; empty: sub
	KeysURL  string // of the key set; empty: from discovery
	CA       string // file with authorities for the issuer's server; empty: the system's
	// TokenFile holds the token for fetching the keys; empty: none. A Kubernetes cluster needs its
	// service account's token, unless it publishes its keys.
	TokenFile string
}

// Issuer proves identities by JSON web tokens of one issuer. It fetches the keys at the first use,
// so a controller can start while the issuer is down. It is safe for concurrent use.
type Issuer struct {
	cfg    IssuerConfig
	log    *zap.Logger
	client *http.Client

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil: not discovered yet
	asking   chan struct{}         // closed when the running discovery ends; nil: none runs
	waiting  int                   // callers that wait for discovery or keys
	ended    time.Time             // end of the latest failed discovery
	failure  error
}

var _ Authenticator = (*Issuer)(nil)

const (
	// fetchEvery bounds the requests to an issuer. Otherwise made-up tokens would cause unlimited
	// requests.
	fetchEvery   = 5 * time.Second
	fetchTimeout = 10 * time.Second
	// waitTime bounds the wait of a request for an issuer, and mostWaiting the number of waiting
	// requests. Each one occupies a slot of the listener, and its token may be made up.
	waitTime     = 5 * time.Second
	mostWaiting  = 64
	longestKeys  = 1 << 20
	longestToken = 16 << 10
)

// algorithms lists only algorithms with public keys. With a shared secret the verifier could sign
// as well.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

// OpenIssuer prepares an issuer. It reads CA and contacts no server.
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
		Transport: &modest{next: NewTransport(authorities, nil), tokenFile: cfg.TokenFile, log: log, hosts: hostsOf(cfg.Issuer, cfg.KeysURL), last: map[string]time.Time{}},
		// The token for the issuer must not go elsewhere, and keys must come from the configured
		// address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return i, nil
}

func (i *Issuer) Wants() string { return "a token of " + i.cfg.Issuer }

func (i *Issuer) Authenticate(ctx context.Context, r *http.Request) (Identity, error) {
	raw, ok := bearer(r)
	// A token of another issuer is for another Authenticator.
	if !ok || len(raw) > longestToken || issuerOf(raw) != i.cfg.Issuer {
		return Identity{}, ErrNoProof
	}
	if err := i.impossible(raw); err != nil {
		return Identity{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	// Wait no longer than waitTime, whatever the caller's deadline is.
	defer cancel()
	verifier, err := i.discovered(ctx)
	if err != nil {
		i.log.Warn("tokens cannot be checked", zap.String("issuer", i.cfg.Name), zap.Error(err))
		return Identity{}, unproven("the keys of %s cannot be had now: try again", i.cfg.Issuer)
	}
	crowded := false
	token, err := verifier.Verify(context.WithValue(ctx, crowdedKey{}, &crowded), raw)
	var tooLate *oidc.TokenExpiredError
	switch {
	case err != nil && crowded:
		i.log.Warn("tokens cannot be checked", zap.String("issuer", i.cfg.Name), zap.Error(errManyWait))
		return Identity{}, unproven("the keys of %s cannot be had now: try again", i.cfg.Issuer)
	case errors.As(err, &tooLate):
		return Identity{}, expired("the token")
	case err != nil:
		// The library's text names audiences and algorithms. Only the log gets it.
		i.log.Info("a token was refused", zap.String("issuer", i.cfg.Name), zap.Error(err))
		return Identity{}, unproven("the token of %s does not count here: it must be signed by it and be for the audience %q", i.cfg.Issuer, i.cfg.Audience)
	}
	name, err := i.nameIn(token)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Name: "oidc:" + i.cfg.Name + ":" + name, Proof: "oidc"}, nil
}

// nameIn returns the claim with the identity's name.
func (i *Issuer) nameIn(token *oidc.IDToken) (string, error) {
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return "", unproven("the claims of the token cannot be read")
	}
	name, _ := claims[i.cfg.Claim].(string)
	// Control characters would falsify log lines.
	if name == "" || len(name) > 500 || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return "", unproven("the token has no claim %s that names somebody", i.cfg.Claim)
	}
	// Anyone can register an unverified address at many issuers.
	if verified, said := claims["email_verified"].(bool); i.cfg.Claim == "email" && (!said || !verified) {
		return "", unproven("the token does not say that its e-mail address was verified")
	}
	return name, nil
}

// impossible refuses a token that no key can make valid, so that its caller does not wait for keys.
func (i *Issuer) impossible(raw string) error {
	var head struct {
		Algorithm string `json:"alg"`
	}
	var claims struct {
		Audience audience `json:"aud"`
		Expiry   float64  `json:"exp"`
	}
	parts := strings.Split(raw, ".")
	switch {
	case !decoded(parts[0], &head) || !decoded(parts[1], &claims):
		return ErrNoProof
	// Nothing here is verified yet; Verify checks the same claims again with the signature.
	case !slices.Contains(algorithms, head.Algorithm), !slices.Contains(claims.Audience, i.cfg.Audience):
		return unproven("the token of %s does not count here: it must be signed by it and be for the audience %q", i.cfg.Issuer, i.cfg.Audience)
	case float64(time.Now().Unix()) > claims.Expiry:
		return expired("the token")
	}
	return nil
}

// audience decodes a claim with one text or several.
type audience []string

func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

var errManyWait = errors.New("too many wait for its answer")

// discovered returns the verifier once the issuer has answered. One discovery serves all waiting
// callers. Each of them waits only until its own ctx ends.
func (i *Issuer) discovered(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	// After a failure answer at once for a while; the issuer needs the rest.
	if i.verifier != nil || i.failure != nil && time.Since(i.ended) < fetchEvery {
		defer i.mu.Unlock()
		if i.verifier != nil {
			return i.verifier, nil
		}
		return nil, i.failure
	}
	if i.waiting >= mostWaiting {
		i.mu.Unlock()
		return nil, errManyWait
	}
	if i.asking == nil {
		i.asking = make(chan struct{})
		// Without the caller's cancellation: others wait for the same discovery.
		go i.discover(context.WithoutCancel(ctx), i.asking)
	}
	asking := i.asking
	i.waiting++
	i.mu.Unlock()
	var err error
	select {
	case <-asking:
	case <-ctx.Done():
		err = ctx.Err()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waiting--
	// A verifier that arrived just now is better than the caller's own timeout.
	switch {
	case i.verifier != nil:
		return i.verifier, nil
	case err != nil:
		return nil, err
	}
	return nil, i.failure
}

// wait counts one more or one less call that waits for the issuer. It returns false if too many
// wait.
func (i *Issuer) wait(more int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if more > 0 && i.waiting >= mostWaiting {
		return false
	}
	i.waiting += more
	return true
}

// discover contacts the issuer once. The client bounds it by fetchTimeout.
func (i *Issuer) discover(ctx context.Context, done chan struct{}) {
	ctx = oidc.ClientContext(ctx, i.client)
	cfg := &oidc.Config{ClientID: i.cfg.Audience, SupportedSigningAlgs: algorithms}
	keysURL, failure := i.cfg.KeysURL, error(nil)
	if keysURL == "" {
		keysURL, failure = keysOf(ctx, i.cfg.Issuer)
	}
	var verifier *oidc.IDTokenVerifier
	if failure == nil {
		verifier = oidc.NewVerifier(i.cfg.Issuer, newKeySet(i, func() oidc.KeySet { return oidc.NewRemoteKeySet(ctx, keysURL) }), cfg)
	}
	// Publish the result and wake the waiting callers together.
	i.mu.Lock()
	defer i.mu.Unlock()
	i.verifier, i.failure, i.ended, i.asking = verifier, failure, time.Now(), nil
	close(done)
}

// keysOf discovers the address of an issuer's keys.
func keysOf(ctx context.Context, issuer string) (string, error) {
	provider, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return "", fmt.Errorf("discover %s: %w", issuer, err)
	}
	var names struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&names); err != nil {
		return "", fmt.Errorf("discover %s: %w", issuer, err)
	}
	return names.Keys, nil
}

// issuerOf returns the unverified issuer of a token, to choose the Authenticator; empty if it is
// not a JSON web token.
func issuerOf(raw string) string {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if !decoded(parts[1], &claims) {
		return ""
	}
	return claims.Issuer
}

// decoded decodes a part of a JSON web token and reports success.
func decoded(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(text, into) == nil
}

// hostsOf returns the schemes and hosts of addresses, with their ports.
func hostsOf(addresses ...string) (hosts []string) {
	for _, a := range addresses {
		if u, err := url.Parse(a); err == nil && u.Host != "" {
			hosts = append(hosts, u.Scheme+"://"+u.Host)
		}
	}
	return hosts
}

// modest requests each address at most once in fetchEvery, and bounds the size of answers.
type modest struct {
	next      http.RoundTripper
	tokenFile string
	hosts     []string // receive the token: the issuer's host, and the configured one of the keys
	log       *zap.Logger

	mu     sync.Mutex
	last   map[string]time.Time
	warned bool // the exposed token was logged
}

func (m *modest) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	// The time is set before the request, so that parallel callers do not all send one.
	soon := time.Since(m.last[r.URL.String()]) < fetchEvery
	if !soon {
		m.last[r.URL.String()] = time.Now()
	}
	m.mu.Unlock()
	if soon {
		return nil, errors.New("it was asked a moment ago")
	}
	defer func() { // the request may have taken long
		m.mu.Lock()
		defer m.mu.Unlock()
		m.last[r.URL.String()] = time.Now()
	}()
	// A discovered key address on another host must not receive the token.
	if m.tokenFile != "" && slices.Contains(m.hosts, r.URL.Scheme+"://"+r.URL.Host) {
		token, err := watchedfile.Read("token for the issuer", watchedfile.Secret(m.tokenFile))
		if err != nil {
			return nil, err
		}
		m.exposed()
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

// exposed warns once about a token that every user can read.
func (m *modest) exposed() {
	open := watchedfile.Secret(m.tokenFile).Exposed()
	m.mu.Lock()
	defer m.mu.Unlock()
	if open && !m.warned {
		m.log.Warn(watchedfile.ExposedText, zap.String("what", "token for the issuer"), zap.String("file", m.tokenFile))
	}
	m.warned = open
}
