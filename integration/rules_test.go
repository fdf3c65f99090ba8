package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/examples/bbs/outbound"
	"dbcontroller.dev/examples/bbs/task"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
)

// ruled is a BBS in MongoDB, with its controllers.
type ruled struct {
	*system
	address string
	copied  bool // v2's data follow v1's
}

// rules are what the documents of the BBS say, each as a scenario. In each mode they run at the same
// time.
var rules = map[string]func(s *script){
	"restarts are healthy": restartsAreHealthy, "an index is given up": indexIsGivenUp, "a third definition": thirdDefinition, "never starts": neverStarts,
	"one entry for each triple": entryForEachTriple, "deleted in a rollout": deletedInARollout, "promoted": promotedAsItRuns, "tasks": tasksAcross,
}

// TestRulesOfBBS plays each rule through the API of v1, through that of v1 with the switch to v2 in
// the middle of it, and through that of v2. One deployment serves all of them.
func TestRulesOfBBS(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b := &ruled{system: newSystem(ctx, t, settings{kinds: "[]", copy: "{auto: true, workers: 2}"})}
	b.controller("controller", breakPoint{}).ready(ctx)
	server := spawn(t, "server", command(t, roleServer, nil, b.part(part{ID: "server", Flags: []string{"--converge=500ms"}}))).ready(ctx)
	b.address, _ = server.addresses()

	var active atomic.Value
	active.Store("v1")
	play := func(mode, api string, middle func()) *sync.WaitGroup {
		var all sync.WaitGroup
		for name, rule := range rules {
			all.Go(func() {
				guid := mode + "-" + strings.ReplaceAll(name, " ", "-")
				rule(&script{
					b: b, ctx: ctx, name: mode + ": " + name, guid: guid, api: api, middle: middle, cell: "cell-" + guid, data: func() string { return active.Load().(string) }, //nolint:forcetypeassert // stored above
					hold: map[string]bool{}, claim: map[string]bool{}, crash: map[string]bool{},
				})
			})
		}
		return &all
	}
	play("v1", "v1", func() {}).Wait()

	b.copied = true
	var halfway sync.WaitGroup
	halfway.Add(len(rules))
	switched := make(chan struct{})
	across := play("switch", "v1", func() { halfway.Done(); <-switched })
	arrived := make(chan struct{})
	go func() { halfway.Wait(); close(arrived) }()
	ended := make(chan struct{})
	go func() { across.Wait(); close(ended) }()
	select {
	case <-arrived:
		b.beginTo(ctx, "v2")
		b.await(ctx, "the flip to v2", flipped("v2"))
	case <-ctx.Done():
	}
	active.Store("v2")
	close(switched)
	<-ended
	if !t.Failed() {
		play("v2", "v2", func() {}).Wait()
	}
}

// restartsAreHealthy: what starts outside of the rolling sequence has the healthy definition. v1's
// data cannot hold that one beside the active one.
func restartsAreHealthy(s *script) {
	s.create(3)
	s.hold["two@0"], s.hold["two@1"], s.hold["two@2"] = true, true, true
	s.roll("two")
	s.await("0 one RUNNING, 0 two UNCLAIMED, 1 one RUNNING, 2 one RUNNING")
	s.middle()
	s.tend()
	crashed := s.on("one@2").InstanceGuid
	s.ends("CrashActualLRP", "one@2")
	if s.data() == "v1" {
		s.await("0 one RUNNING, 0 two UNCLAIMED, 1 one RUNNING, 2 two UNCLAIMED")
		return
	}
	s.another("one@2", crashed)
	evacuated := s.on("one@1").InstanceGuid
	s.ends("EvacuateActualLRP", "one@1")
	s.another("one@1", evacuated)
	// The next one starts on a cell that reports once, and never again.
	lost := s.on("one@0").InstanceGuid
	s.cell = "lost-" + s.guid
	_, err := ask[bbsv1.ReportCellResponse](s, "ActualLRPService", "ReportCell", &bbsv1.ReportCellRequest{CellId: s.cell})
	s.check(err)
	s.ends("CrashActualLRP", "one@0")
	s.another("one@0", lost)
	lost, s.cell = s.on("one@0").InstanceGuid, "cell-"+s.guid
	s.another("one@0", lost)
	s.await("0 one RUNNING, 0 two UNCLAIMED, 1 one RUNNING, 2 one RUNNING")
}

