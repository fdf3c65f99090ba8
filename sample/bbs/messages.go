package bbs

import (
	bbsv1 "dbcontroller/gen/bbs/v1"
	bbsv2 "dbcontroller/gen/bbs/v2"
)

// tagV1 and its siblings translate between the documents and the messages of a version,
// which are alike but not one type.
func tagV1(t tagDoc) *bbsv1.ModificationTag {
	return &bbsv1.ModificationTag{Epoch: t.Epoch, Index: uint32(t.Index)}
}

func tagV2(t tagDoc) *bbsv2.ModificationTag {
	return &bbsv2.ModificationTag{Epoch: t.Epoch, Index: uint32(t.Index)}
}

// tagMessage is a ModificationTag of either version.
type tagMessage interface {
	GetEpoch() string
	GetIndex() uint32
}

func expected(t tagMessage, given bool) *tagDoc {
	if !given {
		return nil
	}
	return &tagDoc{Epoch: t.GetEpoch(), Index: int64(t.GetIndex())}
}

func definitionFromV1(d *bbsv1.Definition) definitionDoc {
	out := definitionDoc{
		RootFS: d.GetRootfs(), Env: []envDoc{}, MemoryMB: d.GetMemoryMb(), DiskMB: d.GetDiskMb(), Ports: []int64{},
		CPUWeight: d.GetCpuWeight(), Privileged: d.GetPrivileged(), LogGUID: d.GetLogGuid(), StartTimeoutMS: d.GetStartTimeoutMs(),
	}
	for _, e := range d.GetEnv() {
		out.Env = append(out.Env, envDoc{e.GetName(), e.GetValue()})
	}
	for _, p := range d.GetPorts() {
		out.Ports = append(out.Ports, int64(p))
	}
	if a := d.GetAction(); a != nil {
		out.Action = &actionDoc{a.GetPath(), orEmpty(a.GetArgs()), a.GetUser(), a.GetDir()}
	}
	return out
}

func definitionFromV2(d *bbsv2.Definition) definitionDoc {
	out := definitionDoc{
		RootFS: d.GetRootfs(), Env: []envDoc{}, MemoryMB: d.GetMemoryMb(), DiskMB: d.GetDiskMb(), Ports: []int64{},
		CPUWeight: d.GetCpuWeight(), Privileged: d.GetPrivileged(), LogGUID: d.GetLogGuid(), StartTimeoutMS: d.GetStartTimeoutMs(),
	}
	for _, e := range d.GetEnv() {
		out.Env = append(out.Env, envDoc{e.GetName(), e.GetValue()})
	}
	for _, p := range d.GetPorts() {
		out.Ports = append(out.Ports, int64(p))
	}
	if a := d.GetAction(); a != nil {
		out.Action = &actionDoc{a.GetPath(), orEmpty(a.GetArgs()), a.GetUser(), a.GetDir()}
	}
	return out
}

func definitionV1(d definitionDoc) *bbsv1.Definition {
	out := &bbsv1.Definition{
		Rootfs: d.RootFS, MemoryMb: d.MemoryMB, DiskMb: d.DiskMB, CpuWeight: d.CPUWeight, Privileged: d.Privileged,
		LogGuid: d.LogGUID, StartTimeoutMs: d.StartTimeoutMS,
	}
	for _, e := range d.Env {
		out.Env = append(out.Env, &bbsv1.EnvVar{Name: e.Name, Value: e.Value})
	}
	for _, p := range d.Ports {
		out.Ports = append(out.Ports, uint32(p))
	}
	if a := d.Action; a != nil {
		out.Action = &bbsv1.Action{Path: a.Path, Args: a.Args, User: a.User, Dir: a.Dir}
	}
	return out
}

func definitionV2(d definitionDoc) *bbsv2.Definition {
	out := &bbsv2.Definition{
		Rootfs: d.RootFS, MemoryMb: d.MemoryMB, DiskMb: d.DiskMB, CpuWeight: d.CPUWeight, Privileged: d.Privileged,
		LogGuid: d.LogGUID, StartTimeoutMs: d.StartTimeoutMS,
	}
	for _, e := range d.Env {
		out.Env = append(out.Env, &bbsv2.EnvVar{Name: e.Name, Value: e.Value})
	}
	for _, p := range d.Ports {
		out.Ports = append(out.Ports, uint32(p))
	}
	if a := d.Action; a != nil {
		out.Action = &bbsv2.Action{Path: a.Path, Args: a.Args, User: a.User, Dir: a.Dir}
	}
	return out
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
