package typed

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// way is a pair in one direction.
type way struct {
	from, to Shape
	rules    []rule
	names    *Names // Up leads along this way
	kind     string // of the target
	// opaque and opaqueTarget are what only whole deals with.
	opaque, opaqueTarget []path
	whole                func(src, made bson.Raw) (before, after bson.Raw, err error)

	foreign []path // fields of the target alone, which a source record must not have
	runs    bool   // functions of the user are called
}

// rule is a Field in one direction. One that has no run keeps its value.
type rule struct {
	source, target []value
	run            func([]bson.RawValue) ([]bson.RawValue, error)
	def            any
	held, monotone bool
}

// index derives what a way needs at every record.
func (w *way) index() {
	w.runs = w.whole != nil || w.names != nil
	sources := slices.Clone(w.opaque)
	for _, r := range w.rules {
		w.runs = w.runs || r.run != nil
		for _, v := range r.source {
			sources = append(sources, v.path)
		}
	}
	for _, p := range w.targets() {
		if !slices.ContainsFunc(sources, func(s path) bool { return p.within(s) || s.within(p) }) {
			w.foreign = append(w.foreign, p)
		}
	}
}

func (w *way) targets() []path {
	ps := slices.Clone(w.opaqueTarget)
	for _, r := range w.rules {
		for _, v := range r.target {
			ps = append(ps, v.path)
		}
	}
	return ps
}

// needsHave: something comes from what the target holds, or is left out as it leaves it
// out.
func (w *way) needsHave() bool {
	return w.whole != nil || slices.ContainsFunc(w.rules, func(r rule) bool { return r.held && len(r.target) > 0 || len(r.target) > 1 })
}

func (w *way) transform(src, have transform.Group) ([]record.Record, error) {
	if len(src.Records) == 0 {
		return nil, nil
	}
	if len(src.Records) > 1 || len(have.Records) > 1 {
		return nil, fmt.Errorf("a pair takes one record, not %d over %d", len(src.Records), len(have.Records))
	}
	work := func() ([]record.Record, error) {
		rec := record.Record{Kind: w.kind, Key: src.Records[0].Key}
		if w.names != nil {
			var err error
			if rec.Key, err = rename(rec.Key, w.names.Up); err != nil {
				return nil, err
			}
		}
		var held bson.Raw
		if len(have.Records) == 1 {
			held = have.Records[0].Doc
		}
		var err error
		rec.Doc, err = w.document(src.Records[0].Doc, held, rec.Key)
		return []record.Record{rec}, err
	}
	if !w.runs {
		return work()
	}
	return transform.Isolated(work)
}
