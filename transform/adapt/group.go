package adapt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// attempts bounds how often a group that changes under way is read or written again.
const attempts = 40

// fullPage is what a Store returns of a list without a limit, and how many groups one command
// reads at most.
const fullPage = 1000

// loads is how many groups are read at a time from a Store that reads one record at a time.
const loads = 8

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

// groups are the stored records of groups, in their order. What is not there has no entry.
type groups map[transform.GroupID][]record.Record

// loadAll reads stored groups, each as it was at one moment; as a list, of which no record
// has to be the very latest. A BatchStore reads them all with one command for each of their
// kinds.
func (a *Adapter) loadAll(ctx context.Context, ids []transform.GroupID, asList bool) (groups, error) {
	found := make(groups, len(ids))
	if a.batch == nil {
		each := make([][]record.Record, len(ids))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(loads)
		for i, id := range ids {
			g.Go(func() (err error) {
				each[i], err = a.load(ctx, id)
				return err
			})
		}
		err := g.Wait()
		for i, id := range ids {
			found[id] = each[i]
		}
		return found, err
	}
	for ids := range slices.Chunk(ids, fullPage) {
		sels, err := a.selectAll(ids)
		if err != nil {
			return nil, err
		}
		recs, err := a.batch.Select(ctx, sels, asList)
		if err != nil {
			return nil, err
		}
		a.sort(found, ids, recs)
	}
	return found, nil
}

// loadAt is loadAll as a list, with the moment that it shows: of several the last one.
func (a *Adapter) loadAt(ctx context.Context, of []candidate) (found groups, at record.Version, err error) {
	found = make(groups, len(of))
	for of := range slices.Chunk(of, fullPage) {
		ids := make([]transform.GroupID, len(of))
		for i, c := range of {
			ids[i] = c.id
		}
		sels, err := a.selectAll(ids)
		if err != nil {
			return nil, at, err
		}
		snap, err := a.paging.SelectAt(ctx, sels)
		if err != nil {
			return nil, at, a.paged(err)
		}
		if snap.Version.Compare(at) > 0 {
			at = snap.Version
		}
		a.sort(found, ids, snap.Records)
	}
	return found, at, nil
}

func (a *Adapter) selectAll(ids []transform.GroupID) (sels []record.Selector, err error) {
	for _, id := range ids {
		of, err := a.selectors(id)
		if err != nil {
			return nil, err
		}
		sels = append(sels, of...)
	}
	return sels, nil
}

// sort puts stored records into their groups.
func (a *Adapter) sort(found groups, ids []transform.GroupID, recs []record.Record) {
	for _, id := range ids {
		found[id] = nil
	}
	for _, rec := range recs {
		id, ok, err := a.show.GroupOf(rec.Kind, rec.Key)
		if of, wanted := found[id]; ok && err == nil && wanted {
			found[id] = append(of, rec)
		}
	}
	for _, id := range ids {
		transform.SortRecords(found[id])
	}
}

// selectors find the stored records of a group.
func (a *Adapter) selectors(id transform.GroupID) ([]record.Selector, error) {
	sels := a.show.SourceSelect(id)
	for _, sel := range sels {
		if _, ok := sel.Key.Name(); !ok {
			return nil, a.unsupported(sel.Kind, fmt.Sprintf("the key %s is no string, and services reach records by name", sel.Key))
		}
	}
	return sels, nil
}

// load reads a stored group as it was at one moment. A group that one command reads is;
// others are read until two readings are the same.
func (a *Adapter) load(ctx context.Context, id transform.GroupID) ([]record.Record, error) {
	sels, err := a.selectors(id)
	if err != nil {
		return nil, err
	}
	single := len(sels) == 1 && !sels[0].Prefix
	if a.batch != nil && !single {
		found, err := a.loadAll(ctx, []transform.GroupID{id}, false)
		return found[id], err
	}
	now, err := a.read(ctx, id, sels)
	if err != nil || single {
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

// read reads the members of a group once, one after the other, in their order.
func (a *Adapter) read(ctx context.Context, id transform.GroupID, sels []record.Selector) ([]record.Record, error) {
	var out []record.Record
	add := func(rec record.Record) {
		if of, ok, err := a.show.GroupOf(rec.Kind, rec.Key); ok && err == nil && of == id {
			out = append(out, rec)
		}
	}
	for _, sel := range sels {
		name, _ := sel.Key.Name()
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

// each calls fn for all stored records of a kind whose names have a prefix, until it fails.
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

// projectAll makes what groups show. Where there are many they are shared among processors: a
// page is not to take much longer than to read it.
func (a *Adapter) projectAll(ids []transform.GroupID, stored [][]record.Record) ([][]record.Record, error) {
	const share = 100
	shown := make([][]record.Record, len(ids))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < len(ids); from += share {
		g.Go(func() (err error) {
			for i := from; i < min(from+share, len(ids)); i++ {
				if shown[i], err = a.project(ids[i], stored[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return shown, g.Wait()
}

// led reports whether a group has a live record of the kind that leads, without which it is not
// listed, whatever else is left of it; any group if none leads.
func led(lead string, stored []record.Record) bool {
	return lead == "" || slices.ContainsFunc(stored, func(r record.Record) bool { return r.Kind == lead })
}

// shown reads a group and makes what it shows.
func (a *Adapter) shown(ctx context.Context, id transform.GroupID) ([]record.Record, error) {
	stored, err := a.load(ctx, id)
	if err != nil {
		return nil, err
	}
	return a.project(id, stored)
}

// Get returns a record as the version shown has it. The error is record.ErrNotFound if that version
// has no such record, and ErrTransform if its group cannot be shown.
func (a *Adapter) Get(ctx context.Context, kind, key string) (record.Record, error) {
	id, err := a.groupOf(kind, record.StringKey(key))
	if errors.Is(err, ErrTransform) {
		err = fmt.Errorf("%w: %w", record.ErrNotFound, err) // nothing stored could show it
	}
	if err != nil {
		return record.Record{}, about(kind, key, err)
	}
	shown, err := a.shown(ctx, id)
	if err != nil {
		return record.Record{}, about(kind, key, err)
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
