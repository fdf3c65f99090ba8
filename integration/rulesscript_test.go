package integration_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/examples/bbs/converge"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
)

// script plays one scenario with a process of its own: its owner and its cells, as clients of one
// version of the API. It runs in a goroutine of its own, so it ends by fail.
type script struct {
	b      *ruled
	ctx    context.Context //nolint:containedctx // of the scenario
	name   string
	guid   string
	api    string        // version of the API
	data   func() string // version that is active
	middle func()        // the switch, if the mode has one
	// By definition@index: hold leaves it unclaimed, claim claims it only, crash has it crash.
	hold, claim, crash map[string]bool
	keep               bool                             // what is to stop is not removed
	cell               string                           // where instances start
	starts             int                              // instances that were claimed
	seen               map[string]*bbsv1.ActualLRPGroup // by definition@index
}

func (s *script) fail(format string, args ...any) {
	s.b.t.Errorf("%s: %s", s.name, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (s *script) check(err error) {
	if err != nil {
		s.fail("%v", err)
	}
}

// Methods of v2 that have another name in v1.
var namesV2 = map[string]string{"GetActualLRPGroup": "GetActualLRP", "ListActualLRPGroups": "ListActualLRPs"}

// ask calls a method of instances or tasks in the script's version. Their messages differ by times of
// tasks only, which v1's messages then lack: so v1's serve for both.
func ask[A, Q any](s *script, service, method string, req *Q) (*A, error) {
	if n := namesV2[method]; n != "" && s.api == "v2" {
		method = n
	}
	url := fmt.Sprintf("http://%s/bbs.%s.%s/%s", s.b.address, s.api, service, method)
	res, err := connect.NewClient[Q, A](s.b.http, url).CallUnary(s.ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func (s *script) v1() bbsv1connect.DesiredLRPServiceClient {
	return bbsv1connect.NewDesiredLRPServiceClient(s.b.http, "http://"+s.b.address)
}

func (s *script) v2() bbsv2connect.LRPDeploymentServiceClient {
	return bbsv2connect.NewLRPDeploymentServiceClient(s.b.http, "http://"+s.b.address)
}

// create makes the process with its first definition, whose id is one.
func (s *script) create(instances int32) {
	var err error
	if s.api == "v1" {
		_, err = s.v1().CreateDesiredLRP(s.ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: &bbsv1.DesiredLRP{
			ProcessGuid: s.guid, Domain: "it", Instances: instances, DefinitionId: proto.String("one"), Definition: &bbsv1.Definition{LogGuid: "one"}, RolloutTimeoutMs: 3_600_000,
		}}))
	} else {
		_, err = s.v2().CreateLRPDeployment(s.ctx, connect.NewRequest(&bbsv2.CreateLRPDeploymentRequest{LrpDeployment: &bbsv2.LRPDeployment{
			ProcessGuid: s.guid, Domain: "it", Instances: instances, ActiveDefinitionId: "one", Definitions: map[string]*bbsv2.Definition{"one": {LogGuid: "one"}}, RolloutTimeoutMs: 3_600_000,
		}}))
	}
	s.check(err)
}

// update changes the process; an id comes with a new definition.
func (s *script) update(id string, timeout, fallBack *int64) {
	var err error
	if s.api == "v1" {
		req := &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: s.guid, DefinitionId: id, RolloutTimeoutMs: timeout, FallBackAfterMs: fallBack}
		if id != "" {
			req.Definition = &bbsv1.Definition{LogGuid: id}
		}
		_, err = s.v1().UpdateDesiredLRP(s.ctx, connect.NewRequest(req))
	} else {
		req := &bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: s.guid, DefinitionId: id, RolloutTimeoutMs: timeout, FallBackAfterMs: fallBack}
		if id != "" {
			req.Definition = &bbsv2.Definition{LogGuid: id}
		}
		_, err = s.v2().UpdateLRPDeployment(s.ctx, connect.NewRequest(req))
	}
	s.check(err)
}

// roll begins a rollout, while all instances run their first definition. v2's data must know which
// one is healthy before v1's forget it: until then, a switch could not bring it along.
func (s *script) roll(id string) {
	s.await("0 one RUNNING, 1 one RUNNING, 2 one RUNNING")
	if s.data() == "v2" || s.b.copied {
		s.awaitV2("one is healthy", func(p *bbsv2.LRPDeployment) bool { return p.GetHealthyDefinitionId() == "one" })
	}
	s.update(id, nil, nil)
}

func (s *script) remove() {
	var err error
	if s.api == "v1" {
		_, err = s.v1().DeleteDesiredLRP(s.ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: s.guid}))
	} else {
		_, err = s.v2().DeleteLRPDeployment(s.ctx, connect.NewRequest(&bbsv2.DeleteLRPDeploymentRequest{ProcessGuid: s.guid}))
	}
	s.check(err)
}

