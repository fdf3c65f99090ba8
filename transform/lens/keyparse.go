package lens

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// key reads the key section. Its operations run before and after the others (keys.ops).
func (p *lensParser) key(n ast.Node) error {
	f, err := p.fields(n, "key", []string{"from", "to"}, []string{"with", "without"})
	if err != nil {
		return err
	}
	k := &keymap.Keys{}
	if k.From, err = p.keyForm(f["from"], "from"); err != nil {
		return err
	}
	if k.To, err = p.keyForm(f["to"], "to"); err != nil {
		return err
	}
	// Variables of one form only: they need a value from with or without.
	for _, side := range []struct {
		given        string
		has, lacks   *keymap.Form
		hasKey, lack string
		byContent    *bool
	}{
		{"without", k.From, k.To, "from", "to", &k.ByContentDown},
		{"with", k.To, k.From, "to", "from", &k.ByContent},
	} {
		values, err := p.keyValues(f[side.given], side.given)
		if err != nil {
			return err
		}
		for i, name := range side.has.Variables {
			if slices.Contains(side.lacks.Variables, name) {
				continue
			}
			v, given := values[name]
			if !given {
				return p.errorAt(f[side.hasKey], "only %s has {%s}; give its value for records of the other side under %q: a constant, or {field: ...} of the record there", side.hasKey, name, side.given)
			}
			// A whole name cannot be a constant or a field.
			if name == keymap.WholeKey {
				return p.errorAt(f[side.hasKey], "{%s} must be in both patterns or in neither", keymap.WholeKey)
			}
			delete(values, name)
			if err := p.oneSided(&v, side.has.TypeOf(i), side.hasKey == "from"); err != nil {
				return err
			}
			k.Variables = append(k.Variables, v.Variable)
			*side.byContent = *side.byContent || v.Field != nil
		}
		// Values left over belong to no variable.
		for name, v := range values {
			return p.errorAt(v.node, "%q is for variables that only %s has, and {%s} is not one", side.given, side.hasKey, name)
		}
	}
	// Variables of both forms carry their value.
	for i, name := range k.From.Variables {
		at := slices.Index(k.To.Variables, name)
		if at < 0 {
			continue
		}
		v := keymap.Variable{Name: name, From: k.From.TypeOf(i), To: k.To.TypeOf(at)}
		if !v.From.Convertible(v.To) {
			return p.errorAt(f["to"], "%s", noConversion(name, v.From, v.To))
		}
		k.Variables = append(k.Variables, v)
	}
	// Values are kept in arrays of this size.
	if len(k.Variables) > keymap.MaxVariables {
		return p.errorAt(n, "key has more than %d variables", keymap.MaxVariables)
	}
	// All variables are known now.
	k.FromAt, k.ToAt = k.Index(k.From), k.Index(k.To)
	if err := p.uniqueKeys(k, f); err != nil {
		return err
	}
	p.noteKeys(k, f)
	p.lens.keys = k
	return nil
}

func noConversion(name string, from, to scalar.IDType) string {
	if from == scalar.IDAny || to == scalar.IDAny {
		other := from
		if from == scalar.IDAny {
			other = to
		}
		return fmt.Sprintf("{%s} is of type any in one version and of type %s in the other, which the reverse could not distinguish: declare one type for both, or {%s:any} standing alone in both", name, other, name)
	}
	return fmt.Sprintf("{%s} is of type %s in the old version, which has no reversible conversion to %s; possible: %s", name, from, to, scalar.JoinIDTypes(from.Targets()))
}

// oneSided completes a variable that only one form has: typ is its type there, and inFrom reports
// that the form is from.
func (p *lensParser) oneSided(v *givenVariable, typ scalar.IDType, inFrom bool) error {
	held := cmp.Or(v.fieldType, typ)
	if v.From, v.To = held, typ; inFrom {
		v.From, v.To = typ, held
	}
	switch {
	case v.Field == nil && typ == scalar.IDAny:
		return p.errorAt(v.node, "{%s} is of type any, and a constant has one type: declare that", v.Name)
	case v.Field == nil:
		if err := typ.Check(v.Constant); err != nil {
			return p.errorAt(v.node, "the constant of {%s} %v", v.Name, err)
		}
	case !v.From.Convertible(v.To):
		return p.errorAt(v.node, "%s", noConversion(v.Name, v.From, v.To))
	}
	return nil
}

// uniqueKeys refuses a form without variables, because all records would have the same _id.
func (p *lensParser) uniqueKeys(k *keymap.Keys, f map[string]ast.Node) error {
	for _, side := range []struct{ name, other string }{{"from", "to"}, {"to", "from"}} {
		way := keymap.Way{Keys: k, Up: side.name == "to"}
		if !way.Varies() && (keymap.Way{Keys: k, Up: !way.Up}).Varies() {
			return p.errorAt(f[side.name], "%s has no variable that differs from record to record, so that all records would have the same key: put one of the variables of %s into it", side.name, side.other)
		}
	}
	return nil
}

// Note is a property that only the data can confirm, not the lens. Lines and columns count from 1.
type Note struct {
	Line, Column int
	Message      string
}

// Notes returns the properties that depend on the data: keys that may not be unique.
func (l *Lens) Notes() []Note { return slices.Clone(l.notes) }

