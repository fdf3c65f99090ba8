package bbs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/sample/bbs/converge"
	"dbcontroller.dev/vrunner"
)

// processesV1 are those of v1, which has one definition of each process: there is nothing to
// decide about it.
func processesV1(v1 vrunner.Store) processes {
	table := tableV1(v1)
	process := func(p *bbsv1.DesiredLRP) converge.Process {
		return converge.Process{
			Instances: int(p.Instances), Epoch: p.GetModificationTag().GetEpoch(), Active: p.ProcessGuid, Healthy: p.ProcessGuid,
		}
	}
	return processes{
		kind: KindDesiredLRPs,
		read: func(rec record.Record) (string, converge.Process, error) {
			p, err := table.Decode(rec)
			return p.GetProcessGuid(), process(p), err
		},
		find: func(ctx context.Context, guid string) (converge.Process, error) {
			p, err := table.Find(ctx, guid)
			if err != nil {
				return converge.Process{}, err
			}
			return process(p), nil
		},
	}
}

// processesV2 are those of v2.
func processesV2(v2 vrunner.Store) processes {
	table := tableV2(v2)
	process := func(p *bbsv2.LRPDeployment) converge.Process {
		return converge.Process{
			Instances: int(p.Instances), Epoch: p.GetModificationTag().GetEpoch(), Active: p.ActiveDefinitionId, Healthy: p.HealthyDefinitionId,
			Former: p.FormerDefinitionIds,
		}
	}
	return processes{
		kind: KindDeployments,
		read: func(rec record.Record) (string, converge.Process, error) {
			p, err := table.Decode(rec)
			return p.GetProcessGuid(), process(p), err
		},
		find: func(ctx context.Context, guid string) (converge.Process, error) {
			p, err := table.Find(ctx, guid)
			if err != nil {
				return converge.Process{}, err
			}
			out := process(p)
			out.Timeouts = map[string]time.Duration{}
			for id, d := range p.Definitions {
				out.Timeouts[id] = time.Duration(d.GetStartTimeoutMs()) * time.Millisecond
			}
			return out, nil
		},
		decide: func(ctx context.Context, guid string, was converge.Process, a converge.Action) error {
			_, err := table.Change(ctx, &bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: guid}, func(p *bbsv2.LRPDeployment) error {
				return decided(p, was, a)
			})
			return err
		},
	}
}

// decided makes what was decided of a process's definitions, if that process and which of them
// are active and healthy still is as it was. Else a client's choice since would be undone.
func decided(p *bbsv2.LRPDeployment, was converge.Process, a converge.Action) error {
	if p.GetModificationTag().GetEpoch() != was.Epoch || p.ActiveDefinitionId != was.Active || p.HealthyDefinitionId != was.Healthy {
		return errOvertaken
	}
	switch a.Op {
	case converge.Heal:
		p.HealthyDefinitionId = a.Definition
		return nil
	case converge.FallBack:
		return activate(p, a.Definition)
	case converge.Prune:
		for _, id := range a.Definitions {
			delete(p.Definitions, id)
		}
		p.FormerDefinitionIds = slices.DeleteFunc(p.FormerDefinitionIds, func(id string) bool { return slices.Contains(a.Definitions, id) })
		return nil
	default:
		return fmt.Errorf("%s is not about definitions", a.Op)
	}
}

// activate makes a definition the active one. The one that was it goes when nothing names it.
func activate(p *bbsv2.LRPDeployment, id string) error {
	if err := hasDefinition(p, id); err != nil {
		return err
	}
	if id == p.ActiveDefinitionId {
		return nil
	}
	p.FormerDefinitionIds = slices.DeleteFunc(p.FormerDefinitionIds, func(f string) bool { return f == id || f == p.ActiveDefinitionId })
	p.FormerDefinitionIds = append(p.FormerDefinitionIds, p.ActiveDefinitionId)
	p.ActiveDefinitionId = id
	return nil
}

// choose activates a definition for a client. Those that were added and not chosen go with the one
// that was active: definitions that nobody activates would otherwise stay for ever.
func choose(p *bbsv2.LRPDeployment, id string) error {
	if err := activate(p, id); err != nil {
		return err
	}
	for _, other := range slices.Sorted(maps.Keys(p.Definitions)) {
		if other != id && other != p.HealthyDefinitionId && !slices.Contains(p.FormerDefinitionIds, other) {
			p.FormerDefinitionIds = append(p.FormerDefinitionIds, other)
		}
	}
	return nil
}
