package bbs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/transform"
)

// The services of both versions.
var (
	serviceV1 = bbsv1.File_bbs_v1_bbs_proto.Services().ByName("DesiredLRPService")
	serviceV2 = bbsv2.File_bbs_v2_bbs_proto.Services().ByName("LRPDeploymentService")

	actualServiceV1 = bbsv1.File_bbs_v1_bbs_proto.Services().ByName("ActualLRPService")
	actualServiceV2 = bbsv2.File_bbs_v2_bbs_proto.Services().ByName("ActualLRPService")
)

// Table pairs the methods of v1 and v2 for processes.
var Table = sync.OnceValue(func() *apiversion.Table {
	process, err := newResource()
	var t *apiversion.Table
	if err == nil {
		t, err = apiversion.NewTable(apiversion.Config{
			Old: serviceV1, New: serviceV2, Resources: []*apiversion.Resource{process},
			Methods: []apiversion.Method{
				{Old: "CreateDesiredLRP", New: "CreateLRPDeployment", Request: checkCreate},
				{Old: "GetDesiredLRP", New: "GetLRPDeployment", Request: wholeIfNamed, Response: withDefinition},
				{Old: "ListDesiredLRPs", New: "ListLRPDeployments"},
				{Old: "ListDesiredLRPSchedulingInfos", New: "ListLRPDeployments", Response: scheduled},
				{Old: "UpdateDesiredLRP", New: "UpdateLRPDeployment", Request: updated},
				{Old: "DeleteDesiredLRP", New: "DeleteLRPDeployment"},
				{Old: "WatchDesiredLRPs", New: "WatchLRPDeployments"},
			},
		})
	}
	if err != nil {
		panic(fmt.Sprintf("table of the processes' methods: %v", err)) // each test would fail here
	}
	return t
})

// checkCreate refuses requests that v1 refuses over its own data, with the same messages.
func checkCreate(ctx context.Context, old proto.Message, _ *dynamicpb.Message, derive func(handled ...string) error) error {
	// The middleware works with dynamic messages; the checks need the generated type.
	req := new(bbsv1.CreateDesiredLRPRequest)
	if err := recast(req, old); err != nil {
		return err
	}
	if p := req.DesiredLrp; p != nil {
		if err := checkV1(ctx, p, nil); err != nil {
			return err
		}
		// v1 would store this message, and refuses one that it cannot encode.
		if _, err := protodoc.Marshal(p); err != nil {
			return apiversion.RequestError(err)
		}
	}
	return derive()
}

// updated passes a definition of v1's request on, which has the same fields in both versions.
func updated(_ context.Context, old proto.Message, now *dynamicpb.Message, derive func(handled ...string) error) error {
	req := new(bbsv1.UpdateDesiredLRPRequest)
	if err := recast(req, old); err != nil {
		return err
	}
	if err := derive(fieldDefinition); err != nil || req.Definition == nil {
		return err
	}
	update := new(bbsv2.UpdateLRPDeploymentRequest)
	if err := recast(update, now); err != nil {
		return err
	}
	update.Definition = definitionV2(req.Definition)
	return recast(now, update)
}

// wholeIfNamed asks for the whole process if v1's request names a definition. withDefinition applies
// the mask then.
func wholeIfNamed(_ context.Context, old proto.Message, now *dynamicpb.Message, derive func(handled ...string) error) error {
	req := new(bbsv1.GetDesiredLRPRequest)
	if err := recast(req, old); err != nil {
		return err
	}
	if req.DefinitionId == "" {
		return derive(fieldDefID)
	}
	return recast(now, &bbsv2.GetLRPDeploymentRequest{ProcessGuid: req.ProcessGuid})
}

// withDefinition shows a process to v1 with the definition that the request names.
func withDefinition(_ context.Context, oldRequest, now proto.Message, old *dynamicpb.Message, derive func(handled ...string) error) error {
	req := new(bbsv1.GetDesiredLRPRequest)
	if err := recast(req, oldRequest); err != nil || req.DefinitionId == "" {
		return errors.Join(err, derive())
	}
	got := new(bbsv2.GetLRPDeploymentResponse)
	if err := recast(got, now); err != nil {
		return err
	}
	p := got.GetLrpDeployment()
	if err := hasDefinition(p, req.DefinitionId); err != nil {
		return apiversion.CodeError(err)
	}
	p.ActiveDefinitionId = req.DefinitionId
	shown, err := projected(p, nil)
	if err != nil {
		return err
	}
	if err := listing.ApplyMask(shown, req.ReadMask); err != nil {
		return err
	}
	return recast(old, &bbsv1.GetDesiredLRPResponse{DesiredLrp: shown})
}

// recast copies a message to a message type with the same fields.
func recast(to, from proto.Message) error {
	raw, err := proto.Marshal(from)
	if err != nil {
		return err
	}
	return proto.Unmarshal(raw, to)
}

// scheduled converts a v2 list to scheduling infos, with values of the active definitions.
func scheduled(_ context.Context, _, now proto.Message, old *dynamicpb.Message, derive func(handled ...string) error) error {
	page := new(bbsv2.ListLRPDeploymentsResponse)
	if err := recast(page, now); err != nil {
		return err
	}
	res := &bbsv1.ListDesiredLRPSchedulingInfosResponse{}
	for _, d := range page.LrpDeployments {
		p, err := projected(d, nil)
		if err != nil {
			return err
		}
		res.DesiredLrpSchedulingInfos = append(res.DesiredLrpSchedulingInfos, schedulingInfo(p))
	}
	if err := recast(old, res); err != nil {
		return err
	}
	return derive("desired_lrp_scheduling_infos")
}

