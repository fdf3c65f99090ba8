package typed

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Group is a transformer of several kinds. Old and New are structs whose fields are the
// kinds of each side:
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
// A pointer is the one record of the group, nil if there is none; its key is the group's
// name, or what key= makes of it. A map is any number of records, by what {key} stands for
// in their names. At least one field of each side is a pointer, by which the group is
// known where nothing is left of it. A string tagged "name" is set to the group's name. The
// option fixed marks a kind that an application reaches by its name.
//
// With group=FIELD in place of key=, records are grouped by what their document has in
// that field (a string, at a dotted path): the map is by their whole names then, and all
// groups of the transformer go by content.
//
// Up gets what the new version holds in have, empty if it holds nothing, and returns what
// it must hold: a record that is left out is deleted. Down is the same the other way.
// Fields of a document that its struct does not know stay as the target holds them; those
// of the source get there in a field of type Rest alone.
type Group[Old, New any] struct {
	Name     string // unique in its registry
	Revision string // the author changes it when a function's result changes
	Up       func(old Old, have New) (New, error)
	Down     func(new New, have Old) (Old, error)
	// OneWay declares that Down does not give back what Up was made of, and the other way
	// round. Otherwise each result is taken back, and one that does not come back the same is
	// an error of its group (transform.Reversal).
	OneWay bool
	// Codecs are those of kinds whose types are no structs with bson tags.
	Codecs map[string]KindCodec
	// CodecOf returns the codec of such a type, for kinds that are not in Codecs:
	// protodoc.Kinds for groups whose kinds are protobuf messages.
	CodecOf func(reflect.Type) (KindCodec, bool)
	// KeepRest is the field in which a group's one record (a pointer) takes along what the
	// types of the other version's records do not know of them, for each record by itself:
	// several records may become one, and each gets its own back. The handlers of that version
	// must leave the field alone, as those of fields that they do not know do. Empty: fields
	// that are not known stay where they are, and do not get to the other version.
	KeepRest string
	// Shapes are the indexes and options of kinds that have any.
	Shapes map[string]record.Shape
}

// Spec checks the group's declarations and makes its transformer.
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
	codecs := codecs{g.Codecs, g.CodecOf}
	old, errOld := parseSide(reflect.TypeFor[Old](), codecs)
	fresh, errNew := parseSide(reflect.TypeFor[New](), codecs)
	if err := errors.Join(errOld, errNew); err != nil {
		return none, err
	}
	for _, s := range []*side{&old, &fresh} {
		if err := s.keepRest(g.KeepRest); err != nil {
			return none, err
		}
	}
	var separators []string
	for _, m := range slices.Concat(old.members, fresh.members) {
		if m.many && m.key.middle != "" {
			separators = append(separators, m.key.middle)
		}
	}
	byContent := old.byContent() || fresh.byContent()
	if byContent {
		separators = nil
	}
	revision := g.Revision
	if g.KeepRest != "" {
		revision += ", rest in " + g.KeepRest // it changes what is stored, as a function would
	}
	return transform.Spec{
		Name: g.Name, Revision: revision,
		Old: old.declare(byContent, g.Shapes), New: fresh.declare(byContent, g.Shapes),
		Up: run(old, fresh, separators, g.Up), Down: run(fresh, old, separators, g.Down),
		UpNeedsHave: true, DownNeedsHave: true, Reversal: reversal(g.OneWay, true),
	}, nil
}

// reversal is how the results of functions of the user are known to come back.
func reversal(oneWay, tried bool) transform.Reversal {
	switch {
	case oneWay:
		return transform.ReversalNone
	case tried:
		return transform.ReversalTried
	default:
		return transform.ReversalOwn
	}
}

// checkName refuses the name of a group that could be taken for a part of another one.
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

// run makes a transformer of a function over whole groups.
func run[From, To any](from, to side, separators []string, f func(From, To) (To, error)) transform.Func {
	return func(src, have transform.Group) ([]record.Record, error) {
		if len(src.Records) == 0 {
			return nil, nil
		}
		if err := checkName(src.Name, separators); err != nil {
			return nil, err
		}
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

// side is a struct whose fields are kinds.
type side struct {
	members []member
	name    int    // the field that is set to the group's name, -1 if there is none
	rest    string // KeepRest of the group
}

// member is a field that is a kind.
type member struct {
	field   int
	kind    record.KindSpec
	many    bool
	key     pattern
	content path // of the field that names the group; nil for groups by name
	codec   KindCodec
	shape   Shape
	rest    bool // its type takes unknown fields along
}

// declare makes the side of the Spec. The first kind is the anchor's.
func (s side) declare(byContent bool, shapes map[string]record.Shape) transform.Side {
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
		k.Shape = shapes[m.kind.Name]
		switch {
		case m.content != nil:
			k.Content = m.groupByContent
		case m.many || m.key != groupAlone: // others are scanned whole
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
	v, err := r.Doc.LookupErr(m.content...)
	if err != nil {
		return "", fmt.Errorf("no field %s, which names the group", m.content)
	}
	name, ok := v.StringValueOK()
	if !ok || name == "" {
		return "", fmt.Errorf("field %s, which names the group, is no string, or empty", m.content)
	}
	return string(record.StringKey(name)), nil
}
