package record

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// concealed stands in a text where a value of a record was.
const concealed = "…"

// leastConcealed is how long a text of a record must be to be looked for in a message. A
// shorter one reveals nothing about anybody, and would be found inside of words.
const leastConcealed = 3

// Conceal takes out of a message what it may quote of records: whatever stands in quotes,
// braces or brackets, numbers, and texts that the given documents hold. Messages go to the
// coordination store, to logs and to people who may operate a deployment but not read its
// data. Names of fields and what is wrong with them remain, as long as they are not quoted,
// and so does the _id of a document: keys are shown, for people have to find the records.
func Conceal(text string, docs ...bson.Raw) string {
	var held []string
	for _, doc := range docs {
		held = appendTexts(held, bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}, 0)
	}
	// The longest first, or a part of it would hide the rest from being found.
	slices.SortFunc(held, func(a, b string) int { return len(b) - len(a) })
	for _, s := range slices.Compact(held) {
		text = replaceWord(text, s)
	}
	// The server's own, of builds and collections: each attempt would have another text.
	return concealQuoted(uuids.ReplaceAllString(text, concealed))
}

var uuids = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)

// ConcealedError is an error about records whose text has nothing of what they hold. What it
// wraps may quote them.
type ConcealedError struct {
	Err  error
	Text string
}

func (e *ConcealedError) Error() string { return e.Text }
func (e *ConcealedError) Unwrap() error { return e.Err }

// Revealed is the text of an error with what was concealed in it, for an operator who has
// decided that values may be shown.
func Revealed(err error) string {
	text := err.Error()
	var c *ConcealedError
	for at := err; errors.As(at, &c); at = c.Err {
		text = strings.Replace(text, c.Text, c.Err.Error(), 1)
	}
	return text
}

// appendTexts gathers the texts of a document, and its identities, in the forms in which
// messages show them.
func appendTexts(held []string, v bson.RawValue, depth int) []string {
	const deepest, most = 100, 10_000
	if depth > deepest || len(held) > most {
		return held
	}
	switch v.Type {
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		elems, err := bson.Raw(v.Value).Elements()
		if err != nil {
			return held
		}
		for _, e := range elems {
			if depth == 0 && e.Key() == "_id" {
				continue
			}
			held = appendTexts(held, e.Value(), depth+1)
		}
	case bson.TypeString, bson.TypeSymbol:
		if s, ok := v.StringValueOK(); ok && len(s) >= leastConcealed {
			held = append(held, s)
		}
	case bson.TypeObjectID:
		held = append(held, v.ObjectID().Hex())
	default: // numbers are taken out wherever they are, others are shown in quotes or braces
	}
	return held
}

// replaceWord replaces a text where it is not inside of a word: a value like "int" must not
// take "integer" apart.
func replaceWord(text, s string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, s)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		end := i + len(s)
		before, _ := utf8.DecodeLastRuneInString(b.String() + text[:i])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if isWord(before) && isWord(rune(s[0])) || isWord(after) && isWord(rune(s[len(s)-1])) {
			b.WriteString(text[:end])
		} else {
			b.WriteString(text[:i] + concealed)
		}
		text = text[end:]
	}
}

func isWord(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !isWord(r) || r >= '0' && r <= '9' })
}

// concealQuoted replaces what stands in quotes, braces and brackets, and numbers. What is
// opened and not closed, for a long message was cut, goes to the end.
func concealQuoted(text string) string {
	var b strings.Builder
	previous := rune(' ')
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		end := i + size
		switch {
		case r == '"' || r == '`' || r == '\'' && !isWord(previous): // not the one of "can't"
			end = closing(text, i, byte(r))
			if end-i == len(`"/"`) {
				b.WriteString(text[i:end]) // a separator
			} else {
				b.WriteString(concealed)
			}
		case r == '{' || r == '[':
			end = balanced(text, i)
			if isName(text[i+1 : max(i+1, end-1)]) {
				b.WriteString(text[i:end]) // a variable of a pattern, such as {id}
			} else {
				b.WriteString(concealed)
			}
		case r >= '0' && r <= '9' && !isWord(previous) && previous != '.' && previous != '/': // not in list.0.field or orders/7
			for end < len(text) && (isWord(rune(text[end])) || strings.IndexByte(".:-+/", text[end]) >= 0 && end+1 < len(text) && isWord(rune(text[end+1]))) {
				end++
			}
			b.WriteString(concealed)
		default:
			b.WriteString(text[i:end])
		}
		previous, _ = utf8.DecodeLastRuneInString(text[:end])
		i = end
	}
	return b.String()
}

// closing returns the place after the quote that ends what begins at start.
func closing(text string, start int, quote byte) int {
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case quote:
			return i + 1
		}
	}
	return len(text)
}

// balanced returns the place after the brace that ends what begins at start, past strings
// with braces in them.
func balanced(text string, start int) int {
	depth := 0
	for i := start; i < len(text); {
		switch text[i] {
		case '"':
			i = closing(text, i, '"')
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(text)
}
