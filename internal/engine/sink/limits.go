package sink

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"dbcontroller.dev/record"
)

const (
	// readBytes bounds the records that one read returns.
	readBytes = 16 << 20
	// textBytes bounds the texts of one document. The rest is not in the sink.
	textBytes = 1 << 20
)

// read reads records in runs that fit into readBytes, and calls do with each run. A single record may
// be larger.
func (f *Follower) read(ctx context.Context, sels []record.Selector, notBefore record.Version, do func(run []record.Selector, snap record.Snapshot) error) error {
	for n := pageSize; len(sels) > 0; {
		n = min(n, len(sels))
		bytes := readBytes
		if n == 1 {
			bytes = 0
		}
		snap, err := f.source.Read(ctx, sels[:n], notBefore, bytes)
		if n > 1 && errors.Is(err, record.ErrTooLarge) {
			n /= 2
			continue
		}
		if err != nil {
			return err
		}
		if err := do(sels[:n], snap); err != nil {
			return err
		}
		// Grow again: one run of large records should not slow down the rest.
		sels, n = sels[n:], min(2*n, pageSize)
	}
	return nil
}

// document returns the document of a record, which is empty after an error. No error has values of
// the record: operators may read logs, but not the data.
func (f *Follower) document(r record.Record) (Document, error) {
	if r.Err != nil {
		return Document{}, &record.ConcealedError{Err: r.Err, Text: record.Conceal(r.Err.Error(), r.Doc)}
	}
	doc, err := f.cfg.Kinds[r.Kind](r)
	if err != nil || doc == nil {
		return Document{}, err
	}
	return doc.cut(textBytes), nil
}

// cut returns a document with at most most bytes of texts: those of the first fields in their order.
func (d Document) cut(most int) Document {
	size := 0
	for _, texts := range d {
		for _, text := range texts {
			size += len(text)
		}
	}
	if size <= most {
		return d
	}
	out := Document{}
	for _, field := range slices.Sorted(maps.Keys(d)) {
		for _, text := range d[field] {
			if len(text) > most {
				text = strings.ToValidUTF8(text[:most], "") // no half character at the end
			}
			if most -= len(text); text != "" {
				out[field] = append(out[field], text)
			}
		}
	}
	return out
}
