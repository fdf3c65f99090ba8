package rest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev"
	"dbcontroller.dev/apiversion/rest"
	"dbcontroller.dev/dbcontrollertest"
	"dbcontroller.dev/examples/secrets"
	tasksv1 "dbcontroller.dev/examples/starter/service/gen/tasks/v1"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/internal/program/server/samples"
)

// start starts a server of the samples, with REST. v1 is active.
func start(t *testing.T) *dbcontrollertest.Server {
	t.Helper()
	service := samples.Service()
	service.REST = rest.Front
	return dbcontrollertest.Start(t, service)
}

// client sends REST requests.
type client struct {
	t    *testing.T
	http *http.Client
	url  string
}

func clientOf(t *testing.T, s *dbcontrollertest.Server) client {
	t.Helper()
	return client{t, s.Client(), s.URL}
}

// do sends a request, and returns the fields of the response. It fails without the status.
func (c client) do(status int, method, path, body string) map[string]any {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.send(status, req)
}

func (c client) send(status int, req *http.Request) map[string]any {
	c.t.Helper()
	res, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if res.StatusCode != status {
		c.t.Fatalf("%s %s answers %s, not %d: %s", req.Method, req.URL, res.Status, status, text)
	}
	fields := map[string]any{}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(text, &fields); err != nil {
			c.t.Fatalf("%s: %v", text, err)
		}
	}
	return fields
}

// want compares some fields of a response.
func (c client) want(got map[string]any, want map[string]any) {
	c.t.Helper()
	for name, value := range want {
		if got[name] != value {
			c.t.Errorf("%s is %v, want %v, in %v", name, got[name], value, got)
		}
	}
}

// TestOverTheSwitch: the paths of v1 go on over the upgrade and the rollback, and those of v2 show
// and change the same secrets. An upgrade holds no REST write back for longer than other writes.
func TestOverTheSwitch(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := clientOf(t, s)
	const v1, v2 = "/v1/projects/p/secrets", "/v2/projects/p/regions/us-west2/secrets"

	made := c.do(200, "POST", v1+"?secret_id=a", `{"owner": "payments/ada", "payload": "cGF5", "expiresAt": "1800000000"}`)
	c.want(made, map[string]any{"name": "projects/p/secrets/a", "owner": "payments/ada", "expiresAt": "1800000000"})
	refused := c.do(400, "PATCH", v2+"/a", `{"rotationDays": 30}`)
	if text, _ := refused["message"].(string); !strings.Contains(text, "v1 is the active version") {
		t.Errorf("v2 refuses a write with %v", refused)
	}

	s.Switch(secrets.V2)
	c.want(c.do(200, "GET", v1+"/a", ""), map[string]any{"owner": "payments/ada", "expiresAt": "1800000000", "revision": made["revision"]})
	c.want(c.do(200, "GET", v2+"/a", ""), map[string]any{"name": "projects/p/regions/us-west2/secrets/a", "ownerTeam": "payments", "ownerPerson": "ada", "expireTime": "2027-01-15T08:00:00Z"})
	c.want(c.do(200, "PATCH", v1+"/a?update_mask=owner", `{"owner": "payments/bob", "payload": "bm8="}`), map[string]any{"owner": "payments/bob", "payload": "cGF5"})
	c.want(c.do(200, "PATCH", v2+"/a", `{"rotationDays": 30}`), map[string]any{"rotationDays": 30., "ownerPerson": "bob"})
	c.want(c.do(200, "POST", v1+"/a:setPayload", `{"payload": "bmV3"}`), map[string]any{"payload": "bmV3"})
	c.want(c.do(200, "GET", v2+"/a", ""), map[string]any{"payload": "bmV3", "rotationDays": 30.})
	c.do(200, "POST", v2+"?secret_id=b", `{"ownerTeam": "web", "ownerPerson": "eve"}`)

	s.Switch(secrets.V1) // the rollback
	page := c.do(200, "GET", v1+`?page_size=1&filter=owner+!=+"payments/ada"`, "")
	if list, _ := page["secrets"].([]any); len(list) != 1 {
		t.Fatalf("the first page is %v", page)
	}
	rest := c.do(200, "GET", v1+`?page_size=1&filter=owner+!=+"payments/ada"&page_token=`+page["nextPageToken"].(string), "")
	if list, _ := rest["secrets"].([]any); len(list) != 1 || list[0].(map[string]any)["owner"] != "web/eve" {
		t.Errorf("the second page is %v", rest)
	}
	if owners, _ := c.do(200, "GET", "/v1/projects/p/owners", "")["owners"].([]any); len(owners) != 2 {
		t.Errorf("owners are %v", owners)
	}
	c.do(200, "DELETE", v1+"/a", "")
	c.want(c.do(404, "GET", v1+"/a", ""), map[string]any{"code": 5.})
}

