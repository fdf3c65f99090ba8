package bbs

import (
	"fmt"
	"sync"

	"dbcontroller.dev/apiversion"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
)

// ActualTable pairs the instance methods of v1 and v2. Requests are the same in both versions. Only
// v2 knows the definition that an instance runs.
var ActualTable = sync.OnceValue(func() *apiversion.Table {
	instance, err := apiversion.Typed(promotedInstance, projectedInstance,
		apiversion.OnlyNew("instance."+fieldDefID, "evacuating."+fieldDefID))
	var t *apiversion.Table
	if err == nil {
		// Only these methods differ by name. The table pairs methods with equal names by itself.
		t, err = apiversion.NewTable(apiversion.Config{
			Old: actualServiceV1, New: actualServiceV2, Resources: []*apiversion.Resource{instance},
			Methods: []apiversion.Method{
				{Old: "GetActualLRPGroup", New: "GetActualLRP"},
				{Old: "ListActualLRPGroups", New: "ListActualLRPs"},
				{Old: "WatchActualLRPGroups", New: "WatchActualLRPs"},
			},
		})
	}
	if err != nil {
		panic(fmt.Sprintf("table of the instances' methods: %v", err)) // each test would fail here
	}
	return t
})

// promotedInstance keeps the definitions that v2 holds. v1 clients never send an instance, so it
// need not choose one.
func promotedInstance(g *bbsv1.ActualLRPGroup, have *bbsv2.ActualLRP) (*bbsv2.ActualLRP, error) {
	out := &bbsv2.ActualLRP{Name: g.Name, Revision: g.Revision, ProcessGuid: g.ProcessGuid, Index: g.Index}
	s := slotV1(g)
	for _, i := range []*bbsv2.Instance{have.GetInstance(), have.GetEvacuating()} {
		// An instance may have moved to the evacuating slot since, so both are compared with both.
		if s.Instance != nil && s.Instance.Placement == i.GetPlacement() {
			s.Instance.Definition = i.GetDefinitionId()
		}
		if s.Evacuating != nil && s.Evacuating.Placement == i.GetPlacement() {
			s.Evacuating.Definition = i.GetDefinitionId()
		}
	}
	setSlotV2(out, s)
	return out, nil
}

// projectedInstance returns an instance in v1's form.
func projectedInstance(l *bbsv2.ActualLRP, _ *bbsv1.ActualLRPGroup) (*bbsv1.ActualLRPGroup, error) {
	out := &bbsv1.ActualLRPGroup{Name: l.Name, Revision: l.Revision, ProcessGuid: l.ProcessGuid, Index: l.Index}
	setSlotV1(out, slotV2(l))
	return out, nil
}
