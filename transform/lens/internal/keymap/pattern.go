package keymap

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// WholeKey is the variable of a Pattern for a whole name, including slashes.
const WholeKey = "_key"

// Pattern is the form of a kind's names: segments between slashes with at most one variable each,
// such as projects/{project}/secrets/{secret}. A variable matches one or more characters other than
// a slash. The variable {_key} matches any text. So a name matches in exactly one way or not at
// all, and two names never have the same values. A variable may have a type, such as {id:objectId}.
// It then matches only the texts of values of that type.
//
// A Pattern is safe for concurrent use.
type Pattern struct {
	text      string // as written in the lens
	Plain     string // the text without types
	Segments  []segment
	variables []string
	Types     []scalar.IDType // one for each variable; "" if none is declared
	whole     int             // index of the segment with {_key}; -1 for none
}

// segment is the part of a pattern between two slashes.
type segment struct {
	Before, after string
	Variable      int // index of the variable between them; -1: only before
}

// ParsePattern parses a pattern. The error names the mistake.
func ParsePattern(text string) (*Pattern, error) {
	bad := func(format string, args ...any) (*Pattern, error) {
		return nil, fmt.Errorf("pattern %q: %s", text, fmt.Sprintf(format, args...))
	}
	if text == "" {
		return bad("it is empty")
	}
	p := &Pattern{text: text, whole: -1}
	var plain []string
	for i, part := range strings.Split(text, "/") {
		if part == "" && i > 0 {
			return bad("it has an empty segment")
		}
		if strings.ContainsRune(part, 0) {
			return bad("it holds a NUL byte")
		}
		// One variable at most for each segment: with two, a name could match in several ways.
		before, rest, braced := strings.Cut(part, "{")
		// Report the brace itself. The later errors would name only the variable.
		if strings.Contains(before, "}") {
			return bad("} without { before it in segment %q", part)
		}
		if !braced {
			p.Segments, plain = append(p.Segments, segment{Before: part, Variable: -1}), append(plain, part)
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		name, declared, typed := strings.Cut(name, ":")
		var typ scalar.IDType
		if typed {
			var err error
			if typ, err = scalar.IDTypeOf(declared); err != nil {
				return bad("{%s}: %v", name, err)
			}
		}
		switch {
		case !closed:
			return bad("{ without } in segment %q", part)
		case strings.ContainsAny(after, "{}"):
			return bad("segment %q has two variables, so that a name would be ambiguous; put a slash between them", part)
		case !variableName(name):
			return bad("%q is not the name of a variable: use letters, digits and _, a letter first", name)
		case slices.Contains(p.variables, name):
			return bad("the variable {%s} is there twice", name)
		}
		if name == WholeKey {
			p.whole = i
		}
		p.Segments = append(p.Segments, segment{before, after, len(p.variables)})
		p.variables, p.Types = append(p.variables, name), append(p.Types, typ)
		// Messages and comparisons need the pattern without types.
		plain = append(plain, before+"{"+name+"}"+after)
	}
	p.Plain = strings.Join(plain, "/")
	return p, nil
}

// variableName accepts plain names, WholeKey, and the variables item.<path> and item._id, which
// only a fanOut's key may use.
func variableName(s string) bool {
	if s == WholeKey || s == ItemPrefix+string(edit.FieldID) {
		return true
	}
	// Only fields of an item may have dots.
	s, item := strings.CutPrefix(s, ItemPrefix)
	if !item && strings.Contains(s, ".") {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		for i, c := range part {
			letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
			if !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
				return false
			}
		}
		if part == "" {
			return false
		}
	}
	return true
}

// String returns the pattern as written.
func (p *Pattern) String() string { return p.text }

// Variables returns the names of the variables, in the order of the text. The caller owns the
// slice.
func (p *Pattern) Variables() []string { return slices.Clone(p.variables) }

// Match returns the values of a name's variables, in the order of Variables. It returns an error if
// the name does not match.
func (p *Pattern) Match(name string) ([]string, error) {
	values := make([]string, len(p.variables))
	if err := p.match(name, values); err != nil {
		return nil, err
	}
	return values, nil
}

