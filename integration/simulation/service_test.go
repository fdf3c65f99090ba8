package simulation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/vrunner"
)

// The service of the simulation keeps items. In v1 an item is one record {n, parts}; in
// v2 it is a record {n} in items2 and parts records {n} in parts2, whose number changes
// with the item.

type oldItem struct {
	ID    string `bson:"_id"`
	N     int64  `bson:"n"`
	Parts int    `bson:"parts"`
}

type newItem struct {
	ID string `bson:"_id"`
	N  int64  `bson:"n"`
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// newRecords is an item as v2 has it.
func newRecords(name string, n int64, parts int) []record.Record {
	out := []record.Record{{Kind: "items2", Key: record.StringKey(name), Doc: must(bson.Marshal(newItem{name, n}))}}
	for i := range parts {
		id := fmt.Sprintf("%s/%d", name, i)
		out = append(out, record.Record{Kind: "parts2", Key: record.StringKey(id), Doc: must(bson.Marshal(newItem{id, n}))})
	}
	return out
}

func itemOf(r record.Record) (item oldItem) {
	if err := bson.Unmarshal(r.Doc, &item); err != nil {
		panic(err)
	}
	return item
}

// errPoison is what the transformer says of items with a negative n. At panicN it panics.
var errPoison = errors.New("n is negative")

const panicN = -13

func registry() *transform.Registry { return registryOf("1") }

// registryOf is the transformers of a revision. Those of the first are right; another one
// writes other fields, and a record more.
func registryOf(revision string) *transform.Registry {
	r := transform.NewRegistry("items")
	if err := r.Add("v1", "v2", itemSpec(revision)); err != nil {
		panic(err)
	}
	return r
}

func itemSpec(revision string) transform.Spec {
	partGroup := func(k record.Key) (string, error) {
		name, _ := k.Name()
		owner, _, ok := strings.Cut(name, "/")
		if !ok {
			return "", fmt.Errorf("part %q has no owner", name)
		}
		return string(record.StringKey(owner)), nil
	}
	return transform.Spec{
		Name: "items", Revision: revision,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "items1"}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: "items2"}},
			{KindSpec: record.KindSpec{Name: "parts2"}, GroupOf: partGroup, Select: func(group string) record.Selector {
				name, _ := record.Key(group).Name()
				return record.Selector{Kind: "parts2", Key: record.StringKey(name + "/"), Prefix: true}
			}},
		}},
		Up: func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			it := itemOf(src.Records[0])
			if it.N == panicN {
				panic("thirteen")
			}
			if it.N < 0 {
				return nil, errPoison
			}
			if revision != "1" {
				return newRecords(it.ID, it.N+1_000_000, it.Parts+1), nil
			}
			return newRecords(it.ID, it.N, it.Parts), nil
		},
		Down: func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			it := itemOf(src.Records[0])
			it.Parts = len(src.Records) - 1
			if revision != "1" {
				it.N, it.Parts = it.N-1_000_000, it.Parts-1
			}
			return []record.Record{{Kind: "items1", Key: record.StringKey(it.ID), Doc: must(bson.Marshal(it))}}, nil
		},
	}
}

// stack serves PUT, GET and DELETE of /items/NAME?n=N&parts=P on one version's records.
func stack(version string, views map[string]*vrunner.View) vrunner.Stack {
	h := func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/items/")
		w.Header().Set("Version", version)
		var body any
		var err error
		switch r.Method {
		case http.MethodGet:
			body, err = get(r, version, views[version], name)
		case http.MethodPut:
			n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
			parts, _ := strconv.Atoi(r.URL.Query().Get("parts"))
			err = put(r, version, views[version], name, n, parts)
		case http.MethodDelete:
			err = remove(r, version, views[version], name)
		}
		switch {
		case err == nil:
			_ = json.NewEncoder(w).Encode(body)
		case errors.Is(err, record.ErrNotFound):
			http.Error(w, err.Error(), http.StatusNotFound)
		case errors.Is(err, record.ErrUnknown):
			http.Error(w, err.Error(), http.StatusGatewayTimeout)
		default:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
	return vrunner.Stack{Handler: http.HandlerFunc(h), Write: func(r *http.Request) bool { return r.Method != http.MethodGet }}
}

func get(r *http.Request, version string, v *vrunner.View, name string) (oldItem, error) {
	if version == "v1" {
		rec, err := v.Get(r.Context(), "items1", name)
		if err != nil {
			return oldItem{}, err
		}
		return itemOf(rec), nil
	}
	rec, err := v.Get(r.Context(), "items2", name)
	if err != nil {
		return oldItem{}, err
	}
	parts, err := v.List(r.Context(), "parts2", name+"/", "", 100)
	if err != nil {
		return oldItem{}, err
	}
	it := itemOf(rec)
	it.Parts = len(parts)
	return it, nil
}

func put(r *http.Request, version string, v *vrunner.View, name string, n int64, parts int) error {
	if version == "v1" {
		doc := must(bson.Marshal(oldItem{name, n, parts}))
		return v.Write(r.Context(), []record.Mutation{{Kind: "items1", Key: record.StringKey(name), Doc: doc}})
	}
	var ms []record.Mutation
	for _, rec := range newRecords(name, n, parts) {
		ms = append(ms, record.Mutation{Kind: rec.Kind, Key: rec.Key, Doc: rec.Doc})
	}
	old, err := v.List(r.Context(), "parts2", name+"/", "", 100)
	if err != nil {
		return err
	}
	for _, o := range old[min(parts, len(old)):] {
		ms = append(ms, record.Mutation{Kind: "parts2", Key: o.Key})
	}
	return v.Write(r.Context(), ms)
}

func remove(r *http.Request, version string, v *vrunner.View, name string) error {
	if version == "v1" {
		return v.Write(r.Context(), []record.Mutation{{Kind: "items1", Key: record.StringKey(name)}})
	}
	ms := []record.Mutation{{Kind: "items2", Key: record.StringKey(name)}}
	old, err := v.List(r.Context(), "parts2", name+"/", "", 100)
	if err != nil {
		return err
	}
	for _, o := range old {
		ms = append(ms, record.Mutation{Kind: "parts2", Key: o.Key})
	}
	return v.Write(r.Context(), ms)
}
