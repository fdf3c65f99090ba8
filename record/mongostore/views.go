package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// viewDepth bounds how deep the stages of a view are looked into, as MongoDB bounds documents.
const viewDepth = 100

// Views are the views of applications, each with the collections and views that it reads. It is one
// listCollections.
func (n *Namespace) Views(ctx context.Context) ([]record.View, error) {
	found, err := n.list(ctx, bson.D{{Key: "type", Value: "view"}})
	if err != nil {
		return nil, err
	}
	var all []record.View
	for _, c := range found {
		if c.fenceMark() != "" || c.retired() {
			continue // a fence is no application's
		}
		v := record.View{Name: c.Name, Reads: []string{c.viewOn()}}
		if stages, ok := c.Options.Lookup("pipeline").ArrayOK(); ok {
			v.Reads = append(v.Reads, readsOf(bson.Raw(stages), 0)...)
		}
		slices.Sort(v.Reads)
		v.Reads = slices.Compact(v.Reads)
		all = append(all, v)
	}
	return all, nil
}

// readsOf are the collections that $lookup, $graphLookup and $unionWith read, in stages at any depth.
func readsOf(doc bson.Raw, depth int) (names []string) {
	elements, err := doc.Elements()
	if err != nil || depth > viewDepth {
		return nil
	}
	for _, e := range elements {
		v := e.Value()
		switch e.Key() {
		case "$lookup", "$graphLookup", "$unionWith":
			if text, ok := v.StringValueOK(); ok {
				names = append(names, text)
			}
			if in, ok := v.DocumentOK(); ok {
				for _, field := range []string{"from", "coll"} {
					if text, ok := in.Lookup(field).StringValueOK(); ok {
						names = append(names, text)
					}
				}
			}
		}
		if in, ok := v.DocumentOK(); ok {
			names = append(names, readsOf(in, depth+1)...)
		} else if in, ok := v.ArrayOK(); ok {
			names = append(names, readsOf(bson.Raw(in), depth+1)...)
		}
	}
	return names
}
