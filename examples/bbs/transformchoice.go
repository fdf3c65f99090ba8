package bbs

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// choice is what v2 stores of a process's definitions, besides the active one.
type choice struct {
	healthy    string
	hasHealthy bool
	former     bsoncore.Value
	gone       []string // keys of definitions that nothing names any longer
}

// firstChoice is the choice for a new process: no definition has run, and none was active before.
func firstChoice() choice {
	// The list is stored even if it is empty.
	return choice{hasHealthy: true, former: bsoncore.Value{Type: bsoncore.TypeArray, Data: bsoncore.BuildArray(nil)}}
}

// choiceOf returns v2's choice for a process whose v1 record names an active definition. If v1 has
// replaced the definition since, that is what an update of v2 does: the former one stays while an
// instance runs it or it is the healthy one.
func choiceOf(held process, id string, src transform.Group) (choice, error) {
	active, err := activeOf(held.deployment)
	if err != nil {
		return choice{}, err
	}
	var c choice
	// Absent and empty differ in their bytes, so an absent field stays absent.
	c.healthy, c.hasHealthy = held.deployment.Lookup(fieldHealthy).StringValueOK()
	v := held.deployment.Lookup(fieldFormer)
	c.former = bsoncore.Value{Type: bsoncore.Type(v.Type), Data: v.Value}
	if id == active {
		return c, nil
	}
	named := map[string]bool{id: true, c.healthy: true}
	for _, r := range instancesIn(src) {
		name, _ := r.Key.Name()
		if _, k, err := converge.SplitName(name); err == nil {
			named[k.Definition] = true
		}
	}
	var former []string
	for _, r := range held.definitions {
		_, other, err := splitDefinitionKey(r.Key)
		switch {
		case err != nil:
			return choice{}, err
		case !named[other]:
			c.gone = append(c.gone, definitionKey(held.guid, other))
		case other != id && other != active:
			former = append(former, other)
		}
	}
	slices.Sort(former)
	if named[active] {
		former = append(former, active) // the latest one is last
	}
	values := make([]bsoncore.Value, len(former))
	for i, other := range former {
		values[i] = bsoncore.Value{Type: bsoncore.TypeString, Data: bsoncore.AppendString(nil, other)}
	}
	c.former = bsoncore.Value{Type: bsoncore.TypeArray, Data: bsoncore.BuildArray(nil, values...)}
	return c, nil
}

func (c choice) drops(k record.Key) bool {
	name, _ := k.Name()
	return slices.Contains(c.gone, name)
}

// proves reports whether v1 shows an instance of the active definition running that v2 does not
// hold as running yet. v2 does not record one that ran before: then v2 has decided on it already.
func proves(head bson.Raw, id string, src, have transform.Group) bool {
	held := map[record.Key]bson.Raw{}
	for _, r := range instancesIn(have) {
		held[r.Key] = r.Doc
	}
	tag, _ := head.Lookup(fieldTag).DocumentOK()
	for _, r := range instancesIn(src) {
		name, _ := r.Key.Name()
		_, k, err := converge.SplitName(name)
		if err != nil || k.Definition != id {
			continue
		}
		in, _ := r.Doc.Lookup(fieldInstance).DocumentOK()
		before, _ := held[r.Key].Lookup(fieldInstance).DocumentOK()
		// One of a process that was deleted and recreated since proves nothing.
		if isRunning(in) && in.Lookup("epoch").Equal(tag.Lookup("epoch")) && !(isRunning(before) && before.Lookup(fieldPlacement).Equal(in.Lookup(fieldPlacement))) {
			return true
		}
	}
	return false
}

func isRunning(in bson.Raw) bool {
	state, _ := in.Lookup("state").StringValueOK()
	return strings.EqualFold(state, string(converge.Running))
}
