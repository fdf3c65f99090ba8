package typed

import (
	"cmp"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Pair is a transformer of single records: each of the old version is one of the new
// version. Name, both kinds and whatever the types differ in are required.
type Pair[Old, New any] struct {
	Name             string // unique in its registry
	Revision         string // the author changes it when a function's result changes
	OldKind, NewKind record.KindSpec
	Fields           []Field
	// Names is how the records are named, if they change their names.
	Names *Names
	// Whole is for what cannot be declared field by field.
	Whole *Whole[Old, New]
	// OneWay declares that Whole does not give back what it was given. Otherwise each of its
	// results is taken back, as those of all other functions are, and one that does not come
	// back the same is an error of its record.
	OneWay bool
	// OldCodec and NewCodec are how the types lie in documents; BSON by default.
	OldCodec Codec[Old]
	NewCodec Codec[New]
}

// Names changes the names of records, all of which are strings. A name that cannot be
// changed is an error. Up and Down are each other's inverse.
type Names struct {
	Up, Down func(name string) (string, error)
	// UpParent and DownParent do the same for the beginnings of names that list requests
	// ask for. Without them such requests cannot be expressed in the other version.
	UpParent, DownParent func(parent string) (string, error)
}

// Whole computes fields from the whole record, which is decoded for it.
type Whole[Old, New any] struct {
	// OldFields and NewFields are the dotted paths that only Up and Down deal with: Up sets
	// NewFields in new, which has all other fields, and those as the new version holds them
	// already. OldFields are not in it. Down does it the other way. What else they set is
	// ignored. Requests cannot filter or order by these fields in the other version.
	OldFields, NewFields []string
	Up                   func(old Old, new *New) error
	Down                 func(new New, old *Old) error
}

// Transformer is a compiled Pair.
type Transformer struct {
	Spec transform.Spec
	// Up expresses requests of the old version in terms of the new one, Down the other way.
	Up, Down transform.Mapping
}

// Compile checks a pair and makes its transformer. All that is wrong is reported at once.
func Compile[Old, New any](p Pair[Old, New]) (*Transformer, error) {
	if p.OldCodec == nil {
		p.OldCodec = BSON[Old]()
	}
	if p.NewCodec == nil {
		p.NewCodec = BSON[New]()
	}
	oldShape, errOld := p.OldCodec.Shape()
	newShape, errNew := p.NewCodec.Shape()
	if err := errors.Join(errOld, errNew); err != nil {
		return nil, fmt.Errorf("pair %s: %w", p.Name, err)
	}
	up := &way{from: oldShape, to: newShape, names: p.Names, kind: p.NewKind.Name}
	down := &way{from: newShape, to: oldShape, names: p.Names.inverse(), kind: p.OldKind.Name}
	for _, f := range p.Fields {
		up.rules = append(up.rules, rule{source: f.old, target: f.new, run: f.up, def: f.def, held: f.held, monotone: f.monotone})
		down.rules = append(down.rules, rule{source: f.new, target: f.old, run: f.down, def: f.def, held: f.held, monotone: f.monotone})
	}
	errs := []error{checkPair(p.Name, p.OldKind, p.NewKind, p.Names)}
	if w := p.Whole; w != nil {
		if w.Up == nil || w.Down == nil {
			errs = append(errs, errors.New("Whole needs both Up and Down"))
		}
		up.opaque, down.opaque = parsePaths(w.OldFields), parsePaths(w.NewFields)
		up.opaqueTarget, down.opaqueTarget = down.opaque, up.opaque
		up.whole = wholeUp(p.OldCodec, p.NewCodec, w.Up)
		down.whole = wholeUp(p.NewCodec, p.OldCodec, w.Down)
	}
	up.index()
	down.index()
	errs = append(errs, up.check(p.OldKind.Name, p.NewKind.Name), down.check(p.NewKind.Name, p.OldKind.Name))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("pair %s: %w", cmp.Or(p.Name, p.OldKind.Name), err)
	}
	t := &Transformer{Up: mapping{up}, Down: mapping{down}}
	t.Spec = transform.Spec{
		Name: p.Name, Revision: p.Revision,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: p.OldKind}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: p.NewKind}}},
		Up:  up.transform, Down: down.transform,
		UpNeedsHave: up.needsHave(), DownNeedsHave: down.needsHave(),
		// The functions of fields are tried by themselves.
		Reversal: reversal(p.OneWay, p.Whole != nil),
	}
	if p.Names != nil {
		t.Spec.New = p.Names.side(p.NewKind)
	}
	return t, nil
}

func checkPair(name string, oldKind, newKind record.KindSpec, names *Names) error {
	switch {
	case name == "":
		return errors.New("it has no name")
	case oldKind.Name == "" || newKind.Name == "":
		return errors.New("OldKind and NewKind need names")
	case names != nil && (names.Up == nil || names.Down == nil):
		return errors.New("Names needs both Up and Down")
	default:
		return nil
	}
}

func parsePaths(dotted []string) []path {
	out := make([]path, len(dotted))
	for i, d := range dotted {
		out[i] = parsePath(d)
	}
	return out
}

// inverse is how names change on the way down.
func (n *Names) inverse() *Names {
	if n == nil {
		return nil
	}
	return &Names{Up: n.Down, Down: n.Up, UpParent: n.DownParent, DownParent: n.UpParent}
}

// side groups the new version's records under the keys of the old one.
func (n *Names) side(kind record.KindSpec) transform.Side {
	keyOf := func(group string) record.Key {
		k, err := rename(record.Key(group), n.Up)
		if err != nil {
			return record.Key(group) // no record has such a name: it selects nothing
		}
		return k
	}
	return transform.Side{
		Anchor: func(group string) (string, record.Key) { return kind.Name, keyOf(group) },
		Kinds: []transform.GroupedKind{{
			KindSpec: kind, Single: true,
			GroupOf: func(k record.Key) (string, error) {
				old, err := rename(k, n.Down)
				return string(old), err
			},
			Select: func(group string) record.Selector {
				return record.Selector{Kind: kind.Name, Key: keyOf(group)}
			},
		}},
	}
}

func rename(k record.Key, f func(string) (string, error)) (record.Key, error) {
	name, ok := k.Name()
	if !ok {
		return "", fmt.Errorf("the key %s is not a string", k)
	}
	out, err := f(name)
	if err != nil {
		return "", fmt.Errorf("name %s: %w", name, err)
	}
	return record.StringKey(out), nil
}

// wholeUp makes the part of a transformation that sees whole records: it returns what the
// target's type is encoded as, before and after f.
func wholeUp[From, To any](from Codec[From], to Codec[To], f func(From, *To) error) func(src, made bson.Raw) (before, after bson.Raw, err error) {
	return func(src, made bson.Raw) (before, after bson.Raw, err error) {
		a, err := from.Decode(src)
		if err != nil {
			return nil, nil, err
		}
		b, err := to.Decode(made)
		if err != nil {
			return nil, nil, err
		}
		if before, err = to.Encode(b); err != nil {
			return nil, nil, err
		}
		if err = f(a, &b); err != nil {
			return nil, nil, err
		}
		after, err = to.Encode(b)
		return before, after, err
	}
}
