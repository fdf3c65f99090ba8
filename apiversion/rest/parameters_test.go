package rest_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// TestParameters: a parameter that would be dropped, or would replace a part of the path, is refused,
// and the request has no effect.
func TestParameters(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t))
	const at = "/v1/projects/p/secrets"
	c.do(200, "POST", at+"?secret_id=a", `{"owner": "payments/ada", "payload": "cGF5"}`)
	c.do(200, "POST", "/v1/projects/q/secrets?secret_id=b", `{"owner": "web/eve"}`)
	for _, tc := range []struct{ name, method, path, message string }{
		// Without the mask, or the revision, these would change all fields.
		{"a semicolon", "PATCH", at + "/a?update_mask=owner;x", "query"},
		{"no escape", "PATCH", at + "/a?update_mask=owner%", "query"},
		{"a revision that ends badly", "PATCH", at + "/a?expected_revision=1;2", "query"},
		{"two values", "PATCH", at + "/a?expected_revision=1&expected_revision=2", "expected_revision"},
		// The path names another resource.
		{"the name", "GET", at + "/a?name=projects/q/secrets/b", "name"},
		{"the name to be deleted", "DELETE", at + "/a?name=projects/q/secrets/b", "name"},
		{"the name within the body", "PATCH", at + "/a?secret.name=projects/q/secrets/b", "secret.name"},
		{"the parent", "GET", at + "?parent=projects/q", "parent"},
		{"the parent of a verb", "GET", at + ":batchGet?parent=projects/q", "parent"},
		{"the name beside a body", "POST", at + "/a:setPayload?name=projects/q/secrets/b", "name"},
		// These have ended the connection.
		{"an empty name", "GET", at + "?=x", "empty"},
		{"an empty name of a field", "PATCH", at + "/a?secret.=x", "empty"},
		{"a field of a text", "PATCH", at + "/a?secret.owner.=x", "owner"},
		{"a map", "PATCH", at + "/a?secret.labels=x", "secret.labels"},
	} {
		body := ""
		if tc.method == "PATCH" || tc.method == "POST" {
			body = `{"owner": "web/mallory", "payload": "bm8="}`
		}
		got := c.do(400, tc.method, tc.path, body)
		if text, _ := got["message"].(string); got["code"] != 3. || !strings.Contains(text, tc.message) {
			t.Errorf("%s: the answer is %v, without %q", tc.name, got, tc.message)
		}
	}
	c.want(c.do(200, "GET", at+"/a", ""), map[string]any{"owner": "payments/ada", "payload": "cGF5"})
	c.want(c.do(200, "GET", "/v1/projects/q/secrets/b", ""), map[string]any{"owner": "web/eve"})
	// Names in JSON, and lists, are parameters as before.
	c.want(c.do(200, "PATCH", at+"/a?updateMask=owner", `{"owner": "payments/bob", "payload": "bm8="}`), map[string]any{"owner": "payments/bob", "payload": "cGF5"})
	batch := c.do(200, "GET", at+":batchGet?names=projects/p/secrets/a", "")
	if list, _ := batch["secrets"].([]any); len(list) != 1 {
		t.Errorf("the batch is %v", batch)
	}
}

// TestClaimedLength: a request takes memory for the bytes that it sends, and not for those that it
// announces.
func TestClaimedLength(t *testing.T) {
	h := front(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) })
	req := httptest.NewRequest(http.MethodPost, "/v1/projects/p/secrets/a:setPayload", strings.NewReader(`{"payload": "bmV3"}`))
	req.ContentLength = 1 << 30
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	h.ServeHTTP(httptest.NewRecorder(), req)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
		t.Errorf("a request of a few bytes takes %d MiB", took>>20)
	}
}

// TestResponsesAreNotCompressed: the memory of a response counts by its size, so the handler must not
// compress it.
func TestResponsesAreNotCompressed(t *testing.T) {
	t.Parallel()
	h := front(t, func(w http.ResponseWriter, r *http.Request) {
		if accepts := r.Header.Values("Accept-Encoding"); len(accepts) > 0 {
			t.Errorf("the handler may compress by %q", accepts)
		}
		w.Header().Set("Content-Type", "application/proto")
	})
	req := httptest.NewRequest(http.MethodGet, "/v1/projects/p/secrets/a", http.NoBody)
	req.Header.Set("Accept-Encoding", "gzip")
	h.ServeHTTP(httptest.NewRecorder(), req)
}

// TestContentTypes: JSON is accepted however a library writes its type, and the refusal of another type
// is an error like all others.
func TestContentTypes(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t))
	c.do(200, "POST", "/v1/projects/p/secrets?secret_id=a", "{}")
	for kind, status := range map[string]int{
		"": 200, "application/json": 200, "application/json;charset=UTF-8": 200, "application/json; charset=utf-8": 200, "Application/JSON; charset=\"utf-8\"": 200,
		"application/json; charset=latin1": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415, "application/json;;": 415,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, c.url+"/v1/projects/p/secrets/a", strings.NewReader(`{"owner": "web/eve"}`))
		if err != nil {
			t.Fatal(err)
		}
		if kind != "" {
			req.Header.Set("Content-Type", kind)
		}
		if got := c.send(status, req); status == 415 && (got["code"] != 3. || !strings.Contains(got["message"].(string), "not supported")) {
			t.Errorf("%q: the answer is %v", kind, got)
		}
	}
	if got := c.do(405, "PUT", "/v1/projects/p/secrets/a", "{}"); got["code"] != 12. {
		t.Errorf("a method that is not there is answered with %v", got)
	}
}
