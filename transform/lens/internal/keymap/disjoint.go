package keymap

import (
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Disjoint reports whether certainly no _id has both forms. f and g are the forms of k. If Disjoint
// returns false, an _id alone may not show its version.
func (f *Form) Disjoint(g *Form, k *Keys) bool {
	if f.Document != g.Document {
		return true
	}
	if len(f.Parts) != len(g.Parts) {
		return true
	}
	for i := range f.Parts {
		p, q := &f.Parts[i], &g.Parts[i]
		if string(p.name) != string(q.name) || p.disjoint(q, k) {
			return true
		}
	}
	return false
}

// disjoint reports whether no value has both forms of a document's field or of a whole _id.
func (p *idPart) disjoint(q *idPart, k *Keys) bool {
	switch {
	case p.Pattern == nil && q.Pattern == nil:
		// Compare as keys: the database treats equal numbers as one _id.
		a, errA := record.KeyOf(p.constant)
		b, errB := record.KeyOf(q.constant)
		return errA == nil && errB == nil && a != b
	case p.Pattern == nil:
		var values [MaxVariables]string
		return q.read(p.constant, scalar.ReadKey, values[:]) != nil
	case q.Pattern == nil:
		return q.disjoint(p, k)
	case p.text() && q.text():
		return p.Pattern.disjoint(q.Pattern, k)
	case p.Alone == scalar.IDAny || q.Alone == scalar.IDAny:
		return false
	// A string never equals a value of another type.
	case p.text() != q.text():
		return true
	}
	return p.Alone != q.Alone && (!p.Alone.IsNumber() || !q.Alone.IsNumber())
}

// disjoint reports whether no text matches both patterns.
func (p *Pattern) disjoint(q *Pattern, k *Keys) bool {
	n, m := len(p.Segments), len(q.Segments)
	switch {
	case p.whole < 0 && q.whole < 0 && n != m, p.whole < 0 && n < m, q.whole < 0 && m < n:
		return true // {_key} has any number of slashes, the other segments a fixed number
	}
	// Segments before the first {_key} are counted from the start, those after the last one from
	// the end.
	head, tail := min(n, m), 0
	for _, r := range []*Pattern{p, q} {
		if r.whole >= 0 {
			head, tail = min(head, r.whole), len(r.Segments)-1-r.whole
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
func (p *Pattern) fixed(i int, k *Keys) segment {
	s := p.Segments[i]
	if s.Variable < 0 {
		return s
	}
	at := slices.IndexFunc(k.Variables, func(v Variable) bool { return v.Name == p.variables[s.Variable] })
	if at >= 0 && k.Variables[at].OneSided && k.Variables[at].Field == nil {
		return segment{Before: s.Before + k.Variables[at].Constant + s.after, Variable: -1}
	}
	return s
}

func (s segment) disjoint(t segment) bool {
	apart := func(a, b string, begins func(string, string) bool) bool { return !begins(a, b) && !begins(b, a) }
	switch {
	case s.Variable < 0 && t.Variable < 0:
		return s.Before != t.Before
	case s.Variable < 0:
		// t is a copy. Its variable is the only one here, so its index becomes 0.
		t.Variable = 0
		return !t.match(s.Before, make([]string, 1), false)
	case t.Variable < 0:
		return t.disjoint(s)
	}
	return apart(s.Before, t.Before, strings.HasPrefix) || apart(s.after, t.after, strings.HasSuffix)
}