// indexIsGivenUp: a definition that crashes for ever at index 1 is given up there after the timeout
// of the deployment, and the rollout goes on with index 2.
func indexIsGivenUp(s *script) {
	s.create(3)
	s.crash["two@1"], s.hold["two@1"] = true, true
	s.roll("two")
	s.await("0 two RUNNING, 1 one RUNNING, 1 two UNCLAIMED, 2 one RUNNING")
	s.middle()
	s.hold["two@1"] = false
	s.update("", proto.Int64(1500), nil)
	s.await("0 two RUNNING, 1 one RUNNING, 1 two CRASHED given up, 2 two RUNNING")
}

// thirdDefinition: it begins again at index 0 while the second one waits at index 2, whose instance
// there stops. When it has replaced the second one everywhere, that one is pruned.
func thirdDefinition(s *script) {
	s.create(3)
	s.hold["two@2"], s.hold["three@1"] = true, true
	s.roll("two")
	s.await("0 two RUNNING, 1 two RUNNING, 2 one RUNNING, 2 two UNCLAIMED")
	s.middle()
	s.update("three", nil, nil)
	s.await("0 three RUNNING, 1 three UNCLAIMED, 1 two RUNNING, 2 one RUNNING")
	if s.data() == "v2" {
		s.awaitV2("the second one is kept while it runs", func(p *bbsv2.LRPDeployment) bool {
			return p.GetActiveDefinitionId() == "three" && p.GetDefinitions()["two"] != nil
		})
	}
	s.hold["three@1"] = false
	s.await("0 three RUNNING, 1 three RUNNING, 2 three RUNNING")
	if s.data() == "v2" {
		s.awaitV2("the others are pruned", func(p *bbsv2.LRPDeployment) bool {
			return p.GetHealthyDefinitionId() == "three" && len(p.GetDefinitions()) == 1
		})
	}
}

// neverStarts: the definition is tried for ever while the old instances stay. To fall back is an
// option.
func neverStarts(s *script) {
	s.create(3)
	s.crash["two@0"] = true
	s.roll("two")
	crashes := func(n int32) {
		s.until(fmt.Sprint(n, " crashes"), func(string) (bool, string) {
			i := s.seen["two@0"].GetInstance()
			return i.GetCrashCount() >= n && !i.GetGivenUp(), ""
		})
	}
	crashes(2)
	s.middle()
	crashes(3)
	for _, key := range []string{"one@0", "one@1", "one@2"} {
		if i := s.on(key); i.State != string(converge.Running) || i.Retire {
			s.fail("%s is %v", key, i)
		}
	}
	if s.data() == "v1" {
		return // its data have no other definition to go back to
	}
	s.update("", nil, proto.Int64(1))
	s.awaitV2("it falls back", func(p *bbsv2.LRPDeployment) bool { return p.GetActiveDefinitionId() == "one" })
	s.await("0 one RUNNING, 1 one RUNNING, 2 one RUNNING")
}

// entryForEachTriple: lists have one entry for each process, definition and index. A request without
// a definition is about the active one.
func entryForEachTriple(s *script) {
	s.create(3)
	s.claim["two@0"] = true
	s.roll("two")
	s.await("0 one RUNNING, 0 two CLAIMED, 1 one RUNNING, 2 one RUNNING")
	s.middle()
	name := converge.IndexName(s.guid, 0)
	for definition, want := range map[string]string{"": "two", "two": "two", "one": "one"} {
		got, err := ask[bbsv1.GetActualLRPGroupResponse](s, "ActualLRPService", "GetActualLRPGroup", &bbsv1.GetActualLRPGroupRequest{Name: name, DefinitionId: definition})
		s.check(err)
		if id := got.GetActualLrpGroup().GetDefinitionId(); id != want {
			s.fail("with definition %q it is %q", definition, id)
		}
	}
	s.keep = true
	_, err := ask[bbsv1.ActualLRPGroup](s, "ActualLRPService", "RetireActualLRP", &bbsv1.RetireActualLRPRequest{Name: name})
	s.check(err)
	s.await("0 one RUNNING, 0 two CLAIMED to stop, 1 one RUNNING, 2 one RUNNING")
	s.keep, s.claim["two@0"] = false, false
	s.await("0 two RUNNING, 1 two RUNNING, 2 two RUNNING")
}

// deletedInARollout: both definitions' instances stop, and no further one starts.
func deletedInARollout(s *script) {
	s.create(3)
	s.hold["two@1"] = true
	s.roll("two")
	s.await("0 two RUNNING, 1 one RUNNING, 1 two UNCLAIMED, 2 one RUNNING")
	s.middle()
	s.keep = true
	starts := s.starts
	s.remove()
	s.await("0 two RUNNING to stop, 1 one RUNNING to stop, 2 one RUNNING to stop")
	s.keep = false
	s.await("")
	if s.starts != starts {
		s.fail("%d instances started after the delete", s.starts-starts)
	}
}

