package lens

import (
	"dbcontroller.dev/transform/lens/internal/keymap"
)

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
