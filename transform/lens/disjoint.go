package lens

import (
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// disjoint reports whether certainly no _id of a kind has both forms, which k maps to each other.
// If false, the version of an _id is not known from the _id alone.
func (f *idForm) disjoint(g *idForm, k *keys) bool {
	if f.document != g.document {
		return true
	}
	if len(f.parts) != len(g.parts) {
		return true
	}
	for i := range f.parts {
		p, q := &f.parts[i], &g.parts[i]
		if string(p.name) != string(q.name) || p.disjoint(q, k) {
			return true
		}
	}
	return false
}

// disjoint reports whether no value has both forms of a document's field or of a whole _id.
func (p *idPart) disjoint(q *idPart, k *keys) bool {
	switch {
	case p.pattern == nil && q.pattern == nil:
		// Compare as keys: the database treats equal numbers as one _id.
		a, errA := record.KeyOf(p.constant)
		b, errB := record.KeyOf(q.constant)
		return errA == nil && errB == nil && a != b
	case p.pattern == nil:
		var values [maxVariables]string
		return q.read(p.constant, scalar.ReadKey, values[:]) != nil
	case q.pattern == nil:
		return q.disjoint(p, k)
	case p.text() && q.text():
		return p.pattern.disjoint(q.pattern, k)
	case p.alone == scalar.IDAny || q.alone == scalar.IDAny:
		return false
	// A string never equals a value of another type.
	case p.text() != q.text():
		return true
	}
	return p.alone != q.alone && (!p.alone.IsNumber() || !q.alone.IsNumber())
}

// disjoint reports whether no text matches both patterns.
func (p *Pattern) disjoint(q *Pattern, k *keys) bool {
	n, m := len(p.segments), len(q.segments)
	switch {
	case p.whole < 0 && q.whole < 0 && n != m, p.whole < 0 && n < m, q.whole < 0 && m < n:
		return true // {_key} has any number of slashes, the other segments a fixed number
	}
	// Segments before the first {_key} are counted from the start, those after the last one from
	// the end.
	head, tail := min(n, m), 0
	for _, r := range []*Pattern{p, q} {
		if r.whole >= 0 {
			head, tail = min(head, r.whole), len(r.segments)-1-r.whole
		}
	}
	if p.whole >= 0 && q.whole >= 0 {
		tail = min(n-1-p.whole, m-1-q.whole)
	}
	for i := range head {
		if p.fixed(i, k).disjoint(q.fixed(i, k)) {
			return true
		}
	}
	for i := 1; i <= tail; i++ {
		if p.fixed(n-i, k).disjoint(q.fixed(m-i, k)) {
			return true
		}
	}
	return false
}

// fixed returns a segment, with its variable replaced if it is a constant.
func (p *Pattern) fixed(i int, k *keys) segment {
	s := p.segments[i]
	if s.variable < 0 {
		return s
	}
	at := slices.IndexFunc(k.variables, func(v keyVariable) bool { return v.name == p.variables[s.variable] })
	if at >= 0 && k.variables[at].oneSided && k.variables[at].field == nil {
		return segment{before: s.before + k.variables[at].constant + s.after, variable: -1}
	}
	return s
}

func (s segment) disjoint(t segment) bool {
	apart := func(a, b string, begins func(string, string) bool) bool { return !begins(a, b) && !begins(b, a) }
	switch {
	case s.variable < 0 && t.variable < 0:
		return s.before != t.before
	case s.variable < 0:
		// t is a copy. Its variable is the only one here, so its index becomes 0.
		t.variable = 0
		return !t.match(s.before, make([]string, 1), false)
	case t.variable < 0:
		return t.disjoint(s)
	}
	return apart(s.before, t.before, strings.HasPrefix) || apart(s.after, t.after, strings.HasSuffix)
}