// promotedAsItRuns: a definition of which no instance runs is not the healthy one, and v1 sees the
// same process after the switch.
func promotedAsItRuns(s *script) {
	s.create(1)
	s.hold["one@0"] = true
	s.await("0 one UNCLAIMED")
	before, err := s.v1().GetDesiredLRP(s.ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: s.guid}))
	s.check(err)
	s.middle()
	after, err := s.v1().GetDesiredLRP(s.ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: s.guid}))
	s.check(err)
	if !proto.Equal(before.Msg, after.Msg) {
		s.fail("v1 sees %v, saw %v", after.Msg, before.Msg)
	}
	for _, healthy := range []string{"", "one"} {
		if s.data() == "v2" {
			s.awaitV2("healthy is "+healthy, func(p *bbsv2.LRPDeployment) bool { return p.GetHealthyDefinitionId() == healthy })
		}
		s.hold["one@0"] = false
		s.await("0 one RUNNING")
	}
}

// tasksAcross: tasks run once, their callbacks get them until they succeed, and a cell stops one that
// is cancelled.
func tasksAcross(s *script) {
	var posts, refusing atomic.Int64
	refusing.Store(1)
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refusing.Load() == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		posts.Add(1)
	}))
	defer callback.Close()
	stopped := make(chan string, 100)
	mux := http.NewServeMux()
	mux.HandleFunc(outbound.CancelPattern, func(_ http.ResponseWriter, r *http.Request) { stopped <- r.PathValue("task_guid") })
	rep := httptest.NewServer(mux)
	defer rep.Close()
	report := func() {
		_, err := ask[bbsv1.ReportCellResponse](s, "ActualLRPService", "ReportCell", &bbsv1.ReportCellRequest{CellId: s.cell, RepUrl: rep.URL})
		s.check(err)
	}
	do := func(method string, req *bbsv1.CompleteTaskRequest) {
		_, err := ask[bbsv1.CompleteTaskResponse](s, "TaskService", method, req)
		if err != nil {
			s.fail("%s of %s: %v", method, req.TaskGuid, err)
		}
	}
	state := func(guid string) string {
		res, err := ask[bbsv1.GetTaskResponse](s, "TaskService", "GetTask", &bbsv1.GetTaskRequest{TaskGuid: guid})
		if err != nil {
			return connect.CodeOf(err).String()
		}
		return res.GetTask().GetState()
	}
	posted, runs, cancelled := s.guid+"-posted", s.guid+"-runs", s.guid+"-cancelled"
	for _, guid := range []string{posted, runs, cancelled} {
		_, err := ask[bbsv1.DesireTaskResponse](s, "TaskService", "DesireTask", &bbsv1.DesireTaskRequest{TaskGuid: guid, Domain: "it", Definition: &bbsv1.TaskDefinition{CompletionCallbackUrl: callback.URL}})
		s.check(err)
		do("StartTask", &bbsv1.CompleteTaskRequest{TaskGuid: guid, CellId: s.cell})
	}
	do("CompleteTask", &bbsv1.CompleteTaskRequest{TaskGuid: posted, CellId: s.cell, Result: "42"})
	s.until("its callback has refused it", func(string) (bool, string) {
		res, err := ask[bbsv1.GetTaskResponse](s, "TaskService", "GetTask", &bbsv1.GetTaskRequest{TaskGuid: posted})
		s.check(err)
		return res.GetTask().GetCallbackAttempts() > 0, ""
	})
	s.middle()
	report()
	do("CompleteTask", &bbsv1.CompleteTaskRequest{TaskGuid: runs, CellId: s.cell, Result: "43"})
	do("CancelTask", &bbsv1.CompleteTaskRequest{TaskGuid: cancelled})
	s.until("its cell is asked to stop it", func(string) (bool, string) {
		select {
		case guid := <-stopped:
			return guid == cancelled, guid
		default:
			return false, ""
		}
	})
	for _, guid := range []string{posted, runs, cancelled} {
		if got := state(guid); got != string(task.Completed) && got != string(task.Resolving) {
			s.fail("%s is %s while its callback refuses it", guid, got)
		}
	}
	refusing.Store(0)
	s.until("all callbacks have succeeded", func(string) (bool, string) {
		all := state(posted) + " " + state(runs) + " " + state(cancelled)
		return all == "not_found not_found not_found", all
	})
	if n := posts.Load(); n != 3 {
		s.fail("%d posts of 3 tasks succeeded", n)
	}
}