var errNoMatch = errors.New("the name does not match")

// match fills in values, one for each variable.
func (p *Pattern) match(name string, values []string) error {
	// Match the text first: the types check the values that it finds.
	if err := p.matchText(name, values); err != nil {
		return err
	}
	for i, t := range p.Types {
		if err := t.Check(values[i]); err != nil {
			return fmt.Errorf("{%s} %w", p.variables[i], err)
		}
	}
	return nil
}

func (p *Pattern) matchText(name string, values []string) error {
	n := len(p.Segments)
	// A quick test that rejects most names of other forms.
	if p.whole < 0 && strings.Count(name, "/") != n-1 {
		return p.mismatch(name)
	}
	rest := name
	for i, s := range p.Segments {
		// The number of segments in {_key} is unknown here. Continue from the end.
		if i == p.whole {
			break
		}
		part := rest
		if i < n-1 {
			var found bool
			if part, rest, found = strings.Cut(rest, "/"); !found {
				return p.mismatch(name)
			}
		}
		if !s.match(part, values, false) {
			return p.mismatch(name)
		}
	}
	if p.whole < 0 {
		return nil
	}
	// Count the segments after {_key} from the end, because {_key} may contain slashes.
	for i := n - 1; i > p.whole; i-- {
		at := strings.LastIndexByte(rest, '/')
		if at < 0 || !p.Segments[i].match(rest[at+1:], values, false) {
			return p.mismatch(name)
		}
		rest = rest[:at]
	}
	if !p.Segments[p.whole].match(rest, values, true) {
		return p.mismatch(name)
	}
	return nil
}

func (s segment) match(part string, values []string, whole bool) bool {
	if s.Variable < 0 {
		return part == s.Before
	}
	if len(part) < len(s.Before)+len(s.after) || !strings.HasPrefix(part, s.Before) || !strings.HasSuffix(part, s.after) {
		return false
	}
	v := part[len(s.Before) : len(part)-len(s.after)]
	values[s.Variable] = v
	// Only {_key} may be empty. Any other empty variable would make names ambiguous.
	return whole || v != ""
}

func (p *Pattern) mismatch(name string) error {
	return fmt.Errorf("%q is not of the form %s: %w", Shortened(name), p.Plain, errNoMatch)
}

// Shortened truncates a name after 200 bytes for an error, because errors are stored.
func Shortened(s string) string {
	const most = 200
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// Name returns the name with the given values, in the order of Variables. It returns an error for a
// wrong number of values, and for a value that Match would not return.
func (p *Pattern) Name(values []string) (string, error) {
	if len(values) != len(p.variables) {
		return "", fmt.Errorf("pattern %s has %d variables, not %d", p.text, len(p.variables), len(values))
	}
	for i, v := range values {
		if err := CheckValue(p.variables[i], v); err != nil {
			return "", err
		}
		if err := p.Types[i].Check(v); err != nil {
			return "", fmt.Errorf("{%s} %w", p.variables[i], err)
		}
	}
	return string(p.AppendName(nil, values, len(p.Segments))), nil
}

// CheckValue returns an error if a variable's value could not be read back from a name: an empty
// value or one with a slash. WholeKey accepts every value.
func CheckValue(variable, value string) error {
	switch {
	case variable == WholeKey:
		return nil
	case value == "":
		return fmt.Errorf("{%s} would be empty", variable)
	case strings.Contains(value, "/"):
		return fmt.Errorf("{%s} would be %q, which contains a slash", variable, Shortened(value))
	}
	return nil
}

// AppendName appends the first n segments of the name with these values. It does not check the
// values.
func (p *Pattern) AppendName(dst []byte, values []string, n int) []byte {
	for i, s := range p.Segments[:n] {
		if i > 0 {
			dst = append(dst, '/')
		}
		dst = append(dst, s.Before...)
		if s.Variable >= 0 {
			dst = append(dst, values[s.Variable]...)
			dst = append(dst, s.after...)
		}
	}
	return dst
}

// ItemPrefix is the prefix of variables that are fields of a list's item or map's entry.
const ItemPrefix = "item."
