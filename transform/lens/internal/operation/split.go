package operation

import (
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Splitter splits a string into parts at a separator, and joins parts to a string. A string must
// have exactly Parts parts. Parts may be empty. With Rest, the last part may contain the separator.
// So each direction accepts exactly the results of the other.
type Splitter struct {
	Separator string
	Parts     int
	Rest      bool // the last part takes the rest of the string
}

// Split is the Calculation of a split: one string to its parts. Errors are *ValueError.
func (s *Splitter) Split(in []bson.RawValue) ([]bson.RawValue, error) {
	if in[0].Type != bson.TypeString {
		return nil, &ValueError{0, fmt.Errorf("is of type %s, not string", edit.TypeName(in[0].Type))}
	}
	parts, err := s.take(scalar.StringOf(in[0].Value))
	if err != nil {
		return nil, &ValueError{0, err}
	}
	out := make([]bson.RawValue, len(parts))
	for i, part := range parts {
		out[i] = scalar.StringValue(part)
	}
	return out, nil
}

// take splits a Go string.
func (s *Splitter) take(text string) ([]string, error) {
	limit := -1
	// The last part keeps its separators.
	if s.Rest {
		limit = s.Parts
	}
	parts := strings.SplitN(text, s.Separator, limit)
	if len(parts) != s.Parts {
		return nil, fmt.Errorf("is %s, which has %d parts between %q, not %d", edit.Show(bson.TypeString, scalar.AppendString(nil, text)), len(parts), s.Separator, s.Parts)
	}
	return parts, nil
}

// Join is the Calculation of a join: parts to one string. Each part must be a string, and none may
// be absent. Errors are *ValueError.
func (s *Splitter) Join(in []bson.RawValue) ([]bson.RawValue, error) {
	parts := make([]string, len(in))
	for i, v := range in {
		switch {
		// Joined, an absent part would look like an empty one.
		case v.Type == 0:
			return nil, &ValueError{i, errors.New("is absent, but other parts of the string are there")}
		case v.Type != bson.TypeString:
			return nil, &ValueError{i, fmt.Errorf("is of type %s, not string", edit.TypeName(v.Type))}
		}
		parts[i] = scalar.StringOf(v.Value)
		if strings.Contains(parts[i], s.Separator) && !(s.Rest && i == len(in)-1) {
			return nil, &ValueError{i, fmt.Errorf("is %s, which holds the separator %q", edit.Show(v.Type, v.Value), s.Separator)}
		}
	}
	return []bson.RawValue{scalar.StringValue(strings.Join(parts, s.Separator))}, nil
}