// noteKeys adds a note for keys that lack a variable which distinguishes records on the other side.
func (p *lensParser) noteKeys(k *keymap.Keys, f map[string]ast.Node) {
	for _, up := range []bool{true, false} {
		way, name, version := keymap.Way{Keys: k, Up: up}, "to", "new"
		if !up {
			name, version = "from", "old"
		}
		src, _ := way.Source()
		dst, _ := way.Target()
		var lacks, has []string
		for _, v := range k.Variables {
			switch {
			// A constant distinguishes no records.
			case v.OneSided && v.Field == nil:
			case !slices.Contains(dst.Variables, v.Name):
				lacks = append(lacks, "{"+v.Name+"}")
			default:
				has = append(has, "{"+v.Name+"}")
			}
		}
		// Only variables of the source's keys distinguish its records.
		if len(lacks) == 0 || !slices.ContainsFunc(src.Variables, func(n string) bool { return slices.Contains(lacks, "{"+n+"}") }) {
			continue
		}
		at := p.position(f[name])
		p.lens.notes = append(p.lens.notes, Note{at.line, at.column, fmt.Sprintf("the keys of the %s version have no %s: records with the same %s would become one; only the data show whether such records exist",
			version, strings.Join(lacks, ", "), strings.Join(has, ", "))})
	}
}

// keyForm reads the form of one version's keys.
func (p *lensParser) keyForm(n ast.Node, key string) (*keymap.Form, error) {
	form, err := p.idForm(n, key)
	if err != nil {
		return nil, err
	}
	for _, v := range form.Variables {
		if !simpleVariable(v) {
			return nil, p.errorAt(n, "%s: {%s} is only for the key of fanOut and gather", key, v)
		}
	}
	return form, nil
}

// givenVariable is a variable as with or without declares it.
type givenVariable struct {
	keymap.Variable
	fieldType scalar.IDType // of the field; empty: the type in the form
	node      ast.Node
}

func (p *lensParser) keyValues(n ast.Node, key string) (map[string]givenVariable, error) {
	out := map[string]givenVariable{}
	if n == nil {
		return out, nil
	}
	entries, ok := mapping(n)
	if !ok {
		return nil, p.errorAt(n, "%s must be a mapping from variables to constants or {field: ...}", key)
	}
	for _, entry := range entries {
		name, err := scalarText(entry.Key)
		if err != nil {
			return nil, p.errorAt(entry.Key, "%s must be a mapping from variables to constants or {field: ...}", key)
		}
		if _, twice := out[name]; twice {
			return nil, p.errorAt(entry.Key, "%s has %q twice", key, name)
		}
		v := givenVariable{Variable: keymap.Variable{Name: name, OneSided: true}, node: entry.Key}
		// A plain value is a constant.
		if text, err := scalarText(entry.Value); err == nil {
			if err := keymap.CheckValue(name, text); err != nil {
				return nil, p.errorAt(entry.Value, "%s: %v", key, err)
			}
			v.Constant = text
			out[name] = v
			continue
		}
		f, err := p.fields(entry.Value, key+" "+name, []string{"field"}, []string{"keep", "type"})
		if err != nil {
			return nil, err
		}
		if v.Field, err = p.path(f["field"], "field"); err != nil {
			return nil, err
		}
		if v.KeepField, err = p.flag(f["keep"], "keep"); err != nil {
			return nil, err
		}
		if t := f["type"]; t != nil {
			text, _ := scalarText(t)
			if v.fieldType, err = scalar.IDTypeOf(text); err != nil {
				return nil, p.errorAt(t, "type: %v", err)
			}
		}
		out[name] = v
	}
	return out, nil
}

// flag reads true or false. An absent flag is false.
func (p *lensParser) flag(n ast.Node, key string) (bool, error) {
	if n == nil {
		return false, nil
	}
	b, ok := n.(*ast.BoolNode)
	if !ok {
		return false, p.errorAt(n, "%s is true or false", key)
	}
	return b.Value, nil
}

// simpleVariable reports whether a variable may be part of a kind's own key.
func simpleVariable(name string) bool { return !strings.Contains(name, ".") }

// WholeKey is the variable of a Pattern for a whole name, including slashes.
const WholeKey = keymap.WholeKey

// Pattern is the form of a kind's names: segments between slashes with at most one variable each,
// such as projects/{project}/secrets/{secret}. A variable matches one or more characters other than
// a slash. The variable {_key} matches any text. So a name matches in exactly one way or not at
// all, and two names never have the same values. A variable may have a type, such as {id:objectId}.
// It then matches only the texts of values of that type.
//
// A Pattern is safe for concurrent use.
type Pattern struct{ form *keymap.Pattern }

// ParsePattern parses a pattern. The error names the mistake.
func ParsePattern(text string) (*Pattern, error) { return patternOf(keymap.ParsePattern(text)) }

func patternOf(form *keymap.Pattern, err error) (*Pattern, error) {
	if form == nil {
		return nil, err
	}
	return &Pattern{form}, err
}

// String returns the pattern as written.
func (p *Pattern) String() string { return p.form.String() }

// Variables returns the names of the variables, in the order of the text. The caller owns the
// slice.
func (p *Pattern) Variables() []string { return p.form.Variables() }

// Match returns the values of a name's variables, in the order of Variables. It returns an error if
// the name does not match.
func (p *Pattern) Match(name string) ([]string, error) { return p.form.Match(name) }

// Name returns the name with the given values, in the order of Variables. It returns an error for a
// wrong number of values, and for a value that Match would not return.
func (p *Pattern) Name(values []string) (string, error) { return p.form.Name(values) }
