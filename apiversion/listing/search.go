package listing

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
)

// queryField is the field of a request with the words to search for.
const queryField = "query"

const (
	// maxTerms limits the conditions of a query, and maxQuery its bytes.
	maxTerms = 32
	maxQuery = 2 << 10
)

// ParseQuery parses the text of a search. All its conditions must hold:
//
//	word            the word is in any field that can be searched
//	"two words"     the words are next to each other
//	wor*            a word that begins so
//	field:word      the condition for one field, also with quotes or a star
//	-word           the condition does not hold
//
// Case does not matter.
func ParseQuery(text string) ([]record.SearchTerm, error) {
	if len(text) > maxQuery {
		return nil, Invalid(queryField, "has %d bytes, at most %d are allowed", len(text), maxQuery)
	}
	var terms []record.SearchTerm
	for rest := strings.TrimLeftFunc(text, unicode.IsSpace); rest != ""; rest = strings.TrimLeftFunc(rest, unicode.IsSpace) {
		var term record.SearchTerm
		var err error
		if term, rest, err = nextTerm(rest); err != nil {
			return nil, err
		}
		if terms = append(terms, term); len(terms) > maxTerms {
			return nil, Invalid(queryField, "has more than %d conditions", maxTerms)
		}
	}
	return terms, nil
}

// nextTerm parses the first condition of a text.
func nextTerm(text string) (term record.SearchTerm, rest string, err error) {
	rest = text
	if rest, term.Not = strings.CutPrefix(rest, "-"); rest == "" {
		return term, "", Invalid(queryField, "ends with a condition without a word")
	}
	if end := strings.IndexFunc(rest, func(c rune) bool { return c == ':' || c == '"' || unicode.IsSpace(c) }); end > 0 && rest[end] == ':' {
		term.Field, rest = rest[:end], rest[end+1:]
	}
	if quoted, ok := strings.CutPrefix(rest, `"`); ok {
		term.Text, rest, ok = strings.Cut(quoted, `"`)
		if !ok {
			return term, "", Invalid(queryField, "has a quote without its end")
		}
		rest, term.Prefix = strings.CutPrefix(rest, "*")
	} else {
		end := strings.IndexFunc(rest, unicode.IsSpace)
		if end < 0 {
			end = len(rest)
		}
		term.Text, rest = rest[:end], rest[end:]
		term.Text, term.Prefix = strings.CutSuffix(term.Text, "*")
	}
	if !strings.ContainsFunc(term.Text, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }) {
		return term, "", Invalid(queryField, "has a condition without a word")
	}
	return term, rest, nil
}

// SearchSource finds records for Search and shows them as messages of type M.
type SearchSource[M proto.Message] struct {
	// Searched reports whether a field can be searched. Records know the name field as
	// record.NameField.
	Searched func(field string) bool
	// Find returns the names that an index has for terms. The source sets the kind and the prefix.
	Find func(ctx context.Context, req record.SearchRequest) (record.SearchPage, error)
	// Message returns the message of a record, or ErrGone if it must not be shown.
	Message func(ctx context.Context, name string) (M, error)
	// Held returns the bytes of the records that the source has read ahead. Nil: it does not.
	Held func() int64
	// NameField is the field of M that holds the name.
	NameField string
	// Descriptor describes M. It may be nil if M is a generated type.
	Descriptor protoreflect.MessageDescriptor
}

// Search makes the page of results that a request asks for, with the words in its field query
// (ParseQuery). Its fields filter, page_size, page_token and read_mask work as those of List.
//
// Without an order the best results come first, and there is one page. Records that the filter or
// the source drops do not count, but Search looks at the 1,000 best records only. With the name field
// as the order, results come in name order, in any number of pages. A page may be short or empty and
// still have a next page.
//
// An index is behind the records. A result is shown as its record is now, which may no longer have
// the words.
func Search[M proto.Message](ctx context.Context, req proto.Message, src SearchSource[M]) (Page[M], error) {
	d := src.Descriptor
	if d == nil {
		var none M // of a generated type, whose nil pointer has a descriptor
		d = none.ProtoReflect().Descriptor()
	}
	q, err := newQuery(req, d, nil, src.NameField)
	if err != nil {
		return Page[M]{}, err
	}
	if len(q.order) > 0 && !q.byName {
		return Page[M]{}, Invalid(string(FieldsOf(req.ProtoReflect().Descriptor()).OrderBy), "must be %s, or empty for the best results first", src.NameField)
	}
	find := record.SearchRequest{ByName: len(q.order) > 0, Limit: q.size}
	if !find.ByName && !q.filter.IsZero() {
		find.Limit = 0 // the filter may drop the best ones, and there is no next page
	}
	if find.Terms, err = ParseQuery(Text(req.ProtoReflect(), queryField)); err != nil {
		return Page[M]{}, err
	}
	for i, term := range find.Terms {
		if term.Field == src.NameField {
			find.Terms[i].Field = record.NameField
		}
		if !src.Searched(find.Terms[i].Field) {
			return Page[M]{}, Invalid(queryField, "%s cannot be searched in this version", term.Field)
		}
	}
	if q.after != nil {
		if find.After = q.after.Name; !find.ByName {
			return Page[M]{}, Invalid("page_token", "%s", errToken)
		}
	}
	found, err := src.Find(ctx, find)
	var broad *record.SearchTooBroadError
	if errors.As(err, &broad) {
		return Page[M]{}, Invalid(queryField, "%s", broad.Error())
	}
	if err != nil {
		return Page[M]{}, err
	}
	return shown(ctx, q, src, found)
}

// shown makes the page of the records that a search has found.
func shown[M proto.Message](ctx context.Context, q query, src SearchSource[M], found record.SearchPage) (page Page[M], err error) {
	ctx, read := memory.Read(ctx)
	defer read.Drop()
	last := ""
	for _, name := range found.Names {
		if len(q.order) == 0 && len(page.Items) == q.size {
			return page, nil // more were found in case that some are not shown
		}
		held := int64(0)
		if src.Held != nil {
			held = src.Held()
		}
		read.Keep(int64(page.bytes) + held)
		m, err := src.Message(ctx, name)
		if err == nil && !q.filter.Eval(m) {
			err = ErrGone
		}
		if errors.Is(err, ErrGone) {
			last = name
			continue
		}
		if err != nil {
			return Page[M]{}, err
		}
		full, err := page.add(m, q.mask)
		switch {
		case err != nil:
			return Page[M]{}, err
		case full && len(q.order) == 0:
			return page, nil // the best ones that fit
		case full:
			page.NextPageToken = q.token(last, []any{last})
			return page, nil
		}
		last = name
	}
	if len(q.order) > 0 && !found.Done {
		page.NextPageToken = q.token(found.Last, []any{found.Last})
	}
	return page, nil
}

// HasQuery reports whether a request is one of a search.
func HasQuery(d protoreflect.MessageDescriptor) bool {
	fd := d.Fields().ByName(queryField)
	return fd != nil && fd.Kind() == protoreflect.StringKind && !fd.IsList()
}
