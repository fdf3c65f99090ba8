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
	"dbcontroller.dev/vrunner"
)

// Audit is an observer that writes what v1 clients ask for and get, and what that is in v2, as
// a line of JSON each: who has called what, and both versions of each request, process and
// response. Values of environment variables are left out.
type Audit struct {
	mu sync.Mutex
	to io.Writer
}

var _ apiversion.Observer = (*Audit)(nil)

// NewAudit writes lines to w.
func NewAudit(w io.Writer) *Audit { return &Audit{to: w} }

// audited is a line.
type audited struct {
	Time      time.Time             `json:"time"`
	What      apiversion.Translated `json:"what"`
	Procedure string                `json:"procedure"`
	Served    string                `json:"served,omitempty"`
	Caller    string                `json:"caller,omitempty"`
	Old       json.RawMessage       `json:"old,omitempty"`
	New       json.RawMessage       `json:"new,omitempty"`
	Code      string                `json:"code,omitempty"` // of an error; its text may quote a request
}

// Observe writes the line of an event.
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
	a.mu.Lock()
	defer a.mu.Unlock()
	return json.NewEncoder(a.to).Encode(line)
}

// shownTo is a message as the audit shows it, nil if there is none.
func shownTo(m proto.Message) (json.RawMessage, error) {
	if m == nil {
		return nil, nil
	}
	m = proto.Clone(m) // an event's messages must not be changed
	conceal(m.ProtoReflect())
	return protojson.Marshal(m)
}

// conceal empties the values of environment variables, of either version.
func conceal(m protoreflect.Message) {
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

// AuditedV2 is StackV2 with an audit of what it serves to v1 clients; nil: there is none.
func AuditedV2(v2 vrunner.Store, audit *Audit, opts ...connect.HandlerOption) http.Handler {
	o := apiversion.Options{Handler: opts, ObserverFailed: func(err error) { fmt.Fprintln(os.Stderr, "audit:", err) }}
	if audit != nil {
		o.Observers = []apiversion.Observer{audit}
	}
	mux := http.NewServeMux()
	for i, table := range []*apiversion.Table{Table(), ActualTable()} {
		path, native := nativesV2[i](v2, opts...)
		mux.Handle(path, native)
		mux.Handle(table.Path(), apiversion.NewHandler(table, promoting(native), o))
	}
	return mux
}
