package lens

import (
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
	"golang.org/x/text/unicode/norm"

	"dbcontroller.dev/transform/lens/internal/operation"
)

func (p *lensParser) normalize(n ast.Node) (operation.Op, error) {
	f, err := p.fields(n, "normalize", []string{"field", "steps"}, nil)
	if err != nil {
		return nil, err
	}
	o := &operation.Normalize{}
	if o.Field, err = p.path(f["field"], "field"); err != nil {
		return nil, err
	}
	seq, ok := f["steps"].(*ast.SequenceNode)
	if !ok || len(seq.Values) == 0 {
		return nil, p.errorAt(f["steps"], "steps must be a list of: %s", joinText(operation.NormalSteps))
	}
	for _, v := range seq.Values {
		text, err := scalarText(v)
		step := operation.NormalStep(text)
		switch {
		case err != nil || !slices.Contains(operation.NormalSteps, step):
			return nil, p.errorAt(v, "steps: unknown step %q; allowed: %s", strings.TrimSpace(v.String()), joinText(operation.NormalSteps))
		case slices.Contains(o.Steps, step):
			return nil, p.errorAt(v, "steps has %s twice", step)
		case step == operation.StepLower && slices.Contains(o.Steps, operation.StepUpper), step == operation.StepUpper && slices.Contains(o.Steps, operation.StepLower):
			return nil, p.errorAt(v, "steps has lower and upper; only the last one would have an effect")
		case step.Removes() && o.Field.IsItem():
			return nil, p.errorAt(v, "steps: %s would drop an item; use sort or deduplicate for the list, or a hook", step)
		}
		o.Steps = append(o.Steps, step)
	}
	if slices.ContainsFunc(o.Steps, func(s operation.NormalStep) bool {
		return s == operation.StepLower || s == operation.StepUpper || s == operation.StepNFC
	}) {
		// Programs with other Unicode tables give other results, so the tables are part of the
		// digest.
		p.revisions = append(p.revisions, "unicode", unicode.Version, norm.Version)
	}
	return o, nil
}

func (p *lensParser) splitList(n ast.Node) (operation.Op, error) { return p.listing(n, "splitList") }

func (p *lensParser) joinList(n ast.Node) (operation.Op, error) {
	o, err := p.listing(n, "joinList")
	if err != nil {
		return nil, err
	}
	return o.Inverse(), nil
}

// listing reads splitList. For joinList it reads the inverse.
func (p *lensParser) listing(n ast.Node, verb string) (operation.Op, error) {
	f, err := p.fields(n, verb, []string{"field", "separator"}, []string{"tidy"})
	if err != nil {
		return nil, err
	}
	o := &operation.Listing{Verb: verb}
	if o.Field, err = p.path(f["field"], "field"); err != nil {
		return nil, err
	}
	if o.Separator, err = scalarText(f["separator"]); err != nil || o.Separator == "" {
		return nil, p.errorAt(f["separator"], "separator must be a string that is not empty")
	}
	// With a separator like "aa", the items "xa" and "y" join to "xaaay", which splits differently.
	for i := 1; i < len(o.Separator); i++ {
		if strings.HasPrefix(o.Separator, o.Separator[i:]) {
			return nil, p.errorAt(f["separator"], "the separator has the same beginning and end, so that the reverse could split an item at another place; use another separator")
		}
	}
	if v, ok := f["tidy"]; ok {
		b, ok := v.(*ast.BoolNode)
		if !ok {
			return nil, p.errorAt(v, "tidy must be true or false")
		}
		o.Tidy = b.Value
	}
	// Trimming an item would remove a part of the separator.
	if o.Tidy && strings.TrimSpace(o.Separator) == "" {
		return nil, p.errorAt(f["separator"], "the separator is blank, and tidy removes blanks; omit tidy, or use another separator")
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
