package client

import (
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
)

// FuzzToken: a file has a token that fits into a header, or an error that shows nothing of it.
func FuzzToken(f *testing.F) {
	f.Add([]byte("3q2-9yPc\n"))
	f.Add([]byte("s3cret s3cret"))
	f.Add([]byte("s3cret\x00\x7f\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		token, err := parseToken("token", text)
		if err != nil {
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %q", err)
			}
			return
		}
		if token == "" || !httpguts.ValidHeaderFieldValue(token) || strings.ContainsAny(token, " \t") {
			t.Errorf("the token %q cannot be sent", token)
		}
	})
}

// FuzzURLs: an address leads to a host and to nothing else, and a token never goes out without TLS.
func FuzzURLs(f *testing.F) {
	f.Add("127.0.0.1:7090, https://ctl.example.org:7090/")
	f.Add("http://user:s3cret@host/path?query#part")
	f.Add("host:7090:7091,")
	f.Add("http://localhost.evil.example.org")
	f.Fuzz(func(t *testing.T, server string) {
		all, err := Config{Server: server, TokenFile: "token"}.URLs()
		if err != nil {
			return
		}
		for _, u := range all {
			if u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Scheme != "https" && !loopback(u.Hostname()) {
				t.Errorf("%q leads to %q with a token", server, u)
			}
		}
	})
}
