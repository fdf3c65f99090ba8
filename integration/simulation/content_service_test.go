package simulation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/vrunner"
)

// The service of these simulations has groups that follow from content, of each shape:
//
//   - notes1 by their field "in" become one digests2 (N to 1);
//   - docs1 become docs2 and a parts2 under each part's own name (1 to N);
//   - users1 become users2 under the name in their field "in" (re-key);
//   - people1 and desks1 by their field "in" become teams2 and a parts-like seats2 under
//     each name in "out" (N to M).
//
// One old record holds all that any of them needs.
type oldThing struct {
	ID  string   `bson:"_id" json:"id"`
	In  string   `bson:"in,omitempty" json:"in"`
	Out []string `bson:"out,omitempty" json:"out"`
	N   int64    `bson:"n" json:"n"`
}

type newThing struct {
	ID   string   `bson:"_id"`
	Of   string   `bson:"of"`
	From []string `bson:"from,omitempty"`
}

func thingOf(r record.Record) (v oldThing) {
	if err := bson.Unmarshal(r.Doc, &v); err != nil {
		panic(err)
	}
	return v
}

func newThingAt(kind, name, of string, from []string) record.Record {
	return record.Record{Kind: kind, Key: record.StringKey(name), Doc: must(bson.Marshal(newThing{name, of, from}))}
}

// byIn groups by the field "in" of an old record, and byOf by the field "of" of a new one.
func byIn(r record.Record) (string, error) { return string(record.StringKey(thingOf(r).In)), nil }

func byOf(r record.Record) (string, error) {
	var v newThing
	if err := bson.Unmarshal(r.Doc, &v); err != nil {
		return "", err
	}
	return string(record.StringKey(v.Of)), nil
}

// gather makes one record of a group under the group's name, if into is not empty, and
// one under each name in the members' "out", if parts is not empty.
func gather(into, parts string) transform.Func {
	return func(src, _ transform.Group) ([]record.Record, error) {
		name, _ := record.Key(src.Name).Name()
		var from []string
		var out []record.Record
		for _, r := range src.Records {
			v := thingOf(r)
			if v.N < 0 {
				return nil, errPoison
			}
			from = append(from, fmt.Sprintf("%s/%s=%d", r.Kind, v.ID, v.N))
			for _, o := range v.Out {
				if parts != "" {
					out = append(out, newThingAt(parts, o, name, []string{v.ID}))
				}
			}
		}
		return append(out, newThingAt(into, name, name, from)), nil
	}
}

func kindBy(name string, content func(record.Record) (string, error)) transform.GroupedKind {
	return transform.GroupedKind{KindSpec: record.KindSpec{Name: name}, Content: content}
}

func contentRegistry() *transform.Registry {
	r := transform.NewRegistry("things")
	back := func(transform.Group, transform.Group) ([]record.Record, error) {
		return nil, errors.New("the simulation does not go back")
	}
	spec := func(name string, up transform.Func, old, fresh []transform.GroupedKind) transform.Spec {
		return transform.Spec{Name: name, Revision: "1", Up: up, Down: back, Reversal: transform.ReversalNone, Old: transform.Side{Kinds: old}, New: transform.Side{Kinds: fresh}}
	}
	type kinds = []transform.GroupedKind
	err := r.Add("v1", "v2",
		spec("merge", gather("digests2", ""), kinds{kindBy("notes1", byIn)}, kinds{kindBy("digests2", nil)}),
		spec("fan out", gather("docs2", "parts2"), kinds{kindBy("docs1", nil)}, kinds{kindBy("docs2", nil), kindBy("parts2", byOf)}),
		spec("rekey", gather("users2", ""), kinds{kindBy("users1", byIn)}, kinds{kindBy("users2", nil)}),
		spec("n to m", gather("teams2", "seats2"), kinds{kindBy("people1", byIn), kindBy("desks1", byIn)}, kinds{kindBy("teams2", nil), kindBy("seats2", byOf)}),
	)
	if err != nil {
		panic(err)
	}
	return r
}

// change is one record of a request; all of a request are written at once.
type change struct {
	Kind   string   `json:"kind"`
	Delete bool     `json:"delete"`
	Thing  oldThing `json:"thing"`
}

// contentStack takes lists of changes while v1 is active, and refuses them after it.
func contentStack(version string, views map[string]*vrunner.View) vrunner.Stack {
	h := func(w http.ResponseWriter, r *http.Request) {
		if version != "v1" {
			http.Error(w, "v1 is over", http.StatusGone)
			return
		}
		var cs []change
		if err := json.NewDecoder(r.Body).Decode(&cs); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var ms []record.Mutation
		for _, c := range cs {
			m := record.Mutation{Kind: c.Kind, Key: record.StringKey(c.Thing.ID)}
			if !c.Delete {
				m.Doc = must(bson.Marshal(c.Thing))
			}
			ms = append(ms, m)
		}
		if err := views["v1"].Write(r.Context(), ms); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
	return vrunner.Stack{Handler: http.HandlerFunc(h), Write: func(*http.Request) bool { return true }}
}

func bsonOf(v oldThing) (bson.Raw, error) { return bson.Marshal(v) }
