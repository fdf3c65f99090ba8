package bbs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/bbs/task"
	"dbcontroller.dev/vrunner"
)

// Audit observes the calls of v1 clients. It writes one line of JSON for each: the procedure, the
// caller, and both versions of each request, process and response. It omits the values of
// environment variables. Calls about tasks are not translated, and not among them.
type Audit struct {
	mu sync.Mutex
	to io.Writer
}

var _ apiversion.Observer = (*Audit)(nil)

// NewAudit returns an Audit that writes lines to w, one at a time.
func NewAudit(w io.Writer) *Audit { return &Audit{to: w} }

// audited is one line.
type audited struct {
	Time      time.Time             `json:"time"`
	What      apiversion.Translated `json:"what"`
	Procedure string                `json:"procedure"`
	Served    string                `json:"served,omitempty"`
	Caller    string                `json:"caller,omitempty"`
	Old       json.RawMessage       `json:"old,omitempty"`
	New       json.RawMessage       `json:"new,omitempty"`
	Code      string                `json:"code,omitempty"` // of an error; omits its text, which may quote a request
}

// Observe writes one line for an event.
func (a *Audit) Observe(_ context.Context, e apiversion.Event) error {
	line := audited{Time: time.Now().UTC(), What: e.What, Procedure: e.Procedure, Served: e.Served, Caller: e.Caller}
	if e.Err != nil {
		line.Code = connect.CodeOf(e.Err).String()
	}
	var err error
	if line.Old, err = shownTo(e.Old); err != nil {
		return err
	}
	if line.New, err = shownTo(e.New); err != nil {
		return err
	}
	// Calls are concurrent, and lines must not mix.
	a.mu.Lock()
	defer a.mu.Unlock()
	return json.NewEncoder(a.to).Encode(line)
}

// shownTo encodes a message for the audit. It returns nil if there is none.
func shownTo(m proto.Message) (json.RawMessage, error) {
	if m == nil {
		return nil, nil
	}
	m = proto.Clone(m) // observers must not change an event's messages
	conceal(m.ProtoReflect())
	return protojson.Marshal(m)
}

// conceal clears the values of environment variables in a message of either version.
func conceal(m protoreflect.Message) {
	// Both versions use this name for their message, so one check covers them.
	if m.Descriptor().Name() == "EnvVar" {
		m.Clear(m.Descriptor().Fields().ByName("value"))
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { conceal(v.Message()); return true })
			}
		// Scalars cannot contain an EnvVar.
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				conceal(v.List().Get(i).Message())
			}
		default:
			conceal(v.Message())
		}
		return true
	})
}

// AuditedV2 is StackV2 with an audit of the calls of v1 clients. If audit is nil, there is none.
func AuditedV2(v2 vrunner.Store, audit *Audit, opts ...connect.HandlerOption) http.Handler {
	o := apiversion.Options{Handler: opts, ObserverFailed: func(err error) { fmt.Fprintln(os.Stderr, "audit:", err) }}
	if audit != nil {
		o.Observers = []apiversion.Observer{audit}
	}
	mux := http.NewServeMux()
	for i, table := range []*apiversion.Table{Table(), ActualTable()} {
		path, native := nativesV2[i](v2, opts...)
		mux.Handle(path, native)
		mux.Handle(table.Path(), apiversion.NewHandler(table, native, o))
	}
	// v1's own handlers serve v1, so there is no translation to observe.
	mux.Handle(task.NativeV2(v2, opts...))
	mux.Handle(task.NativeV1(task.OverV2(v2), opts...))
	return mux
}
