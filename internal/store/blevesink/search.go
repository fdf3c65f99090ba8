package blevesink

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/analysis/token/lowercase"
	"github.com/blevesearch/bleve/v2/analysis/tokenizer/unicode"
	"github.com/blevesearch/bleve/v2/search/query"
	index "github.com/blevesearch/bleve_index_api"

	"dbcontroller.dev/record"
)

// defaultLimit is the number of results of a request that sets none.
const defaultLimit = 1000

// analyzer makes words of texts, as the one called words does in documents.
var analyzer = &analysis.DefaultAnalyzer{Tokenizer: unicode.NewUnicodeTokenizer(), TokenFilters: []analysis.TokenFilter{lowercase.NewLowerCaseFilter()}}

const (
	// searches is the number of searches that run at once. The others wait.
	searches = 8
	// mostWords bounds the words that the beginnings of a query stand for, in all fields together.
	// The library reads each of them like a condition of its own, so memory grows with their number.
	mostWords = 10_000
)

// Search returns the names of the records that meet a request.
func (x *Index) Search(ctx context.Context, req record.SearchRequest) (page record.SearchPage, err error) {
	select {
	case x.searching <- struct{}{}:
		defer func() { <-x.searching }()
	case <-ctx.Done():
		return page, context.Cause(ctx)
	}
	err = x.reading(ctx, func() (err error) { page, err = x.search(ctx, req); return err })
	return page, err
}

func (x *Index) search(ctx context.Context, req record.SearchRequest) (page record.SearchPage, err error) {
	fields, known := x.kinds[req.Kind]
	if !known {
		return page, unsupported(req.Kind, "the index does not have the kind")
	}
	q := query.NewBooleanQuery([]query.Query{termQuery(fieldLive, req.Kind)}, nil, nil)
	for _, term := range req.Terms {
		cond, err := condition(req.Kind, term, fields)
		if err != nil {
			return page, err
		}
		if term.Not {
			q.AddMustNot(cond)
		} else {
			q.AddMust(cond)
		}
	}
	if req.Prefix != "" {
		q.AddMust(inPrefix(req.Prefix))
	}
	if err := x.narrow(ctx, req.Terms, fields); err != nil {
		return page, err
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	// One more tells whether there are more.
	ask := bleve.NewSearchRequestOptions(q, limit+1, 0, false)
	ask.SortBy([]string{"-_score", "_id"})
	if req.ByName {
		ask.SortBy([]string{"_id"})
		ask.Score = "none"
		if req.After != "" {
			ask.SetSearchAfter([]string{idOf(req.Kind, req.After)})
		}
	}
	found, err := x.bleve.SearchInContext(ctx, ask)
	if err != nil {
		return page, err
	}
	for _, hit := range found.Hits[:min(limit, len(found.Hits))] {
		_, name, _ := strings.Cut(hit.ID, separator)
		page.Names = append(page.Names, name)
	}
	if page.Done = len(found.Hits) <= limit; !page.Done && req.ByName {
		page.Last = page.Names[limit-1]
	}
	return page, nil
}

func unsupported(kind, reason string) error {
	return &record.UnsupportedError{What: "search of " + kind, Reason: reason}
}

// termQuery finds the documents with exactly this text in a field without words.
func termQuery(field, text string) query.Query {
	q := query.NewTermQuery(text)
	q.SetField(field)
	q.SetBoost(0) // it says nothing about how good a result is
	return q
}

// inPrefix finds the names with a prefix.
func inPrefix(prefix string) query.Query {
	if strings.HasSuffix(prefix, "/") {
		return termQuery(fieldWithin, prefix)
	}
	q := query.NewPrefixQuery(prefix)
	q.SetField(fieldWithin)
	q.SetBoost(0)
	return q
}

// condition returns the query of a term over the fields of its kind.
func condition(kind string, term record.SearchTerm, fields []string) (query.Query, error) {
	in := fieldsOf(term, fields)
	if len(in) == 0 {
		return nil, unsupported(kind, fmt.Sprintf("the index does not have the field %s", term.Field))
	}
	words := wordsOf(term.Text)
	if len(words) == 0 {
		return query.NewMatchNoneQuery(), nil
	}
	var any []query.Query
	for _, field := range in {
		any = append(any, inField(field, words, term.Prefix))
	}
	return query.NewDisjunctionQuery(any), nil
}

// fieldsOf returns the fields in bleve that a term is about.
func fieldsOf(term record.SearchTerm, fields []string) (in []string) {
	for _, path := range fields {
		if term.Field == "" || term.Field == path {
			in = append(in, textField(path))
		}
	}
	if term.Field == "" || term.Field == record.NameField {
		in = append(in, fieldName)
	}
	return in
}

func wordsOf(text string) (words []string) {
	for _, token := range analyzer.Analyze([]byte(text)) {
		words = append(words, string(token.Term))
	}
	return words
}

// narrow refuses terms whose beginnings stand for too many words.
func (x *Index) narrow(ctx context.Context, terms []record.SearchTerm, fields []string) error {
	if !slices.ContainsFunc(terms, func(t record.SearchTerm) bool { return t.Prefix }) {
		return nil
	}
	return x.read(func(r index.IndexReader) error {
		left := mostWords
		for _, term := range terms {
			words := wordsOf(term.Text)
			if !term.Prefix || len(words) == 0 {
				continue
			}
			for _, field := range fieldsOf(term, fields) {
				var err error
				if left, err = count(ctx, r, field, words[len(words)-1], left); err != nil {
					return err
				}
				if left < 0 {
					return &record.SearchTooBroadError{Beginning: term.Text}
				}
			}
		}
		return nil
	})
}

// count subtracts the number of words of a field with a beginning from left. It stops below zero.
func count(ctx context.Context, r index.IndexReader, field, beginning string, left int) (_ int, err error) {
	dict, err := r.FieldDictPrefix(field, []byte(beginning))
	if err != nil {
		return left, err
	}
	defer func() {
		if closed := dict.Close(); err == nil {
			err = closed
		}
	}()
	for ; left >= 0; left-- {
		word, err := dict.Next()
		if err != nil || word == nil {
			return left, err
		}
		if ctx.Err() != nil {
			return left, context.Cause(ctx)
		}
	}
	return left, nil
}

// inField finds words next to each other in a field. With prefix the last one may go on.
func inField(field string, words []string, prefix bool) query.Query {
	var all []query.Query
	whole := words
	if prefix {
		// Only the whole words are next to each other: an index has no places of beginnings.
		last := query.NewPrefixQuery(words[len(words)-1])
		last.SetField(field)
		all, whole = append(all, last), words[:len(words)-1]
	}
	switch len(whole) {
	case 0:
	case 1:
		one := query.NewTermQuery(whole[0])
		one.SetField(field)
		all = append(all, one)
	default:
		all = append(all, query.NewPhraseQuery(whole, field))
	}
	if len(all) == 1 {
		return all[0]
	}
	return query.NewConjunctionQuery(all)
}
