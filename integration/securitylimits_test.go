package integration_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/base/limits"
)

// bomb is n bytes in few: the JSON string that a message could have, of blanks.
func bomb(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.CopyN(z, blanks{}, int64(n)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestSecurityLimits: what is large, or becomes so, is refused by the API and by a server,
// asked from outside.
func TestSecurityLimits(t *testing.T) {
	t.Parallel()
	s := &secured{authority: accesstest.NewAuthority(t)}
	s.start(t, t.TempDir(), "deployment: services/sec/deployments/x\noperator: {listen: \"127.0.0.1:0\"}\napi: {listen: \"127.0.0.1:0\"}\n"+unreachable)
	client := s.client(t, nil)
	post := func(listener, path, encoding string, body []byte) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.at[listener]+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if encoding != "" {
			req.Header.Set("Content-Encoding", encoding)
		}
		res, err := client.Do(req)
		if err != nil {
			return 0, err.Error() // the server has ended the connection while it was sent
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	const get = "/dbcontroller.v1.DeploymentService/GetDeployment"
	const create = "/dbcontroller.v1.DeploymentService/CreateDeployment"
	blank := func(n int) []byte { return bytes.Repeat([]byte(" "), n) }
	small := bomb(t, 64<<20)
	for _, tc := range []struct {
		name, listener, path, encoding string
		body                           []byte
		code                           int
		want                           string
	}{
		{"as large as may be", "api", get, "", blank(limits.RequestBytes), 404, "does not exist"},
		{"larger", "api", get, "", blank(limits.RequestBytes + 1), 429, "resource_exhausted"},
		{"a bomb", "api", get, "gzip", small, 501, "unimplemented"},
		{"a ring for terabytes", "api", create, "", []byte(`{"version": "v1", "ringSize": 2147483647}`), 400, "want a number from 1 to 1024"},
		{"a long name", "api", create, "", fmt.Appendf(nil, `{"version": "v1", "name": "services/%s/deployments/x"}`, strings.Repeat("a", 5000)), 400, "at most 200 bytes"},
		{"a long version", "api", create, "", fmt.Appendf(nil, `{"version": %q}`, strings.Repeat("a", 5000)), 400, "at most 100 bytes"},
		{"a body for a page", "operator", "/metrics", "", blank(limits.RequestBytes + 1), 405, ""},
	} {
		code, text := post(tc.listener, tc.path, tc.encoding, tc.body)
		if code != tc.code || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %d %.200s, want %d %s", tc.name, code, text, tc.code, tc.want)
		}
	}
	if len(small) > 100<<10 {
		t.Errorf("the bomb has %d bytes", len(small))
	}
}
