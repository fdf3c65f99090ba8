package bbs

import (
	"fmt"
	"sync"

	"dbcontroller.dev/apiversion"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/transform"
)

// ActualTable pairs the instance methods of v1 and v2. Requests are the same in both versions.
var ActualTable = sync.OnceValue(func() *apiversion.Table {
	instance, err := apiversion.Typed(promotedInstance, projectedInstance, apiversion.OnlyOld(fieldDefID), apiversion.OnlyNew(fieldDefID))
	var t *apiversion.Table
	if err == nil {
		instance.UpMapping = namedMapping{instance.UpMapping}
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

// promotedInstance returns an instance in v2's form.
func promotedInstance(g *bbsv1.ActualLRPGroup, _ *bbsv2.ActualLRP) (*bbsv2.ActualLRP, error) {
	out := &bbsv2.ActualLRP{Name: g.Name, Revision: g.Revision, ProcessGuid: g.ProcessGuid, Index: g.Index, DefinitionId: definitionID(g.ProcessGuid, g.GetDefinitionId())}
	setSlotV2(out, slotV1(g))
	return out, nil
}

// projectedInstance returns an instance in v1's form.
func projectedInstance(l *bbsv2.ActualLRP, _ *bbsv1.ActualLRPGroup) (*bbsv1.ActualLRPGroup, error) {
	out := &bbsv1.ActualLRPGroup{Name: l.Name, Revision: l.Revision, ProcessGuid: l.ProcessGuid, Index: l.Index, DefinitionId: definitionName(l.ProcessGuid, l.DefinitionId)}
	setSlotV1(out, slotV2(l))
	return out, nil
}

// namedMapping maps the filters and orders of v1 requests. v1 leaves out the id of a definition that
// is the guid of its process, and no filter or order of v2 can express that.
type namedMapping struct{ transform.Mapping }

func (m namedMapping) Compare(c transform.Condition) ([]transform.Condition, error) {
	if c.Path == fieldDefID {
		return nil, &transform.MappingError{Field: c.Path, Reason: "v2 has the id of each definition, v1 leaves some out: filter by name"}
	}
	return m.Mapping.Compare(c)
}

func (m namedMapping) Order(path string) (string, error) {
	if path == fieldDefID {
		return "", &transform.MappingError{Field: path, Reason: "v2 has the id of each definition, v1 leaves some out: order by name"}
	}
	return m.Mapping.Order(path)
}
