package simulation_test

import (
	"errors"
	"fmt"
	"strings"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/typed"
)

// The services of these simulations have groups that follow from names, one kind of
// transformer each, and the things of content_service_test.go as old records.
const (
	rekeyLens = `
lens: 1
kinds: {from: keys1, to: keys2}
key: {from: "projects/{p}/secrets/{s}", to: "projects/{p}/regions/{r}/secrets/{s}", with: {r: us-west2}}
operations:
  - rename: {from: n, to: count}
`
	fanOutLens = `
lens: 1
kinds: {from: lists1, to: lists2}
key: {from: "teams/{t}/lists/{l}", to: "lists/{l}/of/{t}"}
operations:
  - rename: {from: in, to: team}
  - compute: {from: [out], to: [items], up: {items: 'out.map(x, {"label": x})'}, down: {out: 'items.map(x, x.label)'}}
  - fanOut: {field: items, as: list, kind: items2, key: "{_key}/{id}", id: label, order: position, parent: list}
`
	gatherLens = `
lens: 1
kinds: {from: books1, to: books2}
operations:
  - gather: {field: pages, as: list, kind: pages1, key: "{_key}/{id}", id: in, operations: [rename: {from: n, to: words}]}
  - gather: {field: cover, as: object, kind: covers1, key: "{_key}/cover"}
`
	fieldsLens = `
lens: 1
kinds: {from: users1, to: users2}
operations:
  - split: {field: in, to: [first, last], separator: " "}
  - convert: {field: n, from: long, to: string}
  - reference: {field: out, list: true, kind: keys1}
  - rename: {from: out, to: secrets}
  - add: {field: state, default: new}
`
)

// family is the kinds of a group: one record that has the group's name, and others whose
// names begin with it.
type family struct {
	parent   string
	name     string   // of the group with a number
	children []string // each as its kind, a slash, and how its name ends
	orphans  bool     // children without their parent cannot be transformed
	out      []string // what a parent's "out" is drawn from
}

var (
	secrets = []string{"projects/p0/secrets/s", "projects/p1/secrets/s", "projects/p2/secrets/s"}
	letters = []string{"a", "b", "c", "d", "e"}
	books   = family{parent: "books1", name: "b%d", children: []string{"pages1/x", "pages1/y", "pages1/z", "covers1/cover"}, orphans: true}

	families = []family{
		{parent: "keys1", name: "projects/p%d/secrets/s"},
		{parent: "lists1", name: "teams/t%d/lists/l", out: letters},
		books,
		{parent: "users1", name: "u%d", out: secrets},
		{parent: "pairs1", name: "p%d", out: letters},
		{parent: "jobs1", name: "j%d", children: []string{"notes1/x", "notes1/y"}, out: letters},
	}
)

// part is a record of a group: its parent, or a child.
func (f family) part(group, child string) (kind, id string) {
	if child == "" {
		return f.parent, group
	}
	kind, suffix, _ := strings.Cut(child, "/")
	return kind, group + "/" + suffix
}

// pairLens re-keys records whose fields also change.
func pairLens(from, to string) string {
	return fmt.Sprintf(`
lens: 1
kinds: {from: %s, to: %s}
key: {from: "p{n}", to: "pairs/{n}"}
operations:
  - split: {field: in, to: [first, last], separator: " "}
  - convert: {field: n, from: long, to: string}
  - rename: {from: n, to: count}
  - add: {field: state, default: new}
`, from, to)
}

type (
	oldJob struct {
		Job   *oldThing           `typed:"kind=jobs1"`
		Notes map[string]oldThing `typed:"kind=notes1,key={group}/{key}"`
	}
	newJob struct {
		Name  string              `typed:"name"`
		Job   *newThing           `typed:"kind=jobs2"`
		Steps map[string]newThing `typed:"kind=steps2,key={group}/{key}"`
	}
)

// jobSpec makes a step of each name in a job's "out", and one of each of its notes, which
// may be there before the job and after it.
func jobSpec() transform.Spec {
	return must(typed.Group[oldJob, newJob]{
		Name: "jobs", Revision: "1", OneWay: true,
		Up: func(old oldJob, _ newJob) (newJob, error) {
			out := newJob{Steps: map[string]newThing{}}
			if old.Job != nil {
				out.Job = &newThing{ID: old.Job.ID, Of: old.Job.In, From: []string{fmt.Sprint(old.Job.N)}}
				for i, o := range old.Job.Out {
					out.Steps["out-"+o] = newThing{ID: old.Job.ID + "/out-" + o, Of: fmt.Sprint(i)}
				}
			}
			for key, n := range old.Notes {
				out.Steps["note-"+key] = newThing{ID: strings.Replace(n.ID, "/", "/note-", 1), Of: n.In, From: []string{fmt.Sprint(n.N)}}
			}
			return out, nil
		},
		Down: func(newJob, oldJob) (oldJob, error) {
			return oldJob{}, errors.New("the simulation does not go back")
		},
	}.Spec())
}

// lensSpecs are the specs of lenses that may refer to each other.
func lensSpecs(texts ...string) (specs []transform.Spec) {
	set := lens.NewSet()
	var ls []*lens.Lens
	for _, text := range texts {
		l := must(lens.Parse("sim.yaml", []byte(text)))
		set.Add("", "", l)
		ls = append(ls, l)
	}
	if err := set.Link(); err != nil {
		panic(err)
	}
	for _, l := range ls {
		specs = append(specs, l.Spec("", "", lens.Managed()))
	}
	return specs
}

// kindsRegistry has all kinds of transformers side by side.
func kindsRegistry() *transform.Registry {
	r := transform.NewRegistry("kinds")
	specs := append(lensSpecs(rekeyLens, fanOutLens, gatherLens, fieldsLens, pairLens("pairs1", "pairs2")), jobSpec())
	if err := r.Add("v1", "v2", specs...); err != nil {
		panic(err)
	}
	return r
}

// chainRegistry has them as one of two steps, which are run as one.
func chainRegistry() *transform.Registry {
	r := transform.NewRegistry("kinds")
	plain := func(from, to, operations string) string {
		return fmt.Sprintf("lens: 1\nkinds: {from: %s, to: %s}\noperations: [%s]\n", from, to, operations)
	}
	first := append(lensSpecs(rekeyLens, fanOutLens, gatherLens, fieldsLens, plain("pairs1", "pairsM", "")), jobSpec())
	second := lensSpecs(
		plain("keys2", "keys3", "convert: {field: count, from: long, to: string}"),
		plain("lists2", "lists3", "add: {field: state, default: new}"),
		plain("items2", "items3", "rename: {from: label, to: title}"),
		plain("books2", "books3", "move: {from: cover, to: parts.cover}"),
		plain("users2", "users3", "join: {fields: [last, first], to: name, separator: \" \"}"),
		plain("jobs2", "jobs3", "rename: {from: of, to: team}"),
		plain("steps2", "steps3", "rename: {from: of, to: place}"),
		pairLens("pairsM", "pairs3"),
	)
	if err := errors.Join(r.Add("v1", "between", first...), r.Add("between", "v2", second...)); err != nil {
		panic(err)
	}
	return r
}
