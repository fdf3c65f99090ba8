package access

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// FuzzTokens: what a file of tokens holds never gets into an error. A token that is accepted is as
// long as one has to be, and no name has that of another.
func FuzzTokens(f *testing.F) {
	const given = "s3cret-s3cret-s3cret-s3cret"
	sum := sha256.Sum256([]byte(given))
	f.Add([]byte("alice " + given + "\n# bob\nbob sha256:" + hex.EncodeToString(sum[:]) + "\n"))
	f.Add([]byte("alice\x00 s3cret\r\n\xff\n"))
	f.Add([]byte(given + " s3cret"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, broken := parseTokens("/etc/tokens", text)
		for _, err := range broken {
			if strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %q", err)
			}
		}
		owner := map[[sha256.Size]byte]string{}
		for _, tok := range all {
			if had, ok := owner[tok.hash]; ok && had != tok.name || !tokenName.MatchString(tok.name) {
				t.Errorf("%q has the token of %q", tok.name, had)
			}
			owner[tok.hash] = tok.name
		}
		if n := len(strings.Split(string(text), "\n")); len(all)+len(broken) > n {
			t.Errorf("%d tokens and %d errors of %d lines", len(all), len(broken), n)
		}
	})
}

// FuzzBearer: a token that anybody makes up is refused before an issuer is asked, or is one that the
// issuer could have signed.
func FuzzBearer(f *testing.F) {
	part := base64.RawURLEncoding.EncodeToString
	f.Add("Bearer " + part([]byte(`{"alg":"RS256"}`)) + "." + part([]byte(`{"iss":"https://idp","aud":["dbc"],"exp":1e12}`)) + ".c2ln")
	f.Add("Bearer " + part([]byte(`{"alg":"none"}`)) + "." + part([]byte(`{"iss":"https://idp","aud":"dbc","exp":-1}`)) + ".")
	f.Add("bearer a.b.c.d")
	f.Add("Bearer  ")
	i := &Issuer{cfg: IssuerConfig{Name: "idp", Issuer: "https://idp", Audience: "dbc", Claim: "sub"}, log: zap.NewNop()}
	f.Fuzz(func(t *testing.T, header string) {
		r := &http.Request{Header: http.Header{"Authorization": {header}}}
		raw, ok := bearer(r)
		if !ok {
			return
		}
		if !strings.Contains(header, raw) || strings.TrimSpace(raw) != raw {
			t.Errorf("%q has the token %q", header, raw)
		}
		if len(raw) > longestToken || issuerOf(raw) != i.cfg.Issuer || i.impossible(raw) != nil {
			return
		}
		var claims struct {
			Audience audience `json:"aud"`
		}
		if parts := strings.Split(raw, "."); len(parts) != 3 || !decoded(parts[1], &claims) || len(claims.Audience) == 0 {
			t.Errorf("the issuer is asked for %q", raw)
		}
	})
}

// FuzzNames: a request of a page counts only where its host and its origin are ours.
func FuzzNames(f *testing.F) {
	f.Add("ctl.example.org:7090", "https://ctl.example.org:7090", "same-origin", "empty")
	f.Add("127.0.0.1:7090", "", "cross-site", "document")
	f.Add("[::1%25eth0]:7090", "null", "", "")
	f.Add("localhost.", "http://localhost.", "", "")
	f.Add("evil.example.org", "https://evil.example.org", "same-origin", "")
	names := Names{Hosts: []string{"ctl.example.org"}, Origins: []string{"https://ops.example.org"}}
	f.Fuzz(func(t *testing.T, host, origin, site, dest string) {
		h := http.Header{}
		for name, v := range map[string]string{"Origin": origin, "Sec-Fetch-Site": site, "Sec-Fetch-Dest": dest} {
			if v != "" {
				h.Set(name, v)
			}
		}
		err := names.check(&http.Request{Host: host, Header: h})
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		name := strings.TrimSuffix(strings.ToLower(hostOf(host)), ".")
		if _, err := netip.ParseAddr(hostOf(host)); err != nil && name != "localhost" && name != "ctl.example.org" {
			t.Errorf("%q is taken for ours", host)
		}
		if origin != "" && origin != "https://ops.example.org" && !strings.HasSuffix(strings.ToLower(origin), "://"+strings.ToLower(host)) {
			// A path or a query behind the host makes no other page of it.
			rest, ok := strings.CutPrefix(strings.ToLower(origin), "https://")
			if !ok {
				rest, ok = strings.CutPrefix(strings.ToLower(origin), "http://")
			}
			if at := strings.LastIndexByte(rest, '@'); at >= 0 {
				rest = rest[at+1:]
			}
			if !ok || !strings.HasPrefix(rest, strings.ToLower(host)) {
				t.Errorf("a page of %q counts for %q", origin, host)
			}
		}
		if origin == "" && (site == "cross-site" || site == "same-site") && dest != "document" {
			t.Errorf("what another page embeds counts: %q, %q", site, dest)
		}
	})
}