// until waits for a condition, and has the cells do their work meanwhile.
func (s *script) until(what string, ok func(state string) (bool, string)) {
	s.b.t.Helper()
	limit, last := time.Now().Add(2*time.Minute), ""
	for {
		state := s.tend()
		reached, now := ok(state)
		if reached {
			return
		}
		last = fmt.Sprintf("%s; %s", state, now)
		if time.Now().After(limit) || s.ctx.Err() != nil {
			s.fail("%s: it is %s", what, last)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// await waits for a state of all instances.
func (s *script) await(state string) {
	s.b.t.Helper()
	s.until("want "+state, func(now string) (bool, string) { return now == state, "" })
}

// awaitV2 waits for a state of the process in v2.
func (s *script) awaitV2(what string, ok func(*bbsv2.LRPDeployment) bool) {
	s.b.t.Helper()
	s.until(what, func(string) (bool, string) {
		res, err := s.v2().GetLRPDeployment(s.ctx, connect.NewRequest(&bbsv2.GetLRPDeploymentRequest{ProcessGuid: s.guid}))
		if err != nil {
			return false, err.Error()
		}
		return ok(res.Msg.GetLrpDeployment()), res.Msg.GetLrpDeployment().String()
	})
}

// tend does what cells have to do for the process, and returns the state before.
func (s *script) tend() string {
	list, err := ask[bbsv1.ListActualLRPGroupsResponse](s, "ActualLRPService", "ListActualLRPGroups", &bbsv1.ListActualLRPGroupsRequest{Parent: "processes/" + s.guid})
	s.check(err)
	s.seen = map[string]*bbsv1.ActualLRPGroup{}
	var out []string
	for _, g := range list.GetActualLrpGroups() {
		key := fmt.Sprintf("%s@%d", g.GetDefinitionId(), g.Index)
		s.seen[key] = g
		text := fmt.Sprintf("%d %s %s", g.Index, g.GetDefinitionId(), g.GetInstance().GetState())
		if g.GetInstance().GetRetire() {
			text += " to stop"
		}
		if g.GetInstance().GetGivenUp() {
			text += " given up"
		}
		if g.Evacuating != nil {
			text += " evacuating"
		}
		out = append(out, text)
		for _, i := range []*bbsv1.ActualLRP{g.Instance, g.Evacuating} {
			if i.GetRetire() && i.CellId != "" && !s.keep {
				s.say("RemoveActualLRP", g, i.InstanceGuid, i.CellId)
			}
		}
		if g.GetInstance().GetState() != string(converge.Unclaimed) || s.hold[key] {
			continue
		}
		s.starts++
		guid := fmt.Sprintf("%s-%d", key, s.starts)
		switch {
		case s.claim[key]:
			s.say("ClaimActualLRP", g, guid, s.cell)
		case s.crash[key]:
			s.say("ClaimActualLRP", g, guid, s.cell)
			s.say("CrashActualLRP", g, guid, s.cell)
		default:
			s.say("StartActualLRP", g, guid, s.cell)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// say makes a report of a cell. Another writer may have been faster, as for any cell.
func (s *script) say(method string, g *bbsv1.ActualLRPGroup, guid, cell string) {
	_, err := ask[bbsv1.ActualLRPGroup](s, "ActualLRPService", method, &bbsv1.ClaimActualLRPRequest{Name: g.Name, InstanceGuid: guid, CellId: cell, DefinitionId: s.definitionFor(method, g)})
	switch connect.CodeOf(err) {
	case connect.CodeFailedPrecondition, connect.CodeNotFound, connect.CodeAborted:
	default:
		s.check(err)
	}
}

// definitionFor: CrashActualLRPRequest has the reason where the other requests have the definition,
// which the name of the group has as well.
func (s *script) definitionFor(method string, g *bbsv1.ActualLRPGroup) string {
	if method == "CrashActualLRP" {
		return "it crashed"
	}
	return g.GetDefinitionId()
}

// on returns the instance of a definition at an index.
func (s *script) on(key string) *bbsv1.ActualLRP {
	g := s.seen[key]
	if g == nil {
		s.fail("%s is not among %v", key, slices.Sorted(maps.Keys(s.seen)))
	}
	return g.GetInstance()
}

// ends has a running instance crash or evacuate.
func (s *script) ends(method, key string) {
	i := s.on(key)
	s.say(method, s.seen[key], i.InstanceGuid, i.CellId)
}

// another waits until a definition runs again at an index, as another instance.
func (s *script) another(key, before string) {
	s.b.t.Helper()
	s.until("it runs again", func(string) (bool, string) {
		g := s.seen[key]
		return g.GetInstance().GetState() == string(converge.Running) && g.GetInstance().GetInstanceGuid() != before, fmt.Sprint("before it was ", before)
	})
}
