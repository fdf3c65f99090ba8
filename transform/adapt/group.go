package adapt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// attempts bounds how often a group that changes under way is read or written again.
const attempts = 40

// fullPage is what a Store returns of a list without a limit.
const fullPage = 1000

// errRaced: a group has changed while it was read or written.
var errRaced = errors.New("the group changed meanwhile")

// again calls try until it does not find that a group has changed meanwhile.
func again(ctx context.Context, what string, try func() error) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(500*time.Microsecond), backoff.WithMaxInterval(20*time.Millisecond))
	for range attempts {
		err := try()
		if !errors.Is(err, errRaced) {
			return err
		}
		select {
		case <-time.After(retry.NextBackOff()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("%s changed %d times meanwhile: %w", what, attempts, record.ErrMismatch)
}

// load reads a stored group as it was at one moment. A group that one command reads is;
// others are read until two readings are the same.
func (a *Adapter) load(ctx context.Context, id transform.GroupID) ([]record.Record, error) {
	sels := a.show.SourceSelect(id)
	now, err := a.read(ctx, id, sels)
	if err != nil || (len(sels) == 1 && !sels[0].Prefix) {
		return now, err
	}
	err = again(ctx, "the group of "+transform.ShowGroup(id.Name), func() error {
		before := now
		if now, err = a.read(ctx, id, sels); err != nil {
			return err
		}
		if !slices.EqualFunc(before, now, same) {
			return errRaced
		}
		return nil
	})
	return now, err
}

func same(a, b record.Record) bool {
	return a.Kind == b.Kind && a.Key == b.Key && bytes.Equal(a.Doc, b.Doc)
}

// read reads the members of a group once, in their order.
func (a *Adapter) read(ctx context.Context, id transform.GroupID, sels []record.Selector) ([]record.Record, error) {
	var out []record.Record
	add := func(rec record.Record) {
		if of, ok, err := a.show.GroupOf(rec.Kind, rec.Key); ok && err == nil && of == id {
			out = append(out, rec)
		}
	}
	for _, sel := range sels {
		name, ok := sel.Key.Name()
		if !ok {
			return nil, a.unsupported(sel.Kind, fmt.Sprintf("the key %s is no string, and services reach records by name", sel.Key))
		}
		if sel.Prefix {
			if err := a.each(ctx, sel.Kind, name, func(rec record.Record) error { add(rec); return nil }); err != nil {
				return nil, err
			}
			continue
		}
		rec, err := a.stored.Get(ctx, sel.Kind, name)
		switch {
		case errors.Is(err, record.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			add(rec)
		}
	}
	transform.SortRecords(out)
	return out, nil
}

// each calls fn for all stored records of a kind whose names have a prefix.
func (a *Adapter) each(ctx context.Context, kind, prefix string, fn func(record.Record) error) error {
	for after := ""; ; {
		page, err := a.stored.List(ctx, kind, prefix, after, fullPage)
		if err != nil {
			return err
		}
		for _, rec := range page {
			if err := fn(rec); err != nil {
				return err
			}
			after, _ = rec.Key.Name()
		}
		if len(page) < fullPage {
			return nil
		}
	}
}

// project makes what a stored group shows, in the order of records of a group.
func (a *Adapter) project(id transform.GroupID, stored []record.Record) ([]record.Record, error) {
	if len(stored) == 0 {
		return nil, nil
	}
	out, err := a.show.Transform(id, transform.Group{Name: id.Name, Records: stored}, transform.Group{Name: id.Name})
	if err != nil {
		return nil, fmt.Errorf("%w: show %s as %s: %w", ErrTransform, transform.ShowGroup(id.Name), a.show.To(), err)
	}
	return out, nil
}

// shown reads a group and makes what it shows.
func (a *Adapter) shown(ctx context.Context, id transform.GroupID) ([]record.Record, error) {
	stored, err := a.load(ctx, id)
	if err != nil {
		return nil, err
	}
	return a.project(id, stored)
}

// Get returns a record as the version shown has it.
func (a *Adapter) Get(ctx context.Context, kind, key string) (record.Record, error) {
	id, err := a.groupOf(kind, record.StringKey(key))
	if errors.Is(err, ErrTransform) {
		err = fmt.Errorf("%w: %w", record.ErrNotFound, err) // nothing stored could show it
	}
	if err != nil {
		return record.Record{}, err
	}
	shown, err := a.shown(ctx, id)
	if err != nil {
		return record.Record{}, err
	}
	i := find(shown, kind, record.StringKey(key))
	if i < 0 {
		return record.Record{}, fmt.Errorf("%s %s: %w", kind, key, record.ErrNotFound)
	}
	return shown[i], nil
}

// find returns the place of a record, negative if it is not there.
func find(recs []record.Record, kind string, key record.Key) int {
	return slices.IndexFunc(recs, func(r record.Record) bool { return r.Kind == kind && r.Key == key })
}
