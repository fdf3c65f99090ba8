package blevesink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

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
func (x *Index) Write(ctx context.Context, items []sink.Item, state sink.State) error {
	return x.writing(ctx, func() error { return x.write(items, state) })
}

func (x *Index) write(items []sink.Item, state sink.State) error {
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
func (x *Index) read(do func(index.IndexReader) error) (err error) {
	in, err := x.bleve.Advanced()
	if err != nil {
		return err
	}
	r, err := in.Reader()
	if err != nil {
		return err
	}
	defer func() { // also after a panic
		if closed := r.Close(); err == nil {
			err = closed
		}
	}()
	return do(r)
}

// readSafely is read for callers that only read.
func (x *Index) readSafely(ctx context.Context, do func(index.IndexReader) error) error {
	return x.reading(ctx, func() error { return x.read(do) })
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
	return x.writing(ctx, func() error {
		return x.read(func(r index.IndexReader) (err error) {
			limit := generation(before)
			dict, err := r.FieldDictRange(fieldGeneration, nil, []byte(limit))
			if err != nil {
				return err
			}
			defer func() {
				if closed := dict.Close(); err == nil {
					err = closed
				}
			}()
			for {
				term, err := dict.Next()
				if err != nil || term == nil || term.Term >= limit {
					return err
				}
				if err := x.remove(ctx, r, fieldGeneration, term.Term, nil); err != nil {
					return err
				}
			}
		})
	})
}

// Purge removes the tombstones with a lower guard.
func (x *Index) Purge(ctx context.Context, before record.Guard) error {
	return x.writing(ctx, func() error {
		return x.read(func(r index.IndexReader) error {
			for kind := range x.kinds {
				err := x.remove(ctx, r, fieldDead, kind, func(e sink.Entry) bool { return e.Guard.Compare(before) < 0 })
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// removeTogether is the number of documents that one batch removes.
const removeTogether = 1000

// remove removes the documents with a text in a field that gone selects; nil selects all. It goes
// once through the snapshot of r, which has the removed documents until the end.
func (x *Index) remove(ctx context.Context, r index.IndexReader, field, text string, gone func(sink.Entry) bool) (err error) {
	docs, err := r.TermFieldReader(ctx, []byte(text), field, false, false, false)
	if err != nil {
		return err
	}
	defer func() {
		if closed := docs.Close(); err == nil {
			err = closed
		}
	}()
	batch, n := x.bleve.NewBatch(), 0
	for {
		doc, err := docs.Next(nil)
		if err != nil {
			return err
		}
		if n > 0 && (doc == nil || n == removeTogether) {
			if err := x.bleve.Batch(batch); err != nil {
				return err
			}
			batch, n = x.bleve.NewBatch(), 0
		}
		if doc == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		id, err := r.ExternalID(doc.ID)
		if err != nil {
			return err
		}
		if gone != nil {
			e, there, err := entryAt(r, id)
			if err != nil {
				return err
			}
			if !there || !gone(e) {
				continue
			}
		}
		batch.Delete(id)
		n++
	}
}

// Entries returns the entries of a kind in name order.
func (x *Index) Entries(ctx context.Context, kind, after string, limit int) (out []sink.Entry, err error) {
	err = x.readSafely(ctx, func(r index.IndexReader) (err error) {
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
func (x *Index) Lookup(ctx context.Context, kind string, names []string) (out []sink.Entry, err error) {
	err = x.readSafely(ctx, func(r index.IndexReader) error {
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
