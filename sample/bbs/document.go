package bbs

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/protodoc"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/record"
)

// A head record is its message as protodoc writes it, with the guid as the _id. What is
// otherwise, stands here.

// definitionLast puts the definition where a projection puts it, so that records that
// went to v2 and back are the same bytes.
func definitionLast(doc bson.Raw) (bson.Raw, error) {
	d, err := without(doc, fieldDefinition)
	if err != nil {
		return nil, err
	}
	return bson.Marshal(append(d, bson.E{Key: fieldDefinition, Value: doc.Lookup(fieldDefinition)}))
}

// fieldDefinitions is the field of an LRPDeployment whose entries are records.
const fieldDefinitions = "definitions"

// noDefinitions leaves out the field whose entries have records of their own.
func noDefinitions(doc bson.Raw) (bson.Raw, error) {
	d, err := without(doc, fieldDefinitions)
	if err != nil {
		return nil, err
	}
	return bson.Marshal(d)
}

func without(doc bson.Raw, field string) (bson.D, error) {
	elements, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	out := make(bson.D, 0, len(elements))
	for _, e := range elements {
		if e.Key() != field {
			out = append(out, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	return out, nil
}

// attachDefinitions puts the definitions of a process into its message.
func attachDefinitions(p *bbsv2.LRPDeployment, recs []record.Record) error {
	p.Definitions = make(map[string]*bbsv2.Definition, len(recs))
	for _, r := range recs {
		_, id, err := splitDefinitionKey(r.Key)
		if err != nil {
			return fmt.Errorf("%w: %w", apiversion.ErrStored, err)
		}
		doc, ok := r.Doc.Lookup(fieldDefinition).DocumentOK()
		if !ok {
			return fmt.Errorf("definition %s: %w: no %s", id, apiversion.ErrStored, fieldDefinition)
		}
		d := new(bbsv2.Definition)
		if err := protodoc.Unmarshal(doc, d); err != nil {
			return fmt.Errorf("definition %s: %w: %w", id, apiversion.ErrStored, err)
		}
		p.Definitions[id] = d
	}
	return nil
}

func detachDefinitions(p *bbsv2.LRPDeployment) *bbsv2.LRPDeployment {
	return &bbsv2.LRPDeployment{
		ProcessGuid: p.ProcessGuid, Domain: p.Domain, Instances: p.Instances, Routes: p.Routes, Annotation: p.Annotation,
		ActiveDefinitionId: p.ActiveDefinitionId, HealthyDefinitionId: p.HealthyDefinitionId, ModificationTag: p.ModificationTag,
	}
}

// newDefinition is the mutation that makes a definition's record.
func newDefinition(guid, id string, d *bbsv2.Definition) (record.Mutation, error) {
	doc, err := protodoc.Marshal(d)
	if err != nil {
		return record.Mutation{}, apiversion.RequestError(err)
	}
	key := definitionKey(guid, id)
	rec, err := bson.Marshal(bson.D{{Key: fieldID, Value: key}, {Key: fieldGUID, Value: guid}, {Key: fieldDefID, Value: id}, {Key: fieldDefinition, Value: doc}})
	return record.Mutation{Kind: KindDefinitions, Key: record.StringKey(key), Doc: rec, Absent: true}, err
}
