package typed

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// way is a pair in one direction: from the source's version to the target's.
type way struct {
	from, to Shape
	rules    []rule
	names    *Names // its Up converts a source name to a target name
	kind     string // of the target
	// opaque and opaqueTarget are the source and target fields that only whole handles.
	opaque, opaqueTarget []path
	whole                func(src, made bson.Raw) (before, after bson.Raw, err error)

	foreign []path // fields that only the target has; an error in a source record
	runs    bool   // the way calls user functions
}

// rule is a Field in one direction. Without run the value stays as it is.
type rule struct {
	source, target []value
	run            func([]bson.RawValue) ([]bson.RawValue, error)
	def            any
	held, monotone bool
}

// index computes foreign and runs once, because every record needs them.
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
		// A path that another rule reads, as in a swap, may be in a source record.
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

// needsHave reports whether the result depends on the record that the target holds. A field of the
// target alone comes from there, and so does the absence of one of several fields.
func (w *way) needsHave() bool {
	return w.whole != nil || slices.ContainsFunc(w.rules, func(r rule) bool { return r.held && len(r.target) > 0 || len(r.target) > 1 })
}

func (w *way) transform(src, have transform.Group) ([]record.Record, error) {
	// The source record is deleted, so the target must hold none.
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
	// Only user functions can panic. Without them the extra goroutine would cost time for nothing.
	if !w.runs {
		return work()
	}
	return transform.Isolated(work)
}
