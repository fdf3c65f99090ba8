package lens

import (
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
	"golang.org/x/text/unicode/norm"
)

func (p *lensParser) normalize(n ast.Node) (op, error) {
	f, err := p.fields(n, "normalize", []string{"field", "steps"}, nil)
	if err != nil {
		return nil, err
	}
	o := &normalize{}
	if o.field, err = p.path(f["field"], "field"); err != nil {
		return nil, err
	}
	seq, ok := f["steps"].(*ast.SequenceNode)
	if !ok || len(seq.Values) == 0 {
		return nil, p.errorAt(f["steps"], "steps must be a list of: %s", joinText(normalSteps))
	}
	for _, v := range seq.Values {
		text, err := scalarText(v)
		step := normalStep(text)
		switch {
		case err != nil || !slices.Contains(normalSteps, step):
			return nil, p.errorAt(v, "steps: unknown step %q; allowed: %s", strings.TrimSpace(v.String()), joinText(normalSteps))
		case slices.Contains(o.steps, step):
			return nil, p.errorAt(v, "steps has %s twice", step)
		case step == stepLower && slices.Contains(o.steps, stepUpper), step == stepUpper && slices.Contains(o.steps, stepLower):
			return nil, p.errorAt(v, "steps has lower and upper; only the last one would count")
		case step.removes() && o.field.IsItem():
			return nil, p.errorAt(v, "steps: %s would leave an item out; write sort or deduplicate for the list, or a hook", step)
		}
		o.steps = append(o.steps, step)
	}
	if slices.ContainsFunc(o.steps, func(s normalStep) bool { return s == stepLower || s == stepUpper || s == stepNFC }) {
		// Programs with other Unicode tables give other results, so the tables are part of the
		// digest.
		p.revisions = append(p.revisions, "unicode", unicode.Version, norm.Version)
	}
	return o, nil
}

func (p *lensParser) splitList(n ast.Node) (op, error) { return p.listing(n, "splitList") }

func (p *lensParser) joinList(n ast.Node) (op, error) {
	o, err := p.listing(n, "joinList")
	if err != nil {
		return nil, err
	}
	return o.inverse(), nil
}

// listing reads splitList. For joinList it reads the inverse.
func (p *lensParser) listing(n ast.Node, verb string) (op, error) {
	f, err := p.fields(n, verb, []string{"field", "separator"}, []string{"tidy"})
	if err != nil {
		return nil, err
	}
	o := &listing{verb: verb}
	if o.field, err = p.path(f["field"], "field"); err != nil {
		return nil, err
	}
	if o.separator, err = scalarText(f["separator"]); err != nil || o.separator == "" {
		return nil, p.errorAt(f["separator"], "separator must be a string that is not empty")
	}
	// With a separator like "aa", the items "xa" and "y" join to "xaaay", which splits differently.
	for i := 1; i < len(o.separator); i++ {
		if strings.HasPrefix(o.separator, o.separator[i:]) {
			return nil, p.errorAt(f["separator"], "separator begins as it ends, so that an item which ends so would come back cut elsewhere; name another one")
		}
	}
	if v, ok := f["tidy"]; ok {
		b, ok := v.(*ast.BoolNode)
		if !ok {
			return nil, p.errorAt(v, "tidy must be true or false")
		}
		o.tidy = b.Value
	}
	// Trimming an item would remove a part of the separator.
	if o.tidy && strings.TrimSpace(o.separator) == "" {
		return nil, p.errorAt(f["separator"], "separator is blank, and tidy takes blanks away; leave tidy out, or name another separator")
	}
	return o, nil
}

func joinText[T ~string](values []T) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return joinNames(out)
}
