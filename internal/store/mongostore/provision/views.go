package provision

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// viewDepth bounds the nesting of the stages that are searched, as MongoDB bounds documents.
const viewDepth = 100

// Views returns the views of applications, each with the collections and views that it reads. Views
// of fences are left out. It costs one listCollections.
func (n *Collections) Views(ctx context.Context) ([]record.View, error) {
	found, err := n.List(ctx, bson.D{{Key: "type", Value: "view"}})
	if err != nil {
		return nil, err
	}
	var all []record.View
	for _, c := range found {
		// Fences and retired versions leave views of our own.
		if c.FenceMark() != "" || c.Retired() {
			continue // a fence's view belongs to no application
		}
		v := record.View{Name: c.Name, Reads: []string{c.ViewOn()}}
		if stages, ok := c.Options.Lookup("pipeline").ArrayOK(); ok {
			v.Reads = append(v.Reads, readsOf(bson.Raw(stages), 0)...)
		}
		slices.Sort(v.Reads)
		v.Reads = slices.Compact(v.Reads)
		all = append(all, v)
	}
	return all, nil
}

// readsOf returns the collections that $lookup, $graphLookup and $unionWith read, in stages at any
// depth.
func readsOf(doc bson.Raw, depth int) (names []string) {
	elements, err := doc.Elements()
	if err != nil || depth > viewDepth {
		return nil
	}
	for _, e := range elements {
		v := e.Value()
		// All three stages name the collection that they read.
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
		// A stage can contain pipelines of its own.
		if in, ok := v.DocumentOK(); ok {
			names = append(names, readsOf(in, depth+1)...)
		} else if in, ok := v.ArrayOK(); ok {
			names = append(names, readsOf(bson.Raw(in), depth+1)...)
		}
	}
	return names
}
