package lint

import (
	"cmp"
	"errors"
	"regexp"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens"
)

// failureKey identifies records that fail in the same way.
type failureKey struct{ direction, operation, field, reason string }

// mostReasons limits the number of distinct reasons. All further ones count as one.
const mostReasons = 500

func (c *checker) fail(direction string, rs []record.Record, err error) {
	key := failureKey{direction: direction, reason: reasonOf(err, rs)}
	var at *lens.RecordError
	// Remove item numbers, so that the same failure in different items counts once.
	if errors.As(err, &at) {
		key.operation, key.field = mask(at.Operation, rs), items.ReplaceAllString(at.Field, ".*$1")
		key.reason = mask(at.Reason, rs)
	}
	f, ok := c.failures[key]
	// Otherwise reasons that contain data could fill the memory.
	if !ok && len(c.failures) >= mostReasons {
		key = failureKey{direction: direction, reason: "other reasons"}
		f, ok = c.failures[key]
	}
	if !ok {
		f = &Failure{Direction: direction, Operation: key.operation, Field: key.field, Reason: key.reason}
		c.failures[key] = f
	}
	f.Groups++
	if len(f.Examples) < c.Examples {
		name := rs[0].Key.String()
		if len(rs) > 1 {
			name += " of " + rs[0].Kind
		}
		f.Examples = append(f.Examples, Example{name, oneLine(plain(err))})
	}
}

func compareFailures(a, b Failure) int {
	return cmp.Or(-cmp.Compare(a.Groups, b.Groups), strings.Compare(a.Direction, b.Direction),
		strings.Compare(a.Operation, b.Operation), strings.Compare(a.Field, b.Field), strings.Compare(a.Reason, b.Reason))
}

// plain returns the text of an error without the prefixes of the packages on its way.
func plain(err error) string {
	var at *lens.RecordError
	if errors.As(err, &at) {
		return at.Error()
	}
	text := record.Revealed(err)
	// The prefix names the spec, which the report shows already.
	if rest, ok := strings.CutPrefix(text, "transform "); ok {
		if _, after, found := strings.Cut(rest, ": "); found {
			return after
		}
	}
	return text
}

func reasonOf(err error, rs []record.Record) string { return mask(oneLine(plain(err)), rs) }

var (
	items  = regexp.MustCompile(`\.[0-9]+(\.|$)`)
	quoted = regexp.MustCompile(`\{"\$[^{}]*\}|"(?:[^"\\]|\\.)*"`)
	number = regexp.MustCompile(`(^|[^\w.])-?[0-9]+(?:\.[0-9]+)?\b`)
)

// mask removes names and values from a reason, so that equal failures of different records count
// together.
func mask(text string, rs []record.Record) string {
	for _, r := range rs {
		// A name of one character would also replace letters of the message.
		if name := r.Key.String(); len(name) > 1 {
			text = strings.ReplaceAll(text, name, "…")
		}
	}
	return number.ReplaceAllString(quoted.ReplaceAllString(text, "…"), "$1…")
}

// oneLine returns the first line. For a panic it is the message without the stack.
func oneLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}