// TestErrors: an error has the status of its code, and a refused request no effect.
func TestErrors(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t))
	const at = "/v1/projects/p/secrets"
	c.do(200, "POST", at+"?secret_id=a", `{"owner": "payments/ada"}`)
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		message                  string
	}{
		{"absent", "GET", at + "/b", "", 404, "projects/p/secrets/b"},
		{"exists", "POST", at + "?secret_id=a", "{}", 409, ""},
		{"another revision", "PATCH", at + "/a?expected_revision=1", `{"owner": "web/eve"}`, 409, ""},
		{"an invalid field", "PATCH", at + "/a", `{"owner": "nobody"}`, 400, "owner"},
		{"an invalid filter", "GET", at + "?filter=colour==1", "", 400, "filter"},
		{"an unknown parameter", "GET", at + "?colour=red", "", 400, "colour"},
		{"no JSON", "PATCH", at + "/a", `{"owner":`, 400, ""},
		{"no JSON of a method's own", "POST", at + "/a:setPayload", `{"payload": 1}`, 400, ""},
		{"a body too many", "DELETE", at + "/a", `{"name": "x"}`, 400, "body"},
		{"no such method", "PUT", at + "/a", "{}", 405, ""},
		{"no such path", "GET", "/v1/projects/p/secret", "", 404, ""},
		{"no such version", "GET", "/v7/projects/p/secrets", "", 404, ""},
	} {
		got := c.do(tc.status, tc.method, tc.path, tc.body)
		if text, _ := got["message"].(string); !strings.Contains(text, tc.message) {
			t.Errorf("%s: the message is %q without %q", tc.name, text, tc.message)
		}
	}
	c.want(c.do(200, "GET", at+"/a", ""), map[string]any{"owner": "payments/ada", "payload": ""})
}

// TestDetails: a program reads the reason of a refusal as from every other protocol.
func TestDetails(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t))
	got := c.do(400, "PATCH", "/v2/projects/p/regions/r/secrets/a", `{"rotationDays": 30}`)
	details, _ := got["details"].([]any)
	if len(details) != 1 || details[0].(map[string]any)["reason"] != "VERSION_NOT_ACTIVE" {
		t.Errorf("the details are %v", got)
	}
}

// TestNames: each part of a path is decoded once.
func TestNames(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t))
	for escaped, id := range map[string]string{"50%25": "50%", "a%2541": "a%41", "a%20b": "a b", "a%3Ab": "a:b", "%C3%A9": "é"} {
		c.do(200, "POST", "/v1/projects/p/secrets?secret_id="+strings.ReplaceAll(escaped, "+", "%2B"), "{}")
		c.want(c.do(200, "GET", "/v1/projects/p/secrets/"+escaped, ""), map[string]any{"name": "projects/p/secrets/" + id})
	}
	// An encoded slash makes no other name.
	c.do(400, "GET", "/v1/projects/p/secrets/a%2Fsecrets%2Fb", "")
}

// TestCompressed: a small body that becomes large is not decompressed.
func TestCompressed(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t))
	c.do(200, "POST", "/v1/projects/p/secrets?secret_id=a", "{}")
	for _, method := range []string{"PATCH", "GET"} {
		var body bytes.Buffer
		z := gzip.NewWriter(&body)
		_, _ = z.Write([]byte(`{"owner": "web/eve"}`))
		_ = z.Close()
		req, err := http.NewRequestWithContext(t.Context(), method, c.url+"/v1/projects/p/secrets/a", &body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Encoding", "gzip")
		req.Header.Set("Content-Type", "application/json")
		size := strconv.Itoa(body.Len())
		got := c.send(map[string]int{"PATCH": 501, "GET": 400}[method], req)
		if text, _ := got["message"].(string); method == "GET" && !strings.Contains(text, size) {
			t.Errorf("the body of %s bytes became larger: %q", size, text)
		}
	}
	c.want(c.do(200, "GET", "/v1/projects/p/secrets/a", ""), map[string]any{"owner": ""})
}

// TestOtherProtocols: calls of procedures and streams pass Front unchanged.
func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	s := start(t)
	clientOf(t, s).do(200, "POST", "/v1/projects/p/secrets?secret_id=a", "{}")
	for name, option := range map[string]connect.ClientOption{"get": connect.WithHTTPGet(), "json": connect.WithProtoJSON(), "grpc-web": connect.WithGRPCWeb()} {
		c := secretsv1connect.NewSecretServiceClient(s.Client(), s.URL, option)
		if _, err := c.GetSecret(t.Context(), connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/secrets/a"})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		watch, err := c.WatchSecrets(t.Context(), connect.NewRequest(&secretsv1.WatchSecretsRequest{}))
		if err != nil || !watch.Receive() || watch.Msg().GetName() != "projects/p/secrets/a" {
			t.Errorf("%s: the watch begins with %v, %v", name, watch.Msg(), watch.Err())
		}
		_ = watch.Close()
	}
}