// newResource is a process as both APIs show it: the same promotion and projection as the
// transformer's, on messages.
func newResource() (*apiversion.Resource, error) {
	r, err := apiversion.Typed(promoted, projected,
		apiversion.OnlyOld(fieldDefinition, fieldDefID), apiversion.OnlyNew(fieldDefinitions, fieldActive, fieldHealthy, fieldFormer))
	if err != nil {
		return nil, err
	}
	r.OldName, r.NewName = fieldGUID, fieldGUID
	r.UpMapping = activeMapping{r.UpMapping}
	return r, nil
}

// activeMapping maps the filters and orders of v1 requests. v1's definition is the active one of
// v2's several, and no filter or order of v2 can express that.
type activeMapping struct{ transform.Mapping }

func (m activeMapping) Compare(c transform.Condition) ([]transform.Condition, error) {
	if ofDefinition(c.Path) {
		return nil, &transform.MappingError{Field: c.Path, Reason: "a process has several definitions since v2: filter by other fields, and look at the definitions of the processes that are listed"}
	}
	return m.Mapping.Compare(c)
}

func (m activeMapping) Order(path string) (string, error) {
	if ofDefinition(path) {
		return "", &transform.MappingError{Field: path, Reason: "a process has several definitions since v2: order by other fields"}
	}
	return m.Mapping.Order(path)
}

func ofDefinition(path string) bool {
	return path == fieldDefinition || path == fieldDefID || strings.HasPrefix(path, fieldDefinition+".")
}

// promoted returns the v2 process for a new v1 process.
func promoted(p *bbsv1.DesiredLRP, _ *bbsv2.LRPDeployment) (*bbsv2.LRPDeployment, error) {
	// As in promoteProcess: without an id, the guid is that of the only definition. None is healthy,
	// because no instance of a new process runs.
	id := definitionID(p.ProcessGuid, p.GetDefinitionId())
	out := &bbsv2.LRPDeployment{
		ProcessGuid: p.ProcessGuid, Domain: p.Domain, Instances: p.Instances, Routes: p.Routes, Annotation: p.Annotation,
		RolloutTimeoutMs: p.RolloutTimeoutMs, FallBackAfterMs: p.FallBackAfterMs,
		Definitions: map[string]*bbsv2.Definition{id: definitionV2(p.Definition)}, ActiveDefinitionId: id,
	}
	if t := p.ModificationTag; t != nil {
		out.ModificationTag = &bbsv2.ModificationTag{Epoch: t.Epoch, Index: t.Index}
	}
	return out, nil
}

// projected returns a v2 process in v1's form, with its active definition.
func projected(p *bbsv2.LRPDeployment, _ *bbsv1.DesiredLRP) (*bbsv1.DesiredLRP, error) {
	active, ok := p.Definitions[p.ActiveDefinitionId]
	if !ok {
		return nil, fmt.Errorf("%s: the active definition %q is not there", p.ProcessGuid, p.ActiveDefinitionId)
	}
	out := &bbsv1.DesiredLRP{
		ProcessGuid: p.ProcessGuid, Domain: p.Domain, Instances: p.Instances, Routes: p.Routes, Annotation: p.Annotation,
		RolloutTimeoutMs: p.RolloutTimeoutMs, FallBackAfterMs: p.FallBackAfterMs,
		DefinitionId: definitionName(p.ProcessGuid, p.ActiveDefinitionId), Definition: definitionV1(active),
	}
	if t := p.ModificationTag; t != nil {
		out.ModificationTag = &bbsv1.ModificationTag{Epoch: t.Epoch, Index: t.Index}
	}
	return out, nil
}

func definitionV2(d *bbsv1.Definition) *bbsv2.Definition {
	out := &bbsv2.Definition{
		Rootfs: d.Rootfs, MemoryMb: d.MemoryMb, DiskMb: d.DiskMb, Ports: d.Ports, CpuWeight: d.CpuWeight, Privileged: d.Privileged,
		LogGuid: d.LogGuid, StartTimeoutMs: d.StartTimeoutMs,
	}
	for _, e := range d.Env {
		out.Env = append(out.Env, &bbsv2.EnvVar{Name: e.Name, Value: e.Value})
	}
	if a := d.Action; a != nil {
		out.Action = &bbsv2.Action{Path: a.Path, Args: a.Args, User: a.User, Dir: a.Dir}
	}
	return out
}

func definitionV1(d *bbsv2.Definition) *bbsv1.Definition {
	out := &bbsv1.Definition{
		Rootfs: d.Rootfs, MemoryMb: d.MemoryMb, DiskMb: d.DiskMb, Ports: d.Ports, CpuWeight: d.CpuWeight, Privileged: d.Privileged,
		LogGuid: d.LogGuid, StartTimeoutMs: d.StartTimeoutMs,
	}
	for _, e := range d.Env {
		out.Env = append(out.Env, &bbsv1.EnvVar{Name: e.Name, Value: e.Value})
	}
	if a := d.Action; a != nil {
		out.Action = &bbsv1.Action{Path: a.Path, Args: a.Args, User: a.User, Dir: a.Dir}
	}
	return out
}
