package app

import (
	"fmt"
	"maps"

	"google.golang.org/protobuf/proto"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
)

// lrp is a process in the view of its owner. Its content follows from the numbers of the operations
// that wrote it, so that an old or mixed state is recognized.
type lrp struct {
	guid        string
	op          int64            // operation that wrote routes and annotation
	running     int32            // instances for cells; 0 for most processes
	definitions map[string]int64 // operation that made each, by id; without formerly active ones
	active      string           // id of the active definition
}

// created returns a process after a create in either API: with one definition.
func created(guid string, op int64) lrp {
	return lrp{guid: guid, op: op, definitions: map[string]int64{guid: op}, active: guid}
}

func (p lrp) updated(op int64) lrp {
	p.op = op
	return p
}

func (p lrp) withDefinition(id string, op int64) lrp {
	p.definitions = maps.Clone(p.definitions)
	p.definitions[id] = op
	return p
}

// activated returns the process with another active definition. The service may delete the former
// one at any time, so it no longer counts.
func (p lrp) activated(id string) lrp {
	p.definitions = maps.Clone(p.definitions)
	delete(p.definitions, p.active)
	p.active = id
	return p
}

func (p lrp) annotation() string { return fmt.Sprintf("operation %d", p.op) }

func (p lrp) routes() map[string]string {
	return map[string]string{"router": fmt.Sprintf(`{"hostnames":["%s-%d.example.com"],"port":8080}`, p.guid, p.op)}
}

// v1 returns the process in the form of the v1 API: with its active definition.
func (p lrp) v1() *bbsv1.DesiredLRP {
	d := &bbsv1.DesiredLRP{
		ProcessGuid: p.guid, Domain: domain, Instances: p.running, Routes: p.routes(), Annotation: p.annotation(),
		Definition: definitionV1(p.definitions[p.active]),
	}
	// v1 leaves out the id of a definition that v1 has made.
	if p.active != p.guid {
		d.DefinitionId = &p.active
	}
	return d
}

// v2 returns the process in the form of the v2 API.
func (p lrp) v2() *bbsv2.LRPDeployment {
	d := &bbsv2.LRPDeployment{
		ProcessGuid: p.guid, Domain: domain, Instances: p.running, Routes: p.routes(), Annotation: p.annotation(),
		Definitions: map[string]*bbsv2.Definition{}, ActiveDefinitionId: p.active,
	}
	for id, op := range p.definitions {
		d.Definitions[id] = definitionV2(op)
	}
	return d
}

func (p lrp) state() state { return state{v1: printV1(p.v1()), v2: printV2(p.v2())} }

const domain = "demo"

func definitionV1(op int64) *bbsv1.Definition {
	return &bbsv1.Definition{
		Rootfs:   "docker:///library/busybox",
		Env:      []*bbsv1.EnvVar{{Name: "OPERATION", Value: fmt.Sprint(op)}, {Name: "LANG", Value: "C.UTF-8"}},
		Action:   &bbsv1.Action{Path: "/bin/serve", Args: []string{"--number", fmt.Sprint(op)}, User: "vcap", Dir: "/home/vcap"},
		MemoryMb: int32(op%512) + 64, DiskMb: 1024, Ports: []uint32{8080, 2222}, CpuWeight: int32(op%100) + 1,
		LogGuid: fmt.Sprintf("log-%d", op), StartTimeoutMs: 60_000 + op,
	}
}

func definitionV2(op int64) *bbsv2.Definition {
	d := definitionV1(op)
	out := &bbsv2.Definition{
		Rootfs: d.Rootfs, Action: &bbsv2.Action{Path: d.Action.Path, Args: d.Action.Args, User: d.Action.User, Dir: d.Action.Dir},
		MemoryMb: d.MemoryMb, DiskMb: d.DiskMb, Ports: d.Ports, CpuWeight: d.CpuWeight,
		LogGuid: d.LogGuid, StartTimeoutMs: d.StartTimeoutMs,
	}
	for _, e := range d.Env {
		out.Env = append(out.Env, &bbsv2.EnvVar{Name: e.Name, Value: e.Value})
	}
	return out
}

// printV1 and printV2 omit fields that the service sets itself.
func printV1(d *bbsv1.DesiredLRP) string {
	d = proto.CloneOf(d)
	d.ModificationTag = nil
	return printed(d)
}

func printV2(d *bbsv2.LRPDeployment) string {
	d = proto.CloneOf(d)
	for _, former := range d.FormerDefinitionIds {
		delete(d.Definitions, former)
	}
	d.ModificationTag, d.HealthyDefinitionId, d.FormerDefinitionIds = nil, "", nil
	return printed(d)
}

func printed(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return "cannot be encoded: " + err.Error()
	}
	return string(b)
}
