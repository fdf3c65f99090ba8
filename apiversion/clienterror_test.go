package apiversion_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/internal/access"
)

// TestPanicBehindATranslation: the panic of a handler or of a converter behind a translated call is in
// the server's log and in the audit, and its value is in no answer.
func TestPanicBehindATranslation(t *testing.T) {
	t.Parallel()
	for _, converter := range []bool{false, true} {
		l := newLibrary(service(t, "v2"))
		l.add(text(t, bookOf(l.service), newBook))
		books, panics := libraryConfig(t, bookResource(t)), "canary of the handler"
		if converter {
			panics = "canary of the converter"
			down := books.Resources[0].Down
			books.Resources[0].Down = func(msg, have proto.Message) (proto.Message, error) {
				if get(msg.ProtoReflect(), "name").String() != "" {
					panic(panics)
				}
				return down(msg, have)
			}
		} else {
			l.before = func(context.Context, string) error { panic(panics) }
		}
		table, err := apiversion.NewTable(books)
		if err != nil {
			t.Fatal(err)
		}
		core, logs := observer.New(zap.DebugLevel)
		log := zap.New(core)
		procedure := apiversion.Procedure(service(t, "v1").Methods().ByName("GetBook"))
		guard, err := access.NewGuard(access.GuardConfig{
			Unproven: access.Loopback, Table: access.Table{procedure: {Least: access.Application}}, Audit: access.NewAudit(log), Log: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "http://localhost"+procedure, strings.NewReader(`{"name": "shelves/a/books/dune"}`))
		r.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		guard.Handler(apiversion.NewHandler(table, l.connectHandler(), apiversion.Options{})).ServeHTTP(answer, r)
		if body := answer.Body.String(); answer.Code != http.StatusInternalServerError || strings.Contains(body, "canary") {
			t.Errorf("%s: the client gets %d: %s", panics, answer.Code, body)
		}
		lines := logs.FilterMessage("a handler panicked").All()
		if len(lines) != 1 || logs.FilterMessage("panicked").Len() != 1 {
			t.Errorf("%s: the log has %v", panics, logs.All())
			continue
		}
		fields := lines[0].ContextMap()
		if stack, _ := fields["stack"].(string); fields["panic"] != panics || !strings.Contains(stack, "clienterror_test.go") {
			t.Errorf("%s: the log says %v", panics, fields)
		}
	}
}
