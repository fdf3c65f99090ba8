package adapt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// SearchStore is a Store with full-text search. An Adapter uses it if it is available.
type SearchStore interface {
	Store
	// Searched reports whether a field of a kind can be searched. An empty field stands for the kind
	// itself.
	Searched(kind, field string) bool
	// Search returns names of records that meet a request, or met it shortly before.
	Search(ctx context.Context, req record.SearchRequest) (record.SearchPage, error)
}

// searched returns the stored kind and field by which a field of a kind shown is searched: one that
// a lens carries unchanged.
func (a *Adapter) searched(kind, field string) (store SearchStore, lead, stored string, ok bool) {
	store, can := a.stored.(SearchStore)
	lead = a.leads[kind]
	if !can || lead == "" {
		return nil, "", "", false
	}
	if stored = field; field != "" && field != record.NameField {
		names, carries := a.cfg.Names[kind].(transform.CarryingMapping)
		if !carries {
			return nil, "", "", false
		}
		if stored, ok = names.Carried(field); !ok {
			return nil, "", "", false
		}
	}
	return store, lead, stored, store.Searched(lead, stored)
}

// Searched reports whether the stored version has a field of a kind shown in its index, and a lens
// carries it unchanged.
func (a *Adapter) Searched(kind, field string) bool {
	_, _, _, ok := a.searched(kind, field)
	return ok
}

// Search searches the leading stored kind, and returns the names of the records that its results
// show. Texts are those of the stored version. A term without a field needs its words only, in any
// places: the stored version may keep in two fields what is one here. A stored name may have more
// words than the name shown.
func (a *Adapter) Search(ctx context.Context, req record.SearchRequest) (page record.SearchPage, err error) {
	shown := req
	store, lead, _, ok := a.searched(req.Kind, "")
	if !ok {
		return page, a.unsupported(req.Kind, "its stored version has no index for search")
	}
	req.Kind, req.Terms = lead, nil
	for _, term := range shown.Terms {
		_, _, stored, ok := a.searched(shown.Kind, term.Field)
		if !ok {
			return page, a.unsupported(shown.Kind, fmt.Sprintf("no index has the field %s", term.Field))
		}
		term.Field = stored
		req.Terms = append(req.Terms, loosened(term)...)
	}
	if req.Prefix, req.After, ok = a.storedNames(pageOf(shown)); !ok {
		if shown.ByName {
			return page, a.unsupported(shown.Kind, "names sort in another order than those of its stored version, so results cannot be ordered by name")
		}
		req.Prefix, req.After = a.storedBegin(shown), ""
	}
	if !shown.ByName && shown.Prefix != "" && req.Prefix != shown.Prefix {
		req.Limit = 0 // the best ones may have names without the prefix
	}
	for {
		found, err := store.Search(ctx, req)
		var broad *record.SearchTooBroadError
		if errors.As(err, &broad) {
			return page, err // it is about the words of the client
		}
		if err != nil {
			return page, about(shown.Kind, shown.Prefix, err)
		}
		if page.Names, err = a.shownNames(lead, shown, found.Names); err != nil {
			return page, err
		}
		page.Done = found.Done
		if n := shown.Limit; !shown.ByName && n > 0 && len(page.Names) > n {
			page.Names, page.Done = page.Names[:n], false
		}
		switch n := len(page.Names); {
		case n > 0 && !page.Done && shown.ByName:
			// Stored names after this one may show nothing. The next page meets them again.
			page.Last = page.Names[n-1]
			return page, nil
		case n > 0 || page.Done || !shown.ByName:
			return page, nil
		}
		// None of these records is shown, so no name of the version shown is the place to go on from.
		req.After = found.Last
	}
}

// shownNames returns the names of the records that stored records of a kind show.
func (a *Adapter) shownNames(lead string, shown record.SearchRequest, stored []string) (names []string, err error) {
	for _, name := range stored {
		sels, err := a.Affected(lead, name)
		if err != nil {
			return nil, err
		}
		for _, sel := range sels {
			// The stored prefix may be shorter than the mapped one, so filter again.
			if name, ok := sel.Key.Name(); ok && sel.Kind == shown.Kind && !sel.Prefix && strings.HasPrefix(name, shown.Prefix) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// storedBegin returns the beginning of the stored names for a search without an order, or "" if it is
// unknown.
func (a *Adapter) storedBegin(shown record.SearchRequest) string {
	parent := shown.Prefix[:max(strings.LastIndexByte(shown.Prefix, '/'), 0)]
	if parent == "" {
		return ""
	}
	return a.storedPrefix(a.cfg.Names[shown.Kind], parent)
}

// pageOf returns the names that a search is for.
func pageOf(req record.SearchRequest) page {
	return page{kind: req.Kind, prefix: req.Prefix, after: req.After}
}

// loosened returns the terms for the words of a term. A term of one field stays as it is. So does one
// that excludes records: with looser terms it would exclude too many.
func loosened(term record.SearchTerm) []record.SearchTerm {
	if term.Field != "" || term.Not {
		return []record.SearchTerm{term}
	}
	words := strings.FieldsFunc(term.Text, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !unicode.IsMark(c) && c != '_'
	})
	if len(words) < 2 {
		return []record.SearchTerm{term}
	}
	out := make([]record.SearchTerm, 0, len(words))
	for i, word := range words {
		out = append(out, record.SearchTerm{Text: word, Prefix: term.Prefix && i == len(words)-1})
	}
	return out
}
