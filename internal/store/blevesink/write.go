package blevesink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/search/query"
	index "github.com/blevesearch/bleve_index_api"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/record"
)

// separator ends the kind in the id of a document. No kind has it, and it sorts before all others.
const separator = "\x00"

func idOf(kind, name string) string { return kind + separator + name }

// textField returns the name of a declared field in bleve, which reads dots as levels.
func textField(path string) string { return fieldTexts + strings.ReplaceAll(path, ".", "/") }

// Write writes items over lower guards, and the state, in one batch.
func (x *Index) Write(_ context.Context, items []sink.Item, state sink.State) error {
	stored, err := json.Marshal(state)
	if err != nil {
		return err
	}
	batch := x.bleve.NewBatch()
	batch.SetInternal(keyState, stored)
	err = x.read(func(r index.IndexReader) error {
		for _, it := range items {
			id := idOf(it.Kind, it.Name)
			have, there, err := entryAt(r, id)
			if err != nil {
				return err
			}
			if there && have.Guard.Compare(it.Guard) >= 0 {
				continue
			}
			if err := batch.Index(id, x.document(it)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return x.bleve.Batch(batch)
}

// document returns what bleve keeps of an item.
func (x *Index) document(it sink.Item) map[string]any {
	doc := map[string]any{
		fieldGeneration: generation(it.Guard.Epoch),
		fieldEntry:      encode(sink.Entry{Guard: it.Guard, Digest: it.Digest, Dead: it.Doc == nil}),
	}
	if it.Doc == nil {
		doc[fieldDead] = it.Kind
		return doc
	}
	doc[fieldLive], doc[fieldName], doc[fieldWithin] = it.Kind, it.Name, within(it.Name)
	for _, path := range x.kinds[it.Kind] {
		if texts := it.Doc[path]; len(texts) > 0 {
			doc[textField(path)] = texts
		}
	}
	return doc
}

// within returns a name and all its beginnings that end with a slash.
func within(name string) []string {
	out := []string{name}
	for i := range len(name) {
		if name[i] == '/' {
			out = append(out, name[:i+1])
		}
	}
	return out
}

func generation(n uint64) string { return fmt.Sprintf("%016x", n) }

// encode returns the stored form of an entry without its name.
func encode(e sink.Entry) string {
	b := append(e.Guard.Bytes(), e.Digest[:]...)
	if e.Dead {
		b = append(b, 1)
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

func decode(name string, stored []byte) (sink.Entry, error) {
	b, err := base64.RawStdEncoding.DecodeString(string(stored))
	e := sink.Entry{Name: name}
	if err != nil || len(b) < record.GuardSize+len(e.Digest) {
		return e, fmt.Errorf("entry of %q in the search index is damaged: rebuild it", name)
	}
	e.Guard, _ = record.GuardFrom(b[:record.GuardSize])
	rest := b[record.GuardSize:]
	copy(e.Digest[:], rest)
	e.Dead = len(rest) > len(e.Digest)
	return e, nil
}

// read calls do with a snapshot of the index.
func (x *Index) read(do func(index.IndexReader) error) error {
	in, err := x.bleve.Advanced()
	if err != nil {
		return err
	}
	r, err := in.Reader()
	if err != nil {
		return err
	}
	err = do(r)
	if closed := r.Close(); err == nil {
		err = closed
	}
	return err
}

// entryAt returns the entry of a document.
func entryAt(r index.IndexReader, id string) (e sink.Entry, there bool, err error) {
	doc, err := r.Document(id)
	if err != nil || doc == nil {
		return e, false, err
	}
	var stored []byte
	doc.VisitFields(func(f index.Field) {
		if f.Name() == fieldEntry {
			stored = f.Value()
		}
	})
	_, name, _ := strings.Cut(id, separator)
	e, err = decode(name, stored)
	return e, true, err
}

// Forget removes everything of lower generations.
func (x *Index) Forget(ctx context.Context, before uint64) error {
	q := query.NewTermRangeQuery("", generation(before))
	q.SetField(fieldGeneration)
	return x.remove(ctx, q, func(sink.Entry) bool { return true })
}

// Purge removes the tombstones with a lower guard.
func (x *Index) Purge(ctx context.Context, before record.Guard) error {
	var dead []query.Query
	for kind := range x.kinds {
		dead = append(dead, termQuery(fieldDead, kind))
	}
	return x.remove(ctx, query.NewDisjunctionQuery(dead), func(e sink.Entry) bool { return e.Guard.Compare(before) < 0 })
}

// remove removes those documents that a query finds and gone selects.
func (x *Index) remove(ctx context.Context, q query.Query, gone func(sink.Entry) bool) error {
	const page = 1000
	for after := ""; ; {
		req := bleve.NewSearchRequestOptions(q, page, 0, false)
		req.SortBy([]string{"_id"})
		req.Fields = []string{fieldEntry}
		req.Score = "none"
		if after != "" {
			req.SetSearchAfter([]string{after})
		}
		found, err := x.bleve.SearchInContext(ctx, req)
		if err != nil {
			return err
		}
		batch := x.bleve.NewBatch()
		for _, hit := range found.Hits {
			after = hit.ID
			stored, _ := hit.Fields[fieldEntry].(string)
			_, name, _ := strings.Cut(hit.ID, separator)
			e, err := decode(name, []byte(stored))
			if err != nil {
				return err
			}
			if gone(e) {
				batch.Delete(hit.ID)
			}
		}
		if batch.Size() > 0 {
			if err := x.bleve.Batch(batch); err != nil {
				return err
			}
		}
		if len(found.Hits) < page {
			return nil
		}
	}
}

// Entries returns the entries of a kind in name order.
func (x *Index) Entries(ctx context.Context, kind, after string, limit int) (out []sink.Entry, err error) {
	err = x.read(func(r index.IndexReader) (err error) {
		// The dictionary of ids is in their order. It also has ids of removed documents.
		from := idOf(kind, after)
		dict, err := r.FieldDictRange("_id", []byte(from), []byte(kind+"\x01"))
		if err != nil {
			return err
		}
		defer func() {
			if closed := dict.Close(); err == nil {
				err = closed
			}
		}()
		for len(out) < limit {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			term, err := dict.Next()
			if err != nil || term == nil {
				return err
			}
			if !strings.HasPrefix(term.Term, kind+separator) || term.Term == from {
				continue
			}
			e, there, err := entryAt(r, term.Term)
			if err != nil {
				return err
			}
			if there {
				out = append(out, e)
			}
		}
		return nil
	})
	return out, err
}

// Lookup returns the entries of the named records.
func (x *Index) Lookup(_ context.Context, kind string, names []string) (out []sink.Entry, err error) {
	err = x.read(func(r index.IndexReader) error {
		for _, name := range names {
			e, there, err := entryAt(r, idOf(kind, name))
			if err != nil {
				return err
			}
			if there {
				out = append(out, e)
			}
		}
		return nil
	})
	return out, err
}
