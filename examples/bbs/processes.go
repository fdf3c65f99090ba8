package bbs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"dbcontroller.dev/examples/bbs/converge"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// processesV1 reads v1's processes. Each holds one definition only, so there is no decide.
func processesV1(v1 vrunner.Store) processes {
	table := tableV1(v1)
	process := func(p *bbsv1.DesiredLRP) converge.Process {
		return converge.Process{
			Instances: int(p.Instances), Epoch: p.GetModificationTag().GetEpoch(), Active: definitionID(p.ProcessGuid, p.GetDefinitionId()), Single: true,
			RolloutTimeout: time.Duration(p.RolloutTimeoutMs) * time.Millisecond,
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

// definitionID returns the id of a definition that v1 leaves out if it is the guid of the process.
func definitionID(guid, id string) string {
	if id == "" {
		return guid
	}
	return id
}

// definitionName returns an id as v1 shows and stores it. Most processes have one definition, which
// clients of v1 have never named.
func definitionName(guid, id string) *string {
	if id == guid || id == "" {
		return nil
	}
	return &id
}

// processesV2 reads v2's processes.
func processesV2(v2 vrunner.Store) processes {
	table := tableV2(v2)
	process := func(p *bbsv2.LRPDeployment) converge.Process {
		return converge.Process{
			Instances: int(p.Instances), Epoch: p.GetModificationTag().GetEpoch(), Active: p.ActiveDefinitionId, Healthy: p.HealthyDefinitionId,
			Former: p.FormerDefinitionIds, RolloutTimeout: time.Duration(p.RolloutTimeoutMs) * time.Millisecond, FallBackAfter: time.Duration(p.FallBackAfterMs) * time.Millisecond,
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
			return process(p), nil
		},
		decide: func(ctx context.Context, guid string, was converge.Process, a converge.Action) error {
			_, err := table.Change(ctx, &bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: guid}, func(p *bbsv2.LRPDeployment) error {
				return decided(p, was, a)
			})
			return err
		},
	}
}

// decided applies an action about definitions. It refuses if the process was recreated, or if
// another definition is active or healthy by now: the action would undo a client's later choice.
func decided(p *bbsv2.LRPDeployment, was converge.Process, a converge.Action) error {
	if p.GetModificationTag().GetEpoch() != was.Epoch || p.ActiveDefinitionId != was.Active || p.HealthyDefinitionId != was.Healthy {
		return errOvertaken
	}
	switch a.Op {
	case converge.Heal:
		if err := hasDefinition(p, a.Definition); err != nil {
			return err
		}
		p.HealthyDefinitionId = a.Definition
		return nil
	case converge.FallBack:
		return activate(p, a.Definition)
	case converge.Prune:
		for _, id := range a.Definitions {
			delete(p.Definitions, id)
		}
		// A deleted id in the list would be pruned again for ever.
		p.FormerDefinitionIds = slices.DeleteFunc(p.FormerDefinitionIds, func(id string) bool { return slices.Contains(a.Definitions, id) })
		return nil
	default:
		return fmt.Errorf("%s is not about definitions", a.Op)
	}
}

// activate makes a definition the active one. The previous one becomes a former definition, which a
// Prune action removes once nothing refers to it.
func activate(p *bbsv2.LRPDeployment, id string) error {
	if err := hasDefinition(p, id); err != nil {
		return err
	}
	if id == p.ActiveDefinitionId {
		return nil
	}
	// The new active one is no longer a former one, and the list must not hold an id twice.
	p.FormerDefinitionIds = slices.DeleteFunc(p.FormerDefinitionIds, func(f string) bool { return f == id || f == p.ActiveDefinitionId })
	p.FormerDefinitionIds = append(p.FormerDefinitionIds, p.ActiveDefinitionId)
	p.ActiveDefinitionId = id
	return nil
}

// choose activates a definition for a client. Definitions that were added but never activated
// become former ones too, since nothing else would ever remove them.
func choose(p *bbsv2.LRPDeployment, id string) error {
	if err := activate(p, id); err != nil {
		return err
	}
	// Sorted, so that the same request always gives the same record.
	for _, other := range slices.Sorted(maps.Keys(p.Definitions)) {
		if other != id && other != p.HealthyDefinitionId && !slices.Contains(p.FormerDefinitionIds, other) {
			p.FormerDefinitionIds = append(p.FormerDefinitionIds, other)
		}
	}
	return nil
}
