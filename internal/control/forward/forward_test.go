package forward_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
)

type named map[string]any

// TestVerbsGoToTheOwner: only the controller that runs a deployment can plan, and calls through another one
// reach it. Each call is audited on both sides.
func TestVerbsGoToTheOwner(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a, b := start(t, store, setup{id: "a", runs: []string{ours}}), start(t, store, setup{id: "b", runs: []string{theirs}})
	a.knows(t, theirs, "b")
	a.knows(t, ours, "a")
	if n := b.count("Plan"); n == 0 {
		t.Error("the owner got no call")
	}
	var d struct {
		Name, Region string
		Pace         struct{ Paused bool }
	}
	if code, text := a.call(t, "", "SetPace", named{"name": theirs, "paused": true, "requestedBy": "ann"}, &d); code != "" || d.Name != theirs || !d.Pace.Paused || d.Region != "" {
		t.Errorf("%s %s %+v", code, text, d)
	}
	// A refusal of the owner keeps its code, reason and text.
	if code, text := a.call(t, "", "Switch", named{"name": theirs}, nil); code != "NOT_IN_THIS_STATE" || !strings.HasPrefix(text, "switch: ") {
		t.Errorf("%s %s", code, text)
	}
	lines := b.audit.FilterMessage("call").FilterFieldKey("forwarded_by").All()
	if len(lines) == 0 || lines[0].ContextMap()["forwarded_by"] != "a for loopback" || lines[0].ContextMap()["deployment"] != theirs {
		t.Errorf("the owner's audit: %+v", lines)
	}
	if a.audit.FilterMessage("call").Len() == 0 || a.audit.FilterFieldKey("forwarded_by").Len() != 0 {
		t.Errorf("the audit of the other one: %+v", a.audit.All())
	}
}

// TestEachCallHasItsPlace: every call about a deployment goes to its owner, except those of applications, and
// the creation, which a coordination store decides about.
func TestEachCallHasItsPlace(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a := start(t, store, setup{id: "a", runs: []string{ours}})
	b := start(t, store, setup{id: "b", runs: []string{theirs}})
	a.knows(t, theirs, "b")
	here := []string{"CreateDeployment", "RegisterClient", "DeregisterClient", "AckHold", "GetLocation"}
	methods := pb.File_dbcontroller_v1_deployment_proto.Services().ByName("DeploymentService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		name := m.Input().Fields().ByName("name")
		method := string(m.Name())
		if name == nil || strings.Contains(method, "Rollout") {
			continue // it is about the coordination store
		}
		before := b.count(method)
		if m.IsStreamingServer() {
			a.stream(t, m, theirs)
		} else {
			a.call(t, "", method, named{"name": theirs}, nil)
		}
		if went := b.count(method) > before; went == slices.Contains(here, method) {
			t.Errorf("%s went to the owner: %v", method, went)
		}
	}
}

// stream makes a call with several answers, and leaves after the first one.
func (p *process) stream(t *testing.T, m protoreflect.MethodDescriptor, name string) {
	t.Helper()
	body, err := json.Marshal(named{"name": name})
	if err != nil {
		t.Fatal(err)
	}
	framed := append([]byte{0, 0, 0, 0, byte(len(body))}, body...)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/dbcontroller.v1.DeploymentService/"+string(m.Name()), strings.NewReader(string(framed)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+json")
	res, err := insecure.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = res.Body.Read(make([]byte, 1))
}

// TestOwnersThatAreGone: calls go to the next owner, or are answered here as far as that is possible.
func TestOwnersThatAreGone(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a := start(t, store, setup{id: "a", runs: []string{ours}})
	closed := "http://" + accesstest.ClosedPort(t)
	start(t, store, setup{id: "gone", announces: []string{theirs}, at: closed})
	eventually(t, "a knows the address", func() error {
		code, text := a.call(t, "", "Plan", named{"name": theirs}, nil)
		if code != "COORDINATION_UNAVAILABLE" || !strings.Contains(text, "the controller that runs it at "+closed+" does not answer") {
			return fmt.Errorf("%s %s", code, text)
		}
		return nil
	})
	for _, method := range []string{"GetDeployment", "ListParked"} {
		if code, text := a.call(t, "", method, named{"name": theirs}, nil); code != "" {
			t.Errorf("%s: %s %s", method, code, text)
		}
	}
	if code, text := a.call(t, "", "SetPace", named{"name": theirs, "paused": true}, nil); code != "" {
		t.Errorf("a verb that needs etcd alone: %s %s", code, text)
	}
	start(t, store, setup{id: "b", runs: []string{theirs}})
	a.knows(t, theirs, "b")
}

// TestUnknownOutcomes: an owner that dies in the middle of a call may have made the change. The call is not
// sent again. One that changes nothing is.
func TestUnknownOutcomes(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a := start(t, store, setup{id: "a", runs: []string{ours}})
	dies := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get(access.ForwardedHeader) == "" || strings.HasSuffix(r.URL.Path, "ListUpdates") {
			return false
		}
		panic(http.ErrAbortHandler)
	}
	b := start(t, store, setup{id: "b", runs: []string{theirs}, broken: dies})
	eventually(t, "a forwards", func() error {
		a.call(t, "", "ListUpdates", named{"name": theirs}, nil)
		if b.count("ListUpdates") == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	code, text := a.call(t, "", "SetPace", named{"name": theirs, "paused": true}, nil)
	if code != "OUTCOME_UNKNOWN" || !strings.Contains(text, "may or may not have made the change") || b.count("SetPace") != 1 {
		t.Errorf("%s %s, %d calls", code, text, b.count("SetPace"))
	}
	// A dry run changes nothing, so that this process may answer.
	if code, text := a.call(t, "", "SetPace", named{"name": theirs, "paused": true, "dryRun": true}, nil); code != "" {
		t.Errorf("%s %s", code, text)
	}
	if code, text := a.call(t, "", "GetDeployment", named{"name": theirs}, nil); code != "" || b.count("GetDeployment") == 0 {
		t.Errorf("%s %s", code, text)
	}
}

// arrivedCall returns nil once one of the processes got a call.
func arrivedCall(method string, all ...*process) error {
	for _, p := range all {
		if p.count(method) > 0 {
			return nil
		}
	}
	return fmt.Errorf("no %s has come", method)
}