// TestUntranslatable: a handler gets no empty request in place of one that was not translated.
func TestUntranslatable(t *testing.T) {
	t.Parallel()
	for body, valid := range map[string]bool{`{"payload": "bmV3"}`: true, `{"payload": 1}`: false, `{`: false} {
		var read error
		h := front(t, func(w http.ResponseWriter, r *http.Request) { _, read = io.ReadAll(r.Body) })
		req := httptest.NewRequest(http.MethodPost, "/v1/projects/p/secrets/a:setPayload", strings.NewReader(body))
		out := httptest.NewRecorder()
		h.ServeHTTP(out, req)
		if (read == nil) != valid || (out.Code == http.StatusBadRequest) == valid {
			t.Errorf("%s: the handler reads %v, the client gets %d %s", body, read, out.Code, out.Body)
		}
	}
	// A client that has no room in the server is not wrong.
	h := front(t, func(http.ResponseWriter, *http.Request) { t.Error("the call has no room, and is handled") })
	req := httptest.NewRequest(http.MethodGet, "/v1/projects/p/secrets/a", iotest.ErrReader(memory.Full(true)))
	out := httptest.NewRecorder()
	if h.ServeHTTP(out, req); out.Code != http.StatusServiceUnavailable {
		t.Errorf("the client gets %d %v %s", out.Code, out.Header(), out.Body)
	}
}

// TestTooLarge: the body of a request is limited as in every other protocol.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t))
	got := c.do(429, "POST", "/v1/projects/p/secrets/a:setPayload", `{"payload": "`+strings.Repeat("A", 12<<20)+`"}`)
	c.want(got, map[string]any{"code": 8.})
}

// TestNoRoom: a response is translated only with memory for it. A write is never repeated for that.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, method, path string
		budget, others     int64
		status             int
		reason             string
	}{
		{"room", "GET", "/v1/projects/p/secrets/a", 1 << 20, 0, 200, ""},
		{"later", "GET", "/v1/projects/p/secrets/a", 1 << 20, 1 << 20, 503, "BUSY"},
		{"never", "GET", "/v1/projects/p/secrets/a", 1 << 10, 0, 429, "ask for less"},
		{"written", "POST", "/v1/projects/p/secrets/a:setPayload", 1 << 20, 1 << 20, 503, "OUTCOME_UNKNOWN"},
	} {
		h := front(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/proto")
			// A GetSecretResponse or SetPayloadResponse whose secret has a payload.
			secret := append([]byte{0x12, 0x80, 0x20}, bytes.Repeat([]byte{1}, 4096)...)
			_, _ = w.Write(append([]byte{0x0a, 0x83, 0x20}, secret...))
		})
		budget := memory.NewBudget(tc.budget)
		if !budget.Share(tc.others).Take(tc.others) {
			t.Fatal("the others have no room")
		}
		share := budget.Share(1 << 20)
		req := httptest.NewRequestWithContext(memory.With(t.Context(), share), tc.method, tc.path, http.NoBody)
		if tc.method == http.MethodPost {
			req.Header.Set("Content-Type", "application/json")
		}
		out := httptest.NewRecorder()
		h.ServeHTTP(out, req)
		share.End()
		if out.Code != tc.status || !strings.Contains(out.Body.String(), tc.reason) || (tc.reason == "BUSY") != (out.Header().Get("Retry-After") != "") {
			t.Errorf("%s: the client gets %d %v %.300s", tc.name, out.Code, out.Header(), out.Body)
		}
	}
}

func front(t *testing.T, next http.HandlerFunc) http.Handler {
	t.Helper()
	h, err := rest.Front(secrets.Services(), next)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestFrontRefuses services of which it cannot serve all.
func TestFrontRefuses(t *testing.T) {
	t.Parallel()
	plain := tasksv1.File_tasks_v1_tasks_proto.Services().ByName("TaskService")
	for text, apis := range map[string][]protoreflect.ServiceDescriptor{
		"no method has a google.api.http annotation": {plain},
		"already been configured":                    append(secrets.Services(), secrets.Services()...),
	} {
		if _, err := rest.Front(apis, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %v, without %q", err, text)
		}
	}
	// A server finds it before it starts.
	service := samples.Service()
	service.REST = func([]protoreflect.ServiceDescriptor, http.Handler) (http.Handler, error) {
		return rest.Front([]protoreflect.ServiceDescriptor{plain}, http.NotFoundHandler())
	}
	_, err := dbcontroller.New(service, dbcontroller.Options{ConfigFile: "nonesuch"})
	if err == nil || !strings.Contains(err.Error(), "dbcontroller.Service: REST: rest: no method") {
		t.Errorf("the server is made, or refused with %v", err)
	}
}
