package typed

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Group is a transformer of several kinds. Old and New are structs whose fields are the kinds of
// each side:
//
//	type OldGroup struct {
//		Job *Job `typed:"kind=jobs"`
//	}
//	type NewGroup struct {
//		Name  string          `typed:"name"`
//		Task  *Task           `typed:"kind=tasks"`
//		Steps map[string]Step `typed:"kind=steps,key={group}/{key}"`
//	}
//
// A pointer field is the one record of the group in that kind, or nil if there is none. Its key is
// the name of the group, or follows from the pattern in key=. A map field holds any number of
// records, by the part of their names that {key} stands for. Each side needs at least one pointer
// field, unless groups go by content. The guard of its record stands for the whole group, even when
// no record is left. A string field with the tag "name" receives the name of the group. The option
// fixed marks a fixed-name kind: an existing application uses the collection directly, under that
// name.
//
// With group=FIELD instead of key=, records are grouped by the content of the field at that dotted
// path, which must be a string. The map is then by whole record names, and all groups of the
// transformer go by content.
//
// Up gets the old version's records, and in have the records that the new version holds. have is
// empty if there are none. Up returns the records that the new version must hold, and the engine
// deletes the others. Down does the same in the other direction. Fields of a document that its
// struct does not know stay as the target holds them. Unknown fields of the source reach the target
// only in a field of type Rest, or with KeepRest.
type Group[Old, New any] struct {
	Name     string // unique in its registry
	Revision string // the author changes it when a function's result changes
	Up       func(old Old, have New) (New, error)
	Down     func(new New, have Old) (Old, error)
	// OneWay declares that Down does not restore the input of Up, or Up the input of Down. Otherwise
	// each result is converted back at once, and a result that differs is an error of its group
	// (transform.Reversal).
	OneWay bool
	// CodecOf returns the codec of a type that is no struct with bson tags, and nil for such a
	// struct. For protobuf messages use protodoc.Kinds. Nil means that all types are structs.
	CodecOf func(reflect.Type) Codec
	// KeepRest is the name of a field that carries unknown fields to the other version. The one
	// record of a group (a pointer field) holds in it the fields that the other version's types do
	// not know, for each record separately. So several records may become one, and each gets its own
	// fields back. Handlers must leave this field alone, like any field that they do not know. If
	// KeepRest is empty, unknown fields stay where they are and do not reach the other version.
	KeepRest string
}

// Spec checks the declarations of the group and returns its transformer. The error lists the faults
// of both structs together.
func (g Group[Old, New]) Spec() (transform.Spec, error) {
	out, err := g.spec()
	if err != nil {
		return out, fmt.Errorf("group %s: %w", g.Name, err)
	}
	return out, nil
}

func (g Group[Old, New]) spec() (transform.Spec, error) {
	none := transform.Spec{}
	switch {
	case g.Name == "":
		return none, errors.New("it has no name")
	case g.Up == nil || g.Down == nil:
		return none, errors.New("it needs both Up and Down")
	}
	old, errOld := parseSide(reflect.TypeFor[Old](), g.CodecOf)
	fresh, errNew := parseSide(reflect.TypeFor[New](), g.CodecOf)
	if err := errors.Join(errOld, errNew); err != nil {
		return none, err
	}
	for _, s := range []*side{&old, &fresh} {
		if err := s.keepRest(g.KeepRest); err != nil {
			return none, err
		}
	}
	// Group names with a separator of either side are refused: both sides use the same names.
	var separators []string
	for _, m := range slices.Concat(old.members, fresh.members) {
		if m.many && m.key.middle != "" {
			separators = append(separators, m.key.middle)
		}
	}
	// If one side groups by content, so does the other, because a transformer has one kind of group.
	byContent := old.byContent() || fresh.byContent()
	// Groups by content are found through lineage, not through keys, so their names are free.
	if byContent {
		separators = nil
	}
	revision := g.Revision
	if g.KeepRest != "" {
		revision += ", rest in " + g.KeepRest // it changes the stored records
	}
	// The engine converts each result back, unless the author declares that this cannot work.
	reversal := transform.ReversalTried
	if g.OneWay {
		reversal = transform.ReversalNone
	}
	return transform.Spec{
		Name: g.Name, Revision: revision,
		Old: old.declare(byContent), New: fresh.declare(byContent),
		Up: run(old, fresh, separators, g.Up), Down: run(fresh, old, separators, g.Down),
		UpNeedsHave: true, DownNeedsHave: true, Reversal: reversal,
	}, nil
}

