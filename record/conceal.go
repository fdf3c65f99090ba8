package record

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// concealed replaces a value of a record in a text.
const concealed = "…"

// leastConcealed is the minimum length of a record's text that Conceal searches for. A shorter text
// identifies nobody, and would match parts of other words.
const leastConcealed = 3

// Conceal removes quoted record content from a message: text in quotes, braces or brackets,
// numbers, and texts from the given documents. Messages reach the coordination store, logs, and
// operators who may not read the data. Unquoted field names and descriptions of the problem remain.
// So does the _id of a document: operators need keys to find the records.
func Conceal(text string, docs ...bson.Raw) string {
	var held []string
	for _, doc := range docs {
		held = appendTexts(held, bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}, 0)
	}
	// Replace long texts first. Otherwise a shorter text inside a longer one would split it.
	slices.SortFunc(held, func(a, b string) int { return len(b) - len(a) })
	for _, s := range slices.Compact(held) {
		text = replaceWord(text, s)
	}
	// The server puts UUIDs of builds and collections into messages. Without this, each attempt
	// would have another text.
	return concealQuoted(uuids.ReplaceAllString(text, concealed))
}

var uuids = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)

// ConcealedError is an error about records whose Text reveals no content. The wrapped Err may quote
// the records.
type ConcealedError struct {
	Err  error
	Text string
}

func (e *ConcealedError) Error() string { return e.Text }
func (e *ConcealedError) Unwrap() error { return e.Err }

// Revealed returns the text of an error with the parts restored that a ConcealedError hides. It is
// for operators who allowed values to be shown.
func Revealed(err error) string {
	text := err.Error()
	var c *ConcealedError
	// A concealed error may wrap another one, so restore from the outside in.
	for at := err; errors.As(at, &c); at = c.Err {
		text = strings.Replace(text, c.Text, c.Err.Error(), 1)
	}
	return text
}

// appendTexts collects the texts and object ids of a document in the forms that messages use.
func appendTexts(held []string, v bson.RawValue, depth int) []string {
	// Limit the work on deep or huge documents.
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
			// Operators need the _id to find the record.
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
	default: // concealQuoted replaces numbers everywhere; messages show other types in quotes or braces
	}
	return held
}

// replaceWord replaces a text unless it is part of a word: the value "int" must not split
// "integer".
func replaceWord(text, s string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, s)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		end := i + len(s)
		// The preceding character may be in b already.
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

// concealQuoted replaces text in quotes, braces and brackets, and numbers. If the end of a quote is
// missing, because a long message was cut, it replaces everything up to the end.
func concealQuoted(text string) string {
	var b strings.Builder
	previous := rune(' ')
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		end := i + size
		switch {
		case r == '"' || r == '`' || r == '\'' && !isWord(previous): // an apostrophe, as in "can't", does not open a quote
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
			// A number may go on as a date, a time or a version.
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

// closing returns the index after the quote that closes the one at start.
func closing(text string, start int, quote byte) int {
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		// An escaped quote does not close the text.
		case '\\':
			i++
		case quote:
			return i + 1
		}
	}
	return len(text)
}

// balanced returns the index after the brace that closes the one at start. It skips braces inside
// strings.
func balanced(text string, start int) int {
	depth := 0
	for i := start; i < len(text); {
		switch text[i] {
		// Braces inside a string do not count.
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
