package refusal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"dbcontroller.dev/refusal"
)

// TestSameInEveryProtocol: clients of every protocol read one reason, and its metadata, of an
// answer that no handler has made.
func TestSameInEveryProtocol(t *testing.T) {
	t.Parallel()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		refusal.Write(w, r, refusal.New(refusal.VersionNotServed, errors.New("v1 to v3 are served"), refusal.MetaOldest, "v1", refusal.MetaNewest, "v3"))
	}))
	s.Config.Protocols = &protocols
	s.Start()
	defer s.Close()
	var only2 http.Protocols
	only2.SetUnencryptedHTTP2(true)
	h2 := &http.Transport{Protocols: &only2}
	defer h2.CloseIdleConnections()
	for name, opts := range map[string][]connect.ClientOption{
		"connect":      nil,
		"connect json": {connect.WithProtoJSON()},
		"grpc":         {connect.WithGRPC()},
		"grpc-web":     {connect.WithGRPCWeb()},
	} {
		client := http.DefaultClient
		if name == "grpc" {
			client = &http.Client{Transport: h2}
		}
		c := connect.NewClient[emptypb.Empty, emptypb.Empty](client, s.URL+"/s.v4.S/M", opts...)
		_, err := c.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
		reason, meta := refusal.Of(err)
		if connect.CodeOf(err) != connect.CodeUnimplemented || reason != refusal.VersionNotServed || meta[refusal.MetaOldest] != "v1" || meta[refusal.MetaNewest] != "v3" {
			t.Errorf("%s: %v, reason %q %v", name, err, reason, meta)
		}
	}
	for name, request := range map[string]func() (*http.Response, error){
		"JSON":       func() (*http.Response, error) { return http.Post(s.URL, "application/json", strings.NewReader("{}")) },
		"plain GET":  func() (*http.Response, error) { return http.Get(s.URL + "/s.v4.S/M") },
		"plain POST": func() (*http.Response, error) { return http.Post(s.URL, "text/plain", strings.NewReader("hello")) },
	} {
		res, err := request()
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Code    string
			Details []struct {
				Type  string
				Debug struct {
					Reason, Domain string
					Metadata       map[string]string
				}
			}
		}
		err = json.NewDecoder(res.Body).Decode(&answer)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusNotImplemented || answer.Code != "unimplemented" || len(answer.Details) != 1 {
			t.Errorf("%s: %d %+v %v", name, res.StatusCode, answer, err)
			continue
		}
		d := answer.Details[0]
		if d.Type != "google.rpc.ErrorInfo" || d.Debug.Reason != "VERSION_NOT_SERVED" || d.Debug.Domain != "dbcontroller.dev" || d.Debug.Metadata["newest"] != "v3" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestBecause: an error keeps its reason, and its cause, whatever is written around it.
func TestBecause(t *testing.T) {
	t.Parallel()
	cause := errors.New("not found")
	gone := refusal.Because(refusal.VersionRetired, "v1 is retired", cause, refusal.MetaVersion, "v1")
	wrapped := fmt.Errorf("kind k: %w", gone)
	answer, ok := refusal.In(wrapped)
	if !ok || answer.Code() != connect.CodeNotFound || answer.Message() != "kind k: v1 is retired: not found" || !errors.Is(answer, cause) {
		t.Errorf("answer %v", answer)
	}
	if reason, meta := refusal.Of(fmt.Errorf("call: %w", answer)); reason != refusal.VersionRetired || meta[refusal.MetaVersion] != "v1" {
		t.Errorf("reason %q %v", reason, meta)
	}
	if plain := refusal.Plain(wrapped); plain == nil || plain.Error() != "v1 is retired: not found" {
		t.Errorf("plain %v", plain)
	}
	for _, err := range []error{nil, cause, connect.NewError(connect.CodeUnavailable, cause)} {
		if reason, _ := refusal.Of(err); reason != "" || refusal.Plain(err) != nil {
			t.Errorf("%v has the reason %q", err, reason)
		}
		if _, ok := refusal.In(err); ok {
			t.Errorf("%v is an answer", err)
		}
	}
}

// TestReasonsHaveCodes: a reason without a row would be an internal error for clients, and in no
// table of a test or a document.
func TestReasonsHaveCodes(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("reason.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []refusal.Reason
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ Reason = "(\w+)"$`).FindAllSubmatch(source, -1) {
		declared = append(declared, refusal.Reason(m[1]))
	}
	if !slices.Equal(declared, refusal.Reasons()) {
		t.Errorf("declared are %v, in the table %v", declared, refusal.Reasons())
	}
	seen := map[refusal.Reason]bool{}
	for _, r := range refusal.Reasons() {
		if seen[r] || r.Code() == connect.CodeInternal {
			t.Errorf("reason %s: code %s", r, r.Code())
		}
		seen[r] = true
	}
	if refusal.Reason("NONE").Code() != connect.CodeInternal {
		t.Error("a reason that there is not has a code")
	}
}
