package app_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/examples/bbs"
	"dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/internal/program/server/samples"
	"dbcontroller.dev/vrunner"
)

// TestBombs: what becomes larger than any request may be is refused by every procedure of
// every stack before it is decoded, however small it came.
func TestBombs(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(bytes.Repeat([]byte(" "), limits.ServerRequestBytes+1<<10)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v2"} {
		stack := samples.Service().Server().Bounded(version, map[string]*vrunner.View{"v1": {}, "v2": {}})
		tried := 0
		for _, service := range append(bbs.Services(), secrets.Services()...) {
			for i := range service.Methods().Len() {
				method := service.Methods().Get(i)
				// What the active version does not write it refuses unread.
				if method.IsStreamingServer() || version == "v1" && strings.HasSuffix(string(service.ParentFile().Package()), "v2") {
					continue
				}
				tried++
				want := http.StatusTooManyRequests
				if method.IsStreamingClient() {
					want = http.StatusOK // the error is in the end of the stream
				}
				if code, text := post(stack.Handler, service, method, b.Bytes()); code != want || !strings.Contains(text, "resource_exhausted") {
					t.Errorf("%s of the stack of %s: %d %.200s", method.FullName(), version, code, text)
				}
			}
		}
		if tried < 8 {
			t.Errorf("only %d procedures of %s", tried, version)
		}
	}
}

func post(h http.Handler, s protoreflect.ServiceDescriptor, m protoreflect.MethodDescriptor, body []byte) (int, string) {
	kind, encoding := "application/json", "Content-Encoding"
	if m.IsStreamingClient() {
		const compressed = 1
		body = append(binary.BigEndian.AppendUint32([]byte{compressed}, uint32(len(body))), body...)
		kind, encoding = "application/connect+json", "Connect-Content-Encoding"
	}
	r := httptest.NewRequest(http.MethodPost, fmt.Sprintf("/%s/%s", s.FullName(), m.Name()), bytes.NewReader(body))
	r.Header.Set("Content-Type", kind)
	r.Header.Set(encoding, "gzip")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// TestTable: every procedure of the samples has a row, and nothing else has.
func TestTable(t *testing.T) {
	t.Parallel()
	table := app.Table(samples.Service().Server().APIs)
	for _, service := range append(bbs.Services(), secrets.Services()...) {
		if row, ok := table.Row("/" + string(service.FullName()) + "/Anything"); !ok || row.Least != "application" {
			t.Errorf("%s has the row %+v", service.FullName(), row)
		}
	}
	if row, ok := table.Row("/bbs.v3.DesiredLRPService/List"); ok {
		t.Errorf("an unknown service has the row %+v", row)
	}
}
