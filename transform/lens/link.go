package lens

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Set holds the lenses of one service between two versions. Link resolves references within them
// and within the lenses that they import.
type Set struct {
	kinds []setKind
	load  func(file string) ([]byte, error)
}

// setKind is one kind of a Set.
type setKind struct {
	from, to string
	lens     *Lens // nil for a discontinued kind
}

// NewSet returns an empty set.
func NewSet() *Set { return &Set{load: os.ReadFile} }

// Add adds the lens of a kind to the set. Empty names mean the lens's own kinds.
func (s *Set) Add(from, to string, l *Lens) {
	if from == "" {
		from = l.kinds.from
	}
	if to == "" {
		to = l.kinds.to
	}
	s.kinds = append(s.kinds, setKind{from, to, l})
}

// AddDiscontinued declares that a kind of the old version has no counterpart. No lens may refer to
// it.
func (s *Set) AddDiscontinued(kind string) { s.kinds = append(s.kinds, setKind{from: kind}) }

// Link resolves the references of all lenses in the set. Errors are *ParseError with the position
// of the reference or import. Link must run before a lens's Spec is used, and only one set may link
// a lens.
func (s *Set) Link() error {
	for _, k := range s.kinds {
		if k.lens == nil {
			continue
		}
		imported, err := s.importsOf(k.lens, []string{k.lens.file})
		if err != nil {
			return err
		}
		h := sha256.New()
		for _, o := range k.lens.references {
			// A reference without a service points to this set.
			among := s.kinds
			if o.to.service != "" {
				among = imported[o.to.service]
			}
			if err := o.to.link(k, among); err != nil {
				return err
			}
			// Lenses with references to different keys must have different digests.
			if o.to.keys != nil {
				fmt.Fprintf(h, "%s %s\n", o.field, o.to.keys.Digested())
			}
		}
		k.lens.linked = hex.EncodeToString(h.Sum(nil)[:8])
	}
	return nil
}

// link finds the target among the kinds of its service.
func (t *target) link(own setKind, among []setKind) error {
	bad := t.at.errorf
	if t.kind == selfKind {
		among = []setKind{{selfKind, selfKind, own.lens}}
	}
	where := "this service"
	if t.service != "" {
		where = "service " + t.service
	}
	var found *setKind
	var known []string
	for i, k := range among {
		known = append(known, k.from)
		// A kind with this name in the old version wins over a kind with this name in the new
		// version.
		if k.from == t.kind || k.to == t.kind && found == nil {
			found = &among[i]
		}
		if k.lens == nil {
			continue
		}
		// A child exists only on one side, so its key has no counterpart to follow.
		for _, f := range k.lens.fans {
			if f.Kind == t.kind {
				return bad("%s of %s is a kind of one version only, made by %s %s of %s: no record of the other version has its keys", t.kind, where, f.Verb(), f.Field, k.from)
			}
		}
	}
	switch {
	case found == nil:
		slices.Sort(known)
		return bad("%s has no kind %q; it has: %s", where, t.kind, strings.Join(known, ", "))
	case found.lens == nil:
		return bad("%s of %s is discontinued, so that no record of the new version can refer to it", t.kind, where)
	}
	t.keys, t.linked = found.lens.keys, true
	t.old, t.now = found.from, found.to
	return t.linkParts()
}

// linkParts checks with: each variable of the key that does not follow from the key alone needs a
// field next to the reference.
func (t *target) linkParts() error {
	k := t.keys
	for i := range t.with {
		p := &t.with[i]
		if k != nil {
			p.slot = slices.IndexFunc(k.Variables, func(v keymap.Variable) bool { return v.Name == p.name && v.Field != nil })
		}
		if k == nil || p.slot < 0 {
			return p.at.errorf("with: {%s} is no variable that the key of %s takes from a field", p.name, t.kind)
		}
		v := &k.Variables[p.slot]
		// The field holds the value in the type of the form that has the variable.
		own := v.To
		if slices.Contains(k.From.Variables, v.Name) {
			own = v.From
		}
		if p.typ == "" {
			p.typ = own
		}
		if !p.typ.Convertible(own) {
			return p.at.errorf("with: {%s} is of type %s in the key of %s, which has no reversible conversion to %s; possible: %s", p.name, own, t.kind, p.typ, scalar.JoinIDTypes(own.Targets()))
		}
	}
	// A data update looks up missing parts, so it does not need with.
	if k == nil || t.asks {
		return nil
	}
	for _, v := range k.Variables {
		if v.Field != nil && !slices.ContainsFunc(t.with, func(p targetPart) bool { return p.name == v.Name }) {
			return t.at.errorf("the key of %s in one version does not determine the key in the other (its lens takes {%s} from a field), so that a reference cannot follow it; if a field of this record holds the value in both versions, give with: {%s: {field: ...}}", t.kind, v.Name, v.Name)
		}
	}
	return nil
}

// importsOf reads the lenses that a lens imports, by service. path is the chain of files that leads
// to it.
func (s *Set) importsOf(l *Lens, path []string) (map[string][]setKind, error) {
	out := map[string][]setKind{}
	for service, imported := range l.imports {
		bad := imported.at.errorf
		for _, file := range imported.files {
			// Paths in a lens are relative to the lens, wherever the program runs.
			if !filepath.IsAbs(file) {
				file = filepath.Join(filepath.Dir(l.file), file)
			}
			// Without this check, a cycle of imports would never end.
			if slices.ContainsFunc(path, func(p string) bool { return filepath.Clean(p) == filepath.Clean(file) }) {
				return nil, bad("imports form a cycle: %s", strings.Join(append(path, file), " imports "))
			}
			text, err := s.load(file)
			if err != nil {
				return nil, bad("imports: lens of %s: %v", service, err)
			}
			// Skip its operations, which may need hooks of another program. Only kinds and keys
			// matter.
			other, err := Parse(file, text, func(p *lensParser) { p.header = true })
			if err != nil {
				return nil, err
			}
			if other.kinds.from == "" {
				return nil, bad("imports: %s does not name its kind; add kinds: {from: ..., to: ...} there", file)
			}
			// Read its imports too: an error in them must appear now, not at a later upgrade.
			if _, err := s.importsOf(other, append(slices.Clone(path), file)); err != nil {
				return nil, err
			}
			out[service] = append(out[service], setKind{other.kinds.from, other.kinds.to, other})
		}
	}
	return out, nil
}

// position is a place in a lens, for errors found after parsing.
type position struct {
	file         string
	line, column int
}

func (p *lensParser) position(n ast.Node) position {
	at := position{file: p.file}
	if t := first(n); t != nil && t.Position != nil {
		at.line, at.column = t.Position.Line, t.Position.Column
	}
	return at
}

func (p position) errorf(format string, args ...any) error {
	return &ParseError{File: p.file, Line: p.line, Column: p.column, Message: fmt.Sprintf(format, args...)}
}
