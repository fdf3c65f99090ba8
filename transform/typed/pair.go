package typed

import (
	"cmp"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Pair is a transformer of single records: one record of the old version becomes one record of the
// new version. Name and both kinds are required, and so is a Field for each difference between the
// types.
type Pair[Old, New any] struct {
	Name             string // unique in its registry
	Revision         string // the author changes it when a function's result changes
	OldKind, NewKind record.KindSpec
	Fields           []Field
	// Names changes the names of the records. Nil leaves them as they are.
	Names *Names
	// Whole computes fields that cannot be declared one by one.
	Whole *Whole[Old, New]
	// OneWay declares that Whole does not restore its input. Otherwise each of its results is
	// converted back at once, and a result that differs is an error of its record. The functions of
	// Fields are always checked like that.
	OneWay bool
	// OldCodec and NewCodec define the layout of the types in documents. Nil means BSON.
	OldCodec Codec[Old]
	NewCodec Codec[New]
}

// Names changes the names of records. All keys must be strings. Up and Down must be inverse to each
// other, and return an error for a name that the other version cannot have.
type Names struct {
	Up, Down func(name string) (string, error)
	// UpParent and DownParent change the parent in a list request, which is the first part of the
	// names. Without them such a request is refused in the other version.
	UpParent, DownParent func(parent string) (string, error)
}

// Whole computes fields from the whole record, which it decodes for this.
type Whole[Old, New any] struct {
	// OldFields and NewFields are the dotted paths that only Up and Down write. Up gets new with all
	// other fields already set and with NewFields as the new version holds them, but without
	// OldFields. It sets NewFields; all other changes are ignored. Down does the same in the other
	// direction. In the other version, requests cannot filter or order by these fields.
	OldFields, NewFields []string
	Up                   func(old Old, new *New) error
	Down                 func(new New, old *Old) error
}

// Transformer is a compiled Pair. It is safe for concurrent use if the functions of the pair are.
type Transformer struct {
	Spec transform.Spec
	// Up translates requests of the old version to the new one. Down does the reverse.
	Up, Down transform.Mapping
}

// Compile checks a pair and returns its transformer. The error lists all faults that it finds in
// the fields of both types.
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
	// Each field is a rule in both directions.
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
	// Each direction checks the fields of its own source type, so both are needed.
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
		// Functions of fields convert each value back themselves, so only Whole needs the check.
		Reversal: reversal(p.OneWay, p.Whole != nil),
	}
	// Records that change their names need a function from the new name to the group, which is the
	// old key.
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

// inverse returns the names for the other direction.
func (n *Names) inverse() *Names {
	if n == nil {
		return nil
	}
	return &Names{Up: n.Down, Down: n.Up, UpParent: n.DownParent, DownParent: n.UpParent}
}

// side groups the records of the new version by their old keys.
func (n *Names) side(kind record.KindSpec) transform.Side {
	keyOf := func(group string) record.Key {
		k, err := rename(record.Key(group), n.Up)
		if err != nil {
			return record.Key(group) // no record of the new version has this name, so it selects nothing
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

// wholeUp makes a function that calls f on decoded records. It returns the encoded target before
// and after f, so that the caller can find the changed fields.
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
		// Encode twice with one codec: a field that the codec drops or widens must not count as
		// changed.
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
