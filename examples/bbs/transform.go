package bbs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/examples/bbs/task"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Fields that the transformers handle. All others pass through unchanged.
const (
	fieldID         = "_id"
	fieldGUID       = "process_guid"
	fieldDefinition = "definition"
	fieldDefID      = "definition_id"
	// fieldDefinitions is the field of an LRPDeployment whose entries are records.
	fieldDefinitions = "definitions"
	fieldActive      = "active_definition_id"
	fieldHealthy     = "healthy_definition_id"
	fieldFormer      = "former_definition_ids"
	fieldTag         = "modification_tag"
)

// onlyV2 lists the fields of a deployment that v1 does not have.
var onlyV2 = []string{fieldActive, fieldHealthy, fieldFormer}

// Specs returns the transformers between v1 and v2.
func Specs() []transform.Spec {
	return []transform.Spec{{
		Name:     "lrp",
		Revision: "4",
		Old: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: KindDesiredLRPs}},
			kindActualLRPs(),
		}},
		New: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: KindDeployments}},
			{KindSpec: record.KindSpec{Name: KindDefinitions}, GroupOf: groupOfDefinition, Select: selectDefinitions},
			kindActualLRPs(),
		}},
		Up:   promote,
		Down: project,
		// Each way also for the order of the fields: what nobody has changed comes back as
		// the same bytes, which is how the two sides are compared.
		UpNeedsHave: true, DownNeedsHave: true,
	}, cellSpec(), task.Spec()}
}

func definitionKey(guid, id string) string { return guid + "/" + id }

// groupOfDefinition: the group of a process is the key of its DesiredLRP and of its
// LRPDeployment.
func groupOfDefinition(k record.Key) (string, error) {
	guid, _, err := splitDefinitionKey(k)
	return string(record.StringKey(guid)), err
}

func splitDefinitionKey(k record.Key) (guid, id string, err error) {
	name, ok := k.Name()
	if !ok {
		return "", "", errors.New("the key of a definition is a string")
	}
	guid, id, ok = strings.Cut(name, "/")
	if !ok || guid == "" || id == "" || strings.Contains(id, "/") {
		return "", "", fmt.Errorf("the key of a definition is <guid>/<id>, not %q", name)
	}
	return guid, id, nil
}

func selectDefinitions(group string) record.Selector {
	guid, _ := record.Key(group).Name()
	return record.Selector{Kind: KindDefinitions, Key: record.StringKey(guid + "/"), Prefix: true}
}

func guidOf(k record.Key) (string, error) {
	guid, ok := k.Name()
	if !ok {
		return "", fmt.Errorf("the key %s is not a string", k)
	}
	if err := nameError(guid); err != nil {
		return "", fmt.Errorf("the process guid %w", err)
	}
	return guid, nil
}

// process holds the parts of a v2 group.
type process struct {
	guid        string
	deployment  bson.Raw // nil if absent
	definitions []record.Record
}

func processOf(g transform.Group) (process, error) {
	var p process
	for _, r := range g.Records {
		switch r.Kind {
		case KindDeployments:
			guid, err := guidOf(r.Key)
			if err != nil {
				return process{}, err
			}
			p.guid, p.deployment = guid, r.Doc
		case KindDefinitions:
			p.definitions = append(p.definitions, r)
		}
	}
	// v1 could not show such a group, and its definitions would disappear silently.
	if p.deployment == nil && len(p.definitions) > 0 {
		return process{}, fmt.Errorf("definition %s has no deployment", p.definitions[0].Key)
	}
	return p, nil
}

func (p process) definition(id string) (bson.Raw, bool) {
	for _, r := range p.definitions {
		if name, _ := r.Key.Name(); name == definitionKey(p.guid, id) {
			return r.Doc, true
		}
	}
	return nil, false
}

// headOf returns the record that names its group, or nil if only instances of a deleted process are
// left.
func headOf(g transform.Group, kind string) *record.Record {
	for i := range g.Records {
		if g.Records[i].Kind == kind {
			return &g.Records[i]
		}
	}
	return nil
}

// activeOf returns the id of a deployment's active definition.
func activeOf(deployment bson.Raw) (string, error) {
	active, ok := deployment.Lookup(fieldActive).StringValueOK()
	if !ok || active == "" {
		return "", fmt.Errorf("no %s", fieldActive)
	}
	return active, nil
}

// project returns the v1 group for a v2 group.
func project(src, have transform.Group) ([]record.Record, error) {
	out, err := projectProcess(src, have)
	if err != nil {
		return nil, err
	}
	instances, err := projectInstances(src, have)
	return append(out, instances...), err
}

// projectProcess returns the v1 record of a process. v2 can hold everything that v1 holds, so
// existing v1 data only decides the order of fields.
func projectProcess(src, have transform.Group) ([]record.Record, error) {
	p, err := processOf(src)
	// Without a deployment only instances are left, which projectInstances converts.
	if err != nil || p.deployment == nil {
		return nil, err
	}
	f, err := readFields(p.deployment, p.guid, deploymentTypes, fieldDefinition, fieldDefID)
	if err != nil {
		return nil, fmt.Errorf("LRP deployment: %w", err)
	}
	active, err := activeOf(p.deployment)
	if err != nil {
		return nil, fmt.Errorf("LRP deployment: %w", err)
	}
	holder, ok := p.definition(active)
	if !ok {
		return nil, fmt.Errorf("LRP deployment: the active definition %q is not there", active)
	}
	d, err := readFields(holder, p.guid, definitionTypes)
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", active, err)
	}
	definition := d.get(fieldDefinition)
	if definition.Type == 0 {
		return nil, fmt.Errorf("definition %s: no %s", active, fieldDefinition)
	}
	doc := f.build(func(name []byte) bool { return !slices.Contains(onlyV2, string(name)) }, func(dst []byte) []byte {
		if active != p.guid {
			dst = bsoncore.AppendStringElement(dst, fieldDefID, active)
		}
		return bsoncore.AppendValueElement(dst, fieldDefinition, definition)
	})
	if head := headOf(have, KindDesiredLRPs); head != nil {
		if doc, err = inOrderOf(head.Doc, doc); err != nil {
			return nil, fmt.Errorf("held by v1: %w", err)
		}
	}
	return []record.Record{{Kind: KindDesiredLRPs, Key: record.StringKey(p.guid), Doc: doc}}, nil
}
