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
	asking   chan struct{}         // closed at the end of the try that goes on; nil: none does
	waiting  int                   // for that, or for keys
	ended    time.Time             // of the latest try, which failed
	failure  error
}

var _ Authenticator = (*Issuer)(nil)

const (
	// fetchEvery bounds how often an issuer is asked: tokens that somebody makes up must not
	// become requests to it.
	fetchEvery   = 5 * time.Second
	fetchTimeout = 10 * time.Second
	// waitTime is how long a request waits for an issuer, and mostWaiting how many do: each takes a
	// place of the listener, and its token may be made up.
	waitTime     = 5 * time.Second
	mostWaiting  = 64
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
		Transport: &modest{next: NewTransport(authorities, nil), tokenFile: cfg.TokenFile, log: log, hosts: hostsOf(cfg.Issuer, cfg.KeysURL), last: map[string]time.Time{}},
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
	if err := i.impossible(raw); err != nil {
		return Identity{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	verifier, err := i.discovered(ctx)
	if err != nil {
		i.log.Warn("tokens cannot be checked", zap.String("issuer", i.cfg.Name), zap.Error(err))
		return Identity{}, unproven("the keys of %s cannot be had now: try again", i.cfg.Issuer)
	}
	crowded := false
	token, err := verifier.Verify(context.WithValue(ctx, crowdedKey{}, &crowded), raw)
	var expired *oidc.TokenExpiredError
	switch {
	case err != nil && crowded:
		i.log.Warn("tokens cannot be checked", zap.String("issuer", i.cfg.Name), zap.Error(errManyWait))
		return Identity{}, unproven("the keys of %s cannot be had now: try again", i.cfg.Issuer)
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

// impossible refuses a token that cannot count whatever the issuer's keys are, so that nobody waits
// for them.
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
	case !slices.Contains(algorithms, head.Algorithm), !slices.Contains(claims.Audience, i.cfg.Audience):
		return unproven("the token of %s does not count here: it must be signed by it and be for the audience %q", i.cfg.Issuer, i.cfg.Audience)
	case float64(time.Now().Unix()) > claims.Expiry:
		return unproven("the token has expired")
	}
	return nil
}

// audience is one text, or several.
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

// discovered is the verifier, once the issuer has answered. One try serves all who wait, and each of
// them waits no longer than its own call.
func (i *Issuer) discovered(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
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
	switch {
	case i.verifier != nil:
		return i.verifier, nil
	case err != nil:
		return nil, err
	}
	return nil, i.failure
}

// boundedKeys bounds how many calls wait for keys that are fetched. A token whose key is known waits
// for none, and is not refused for those that do.
type boundedKeys struct {
	oidc.KeySet
	issuer *Issuer
}

// crowdedKey finds the *bool that becomes true where too many calls wait. The library drops the error.
type crowdedKey struct{}

// VerifySignature tries the known keys first. That also begins a fetch, which goes on by itself.
func (k boundedKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	now, cancel := context.WithCancel(ctx)
	cancel()
	payload, err := k.KeySet.VerifySignature(now, jwt)
	if !errors.Is(err, context.Canceled) {
		return payload, err
	}
	if !k.issuer.wait(1) {
		if crowded, ok := ctx.Value(crowdedKey{}).(*bool); ok {
			*crowded = true
		}
		return nil, errManyWait
	}
	defer k.issuer.wait(-1)
	return k.KeySet.VerifySignature(ctx, jwt)
}

// wait counts one more, or one less, that waits for the issuer. It reports false for one too many.
func (i *Issuer) wait(more int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if more > 0 && i.waiting >= mostWaiting {
		return false
	}
	i.waiting += more
	return true
}

// discover asks the issuer once, within fetchTimeout, which the client has.
func (i *Issuer) discover(ctx context.Context, done chan struct{}) {
	ctx = oidc.ClientContext(ctx, i.client)
	cfg := &oidc.Config{ClientID: i.cfg.Audience, SupportedSigningAlgs: algorithms}
	keysURL, failure := i.cfg.KeysURL, error(nil)
	if keysURL == "" {
		keysURL, failure = keysOf(ctx, i.cfg.Issuer)
	}
	var verifier *oidc.IDTokenVerifier
	if failure == nil {
		verifier = oidc.NewVerifier(i.cfg.Issuer, boundedKeys{oidc.NewRemoteKeySet(ctx, keysURL), i}, cfg)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.verifier, i.failure, i.ended, i.asking = verifier, failure, time.Now(), nil
	close(done)
}

// keysOf discovers where the keys of an issuer are.
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

// issuerOf is what a token says of its issuer, to choose who checks it; empty if it is no
// JSON web token.
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

// decoded reads a part of a JSON web token.
func decoded(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(text, into) == nil
}

// hostsOf are the schemes and hosts of addresses, with their ports.
func hostsOf(addresses ...string) (hosts []string) {
	for _, a := range addresses {
		if u, err := url.Parse(a); err == nil && u.Host != "" {
			hosts = append(hosts, u.Scheme+"://"+u.Host)
		}
	}
	return hosts
}

// modest asks for each address once in fetchEvery at most, and reads no endless answers.
type modest struct {
	next      http.RoundTripper
	tokenFile string
	hosts     []string // that get the token: the issuer's, and that of the keys as configured
	log       *zap.Logger

	mu     sync.Mutex
	last   map[string]time.Time
	warned bool // that everybody can read the token
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
	defer func() { // it may have taken long
		m.mu.Lock()
		defer m.mu.Unlock()
		m.last[r.URL.String()] = time.Now()
	}()
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

// exposed warns once of a token that everybody can read.
func (m *modest) exposed() {
	open := watchedfile.Secret(m.tokenFile).Exposed()
	m.mu.Lock()
	defer m.mu.Unlock()
	if open && !m.warned {
		m.log.Warn(watchedfile.ExposedText, zap.String("what", "token for the issuer"), zap.String("file", m.tokenFile))
	}
	m.warned = open
}
