package sealed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
)

// Provision creates a collection. It refuses options and indexes that need encrypted fields. For a
// new collection, the fields of its indexes stay readable.
func (n *Namespace) Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	fields, err := n.sealer.readable(ctx, kind)
	if err != nil {
		return record.Token{}, err
	}
	if record.IsScratch(kind.Name) {
		n.sealer.try(kind.Name, fields)
	} else if len(fields) > 0 {
		info, err := n.Namespace.Describe(ctx, kind, name)
		if err == nil && !info.Exists {
			// Note the readable fields before the collection exists. A rotation that runs now would
			// otherwise encrypt its first records without them.
			err = n.sealer.Begin(ctx, []record.KindSpec{kind})
		} else if err == nil {
			err = n.shown(ctx, kind, info)
		}
		if err != nil {
			return record.Token{}, err
		}
	}
	return n.Namespace.Provision(ctx, kind, name)
}

// BuildIndexes builds indexes over fields that all records show. It refuses an index over other
// fields, because that index would be empty.
func (n *Namespace) BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	fields, err := n.sealer.readable(ctx, kind)
	if err != nil {
		return err
	}
	if record.IsScratch(kind.Name) {
		n.sealer.try(kind.Name, fields) // a scratch kind is empty
	} else if len(fields) > 0 {
		info, err := n.Namespace.Describe(ctx, kind, tok.Name)
		if err == nil && info.Exists && info.Token.ID == tok.ID {
			err = n.shown(ctx, kind, info)
		}
		if err != nil {
			return err
		}
	}
	return n.Namespace.BuildIndexes(ctx, tok, kind)
}

// trialAge is the time after which a trial is certainly over.
const trialAge = 24 * time.Hour

// trial holds the readable fields of a scratch kind's records.
type trial struct {
	fields []string
	made   time.Time
}

// try makes the records of a scratch kind show fields. Only this process writes such records, so
// the State need not list the fields.
func (s *Sealer) try(kind string, fields []string) {
	// Remove old trials, or the map would grow forever.
	s.trials.Range(func(kind, t any) bool {
		if time.Since(t.(trial).made) > trialAge { //nolint:forcetypeassert // trials holds no other type
			s.trials.Delete(kind)
		}
		return true
	})
	if len(fields) > 0 {
		s.trials.Store(kind, trial{fields, time.Now()})
	}
}

// shows returns the fields that stay readable in records of a kind.
func (s *Sealer) shows(st State, kind string) []string {
	if t, ok := s.trials.Load(kind); ok {
		return t.(trial).fields //nolint:forcetypeassert // trials holds no other type
	}
	return st.Clear[kind]
}

// shown refuses missing indexes over fields that the existing records do not show. In a namespace
// that has no records yet, Begin notes the fields before the first write.
func (n *Namespace) shown(ctx context.Context, kind record.KindSpec, info record.Info) error {
	st, err := n.sealer.look(ctx, 0)
	if err != nil || st.New || !st.encrypts() {
		return err
	}
	// Existing indexes were checked when they were built.
	there := map[string]bool{}
	for _, spec := range info.Shape.Indexes {
		there[record.IndexName(spec)] = true
	}
	missing := kind
	missing.Shape.Indexes = slices.DeleteFunc(slices.Clone(kind.Shape.Indexes), func(spec bson.Raw) bool { return there[record.IndexName(spec)] })
	fields, err := fieldsOf(missing)
	if err != nil {
		return err
	}
	for _, f := range fields {
		if !slices.Contains(st.Clear[kind.Name], f) {
			return &record.UnsupportedError{What: "index of kind " + kind.Name,
				Reason: fmt.Sprintf("the field %s is encrypted in existing records: declare the index with the kind in a new version, or turn encryption off, build it, and turn encryption on again", f)}
		}
	}
	return nil
}

// readable returns the fields that a kind's shape reads, if the namespace is encrypted or will be.
func (s *Sealer) readable(ctx context.Context, kind record.KindSpec) ([]string, error) {
	if kind.Fixed || kind.Shape.Options == nil && len(kind.Shape.Indexes) == 0 {
		return nil, nil
	}
	// Without an active key, the fields matter only if records are encrypted already.
	if s.keys().active == Off {
		if st, err := s.known(ctx); err != nil || !st.encrypts() {
			return nil, err
		}
	}
	return fieldsOf(kind)
}

// fieldsOf returns the top-level fields that stay readable for a kind's indexes. It refuses options
// and indexes that would need the whole record.
func fieldsOf(kind record.KindSpec) ([]string, error) {
	refuse := func(what, why string) error {
		return &record.UnsupportedError{What: what + " of kind " + kind.Name, Reason: why + ": remove it, or leave encryption off for this version"}
	}
	if _, err := kind.Shape.Options.LookupErr("validator"); err == nil {
		return nil, refuse("validator", "a database cannot check encrypted records")
	}
	var fields []string
	add := func(path string) {
		if first, _, _ := strings.Cut(path, "."); first != "_id" && !slices.Contains(fields, first) {
			fields = append(fields, first)
		}
	}
	for _, spec := range kind.Shape.Indexes {
		var index struct {
			Key     bson.D `bson:"key"`
			Partial bson.D `bson:"partialFilterExpression"`
			Weights bson.D `bson:"weights"` // of a text index, whose key has no field names
		}
		if err := rawdoc.Unmarshal(spec, &index); err != nil {
			return nil, fmt.Errorf("index of kind %s: %w", kind.Name, err)
		}
		for _, e := range slices.Concat(index.Key, index.Weights) {
			switch {
			case strings.HasPrefix(e.Key, "$") || strings.Contains(e.Key, "$**"):
				return nil, refuse("index "+record.IndexName(spec), "it covers all fields, which are encrypted")
			// These two stand for the fields in weights.
			case e.Key != "_fts" && e.Key != "_ftsx":
				add(e.Key)
			}
		}
		// The database evaluates the filter on stored documents, so these fields must be readable.
		addFilter(index.Partial, add)
	}
	slices.Sort(fields)
	return fields, nil
}

// addFilter calls add for each field in a filter.
func addFilter(filter bson.D, add func(string)) {
	for _, e := range filter {
		// An operator such as $and has further filters inside.
		if !strings.HasPrefix(e.Key, "$") {
			add(e.Key)
			continue
		}
		parts, _ := e.Value.(bson.A)
		for _, p := range parts {
			if d, ok := p.(bson.D); ok {
				addFilter(d, add)
			}
		}
	}
}