// checkName refuses a group name that contains a separator: its records could be taken for parts of
// another group.
func checkName(group string, separators []string) error {
	name, ok := record.Key(group).Name()
	if !ok {
		return fmt.Errorf("the key %s is not a string", record.Key(group))
	}
	for _, s := range separators {
		if strings.Contains(name, s) {
			return fmt.Errorf("the name %q holds %q, which separates it from the names of its parts", name, s)
		}
	}
	return nil
}

// run makes a transformer from a function over whole groups.
func run[From, To any](from, to side, separators []string, f func(From, To) (To, error)) transform.Func {
	return func(src, have transform.Group) ([]record.Record, error) {
		// An empty source group deletes the target's records; the user's function has no part in it.
		if len(src.Records) == 0 {
			return nil, nil
		}
		if err := checkName(src.Name, separators); err != nil {
			return nil, err
		}
		// A panic in the user's function must not end the process.
		return transform.Isolated(func() ([]record.Record, error) {
			var a From
			var b To
			if err := from.decode(src, reflect.ValueOf(&a).Elem()); err != nil {
				return nil, err
			}
			if err := to.decode(have, reflect.ValueOf(&b).Elem()); err != nil {
				return nil, fmt.Errorf("complement: %w", err)
			}
			out, err := f(a, b)
			if err != nil {
				return nil, err
			}
			recs, err := to.encode(src.Name, reflect.ValueOf(out), have)
			if err != nil || to.rest == "" {
				return recs, err
			}
			return carry(from, to, src, recs)
		})
	}
}

// side is a parsed struct whose fields are kinds.
type side struct {
	members []member
	name    int    // index of the field for the group's name, or -1
	rest    string // the group's KeepRest
}

// member is one field of a side: a kind.
type member struct {
	field   int
	kind    record.KindSpec
	many    bool
	key     pattern
	content path // path of the field that names the group; nil for groups by name
	codec   kindCodec
	fields  []string // names of the fields that the type knows
	rest    bool     // the type has a field of type Rest
}

// declare returns the transform.Side. Kinds with one record come first, because the first kind is
// the anchor.
func (s side) declare(byContent bool) transform.Side {
	var out transform.Side
	members := slices.Clone(s.members)
	slices.SortStableFunc(members, func(a, b member) int {
		switch {
		case a.many == b.many:
			return 0
		case a.many:
			return 1
		default:
			return -1
		}
	})
	for _, m := range members {
		k := transform.GroupedKind{KindSpec: m.kind}
		switch {
		case m.content != nil:
			k.Content = m.groupByContent
		case m.many || m.key != groupAlone: // for others the key is the group
			k.Single = !m.many
			k.GroupOf = func(key record.Key) (string, error) {
				group, _, err := m.key.match(key)
				return string(record.StringKey(group)), err
			}
			k.Select = func(group string) record.Selector {
				name, _ := record.Key(group).Name()
				return record.Selector{Kind: m.kind.Name, Key: record.StringKey(m.key.begin(name)), Prefix: m.many}
			}
		}
		out.Kinds = append(out.Kinds, k)
	}
	// For groups by content the lineage entries are the anchors.
	if anchor := members[0]; !byContent {
		out.Anchor = func(group string) (string, record.Key) {
			name, _ := record.Key(group).Name()
			return anchor.kind.Name, record.StringKey(anchor.key.begin(name))
		}
	}
	return out
}

func (s side) byContent() bool {
	return slices.ContainsFunc(s.members, func(m member) bool { return m.content != nil })
}

func (m member) groupByContent(r record.Record) (string, error) {
	v := rawdoc.Lookup(r.Doc, m.content...)
	if v.Type == 0 {
		return "", fmt.Errorf("no field %s, which names the group", m.content)
	}
	name, ok := v.StringValueOK()
	if !ok || name == "" {
		return "", fmt.Errorf("field %s, which names the group, is no string, or empty", m.content)
	}
	return string(record.StringKey(name)), nil
}
