package adapt

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

const (
	// windowNames and windowBytes limit what a scan of names in another order remembers: the first
	// names only. A page that needs more scans again.
	windowNames = 4000
	windowBytes = 8 << 20
	// namesPage is the number of stored names in one request.
	namesPage = 20_000
)

// candidate is a group that may show records of a page. It shows one record with the name low. If
// it is open, it may show any number, whose names begin with low.
type candidate struct {
	low  string
	open bool
	id   transform.GroupID
}

// window holds the first candidates among those added, with the last one on top.
type window struct {
	of      []candidate
	in      map[transform.GroupID]bool
	bytes   int
	most    int
	bound   string // first name that a dropped candidate may have
	bounded bool   // a candidate was dropped
}

func (w *window) Len() int           { return len(w.of) }
func (w *window) Less(i, j int) bool { return w.of[i].low > w.of[j].low }
func (w *window) Swap(i, j int)      { w.of[i], w.of[j] = w.of[j], w.of[i] }
func (w *window) Push(x any)         { w.of = append(w.of, x.(candidate)) } //nolint:forcetypeassert // heap is given candidates
func (w *window) Pop() any {
	last := w.of[len(w.of)-1]
	w.of = w.of[:len(w.of)-1]
	return last
}

// add keeps a candidate if it is among the first.
func (w *window) add(c candidate) {
	// Each group once, and nothing at or beyond a dropped candidate: the next window starts there.
	if w.in[c.id] || w.bounded && c.low >= w.bound {
		return
	}
	w.in[c.id] = true
	w.bytes += len(c.low)
	heap.Push(w, c)
	// Keep at least one, or a list could not advance.
	for len(w.of) > 1 && (len(w.of) > w.most || w.bytes > windowBytes) {
		out := heap.Pop(w).(candidate) //nolint:forcetypeassert // as above
		delete(w.in, out.id)
		w.bytes -= len(out.low)
		w.bound, w.bounded = out.low, true
	}
}

// source provides the candidates and groups for a page in another order.
type source interface {
	// window returns the first candidates in order. With from, they begin at from. For the first
	// window, they reach beyond the page's start.
	window(ctx context.Context, p page, from string) (*window, error)
	load(ctx context.Context, of []candidate) (groups, error)
}

// merge lists a kind whose stored names sort differently. It takes the first names after the page's
// start, as the version shown has them, from the index. Without an index it scans the stored names.
// It then reads the groups of these names. So it reads about as many records as the page has,
// however many exist.
//
// Each page shows the state at its request, and starts after a name, which a record keeps as long
// as it exists. So a record that exists all the time is listed exactly once. Changes in between,
// another server for the next page, or another active version make no difference.
func (a *Adapter) merge(ctx context.Context, p page) ([]record.Record, error) {
	if x := a.indexes[p.kind]; x != nil && !a.alone.Load() {
		of := &indexed{a: a, x: x}
		err := x.fill(ctx, a)
		var recs []record.Record
		if err == nil {
			recs, err = a.mergeOf(ctx, p, of)
		}
		if errors.Is(err, errMoved) { // retry once: the index is up to date then
			recs, err = a.mergeOf(ctx, p, of)
		}
		if !errors.Is(err, errNoIndex) {
			return recs, err
		}
	}
	return a.mergeOf(ctx, p, walk{a})
}

// paged handles an error of a PagingStore. If the store does not support the request, the adapter
// never asks again.
func (a *Adapter) paged(err error) error {
	var unsupported *record.UnsupportedError
	if errors.As(err, &unsupported) {
		a.alone.Store(true)
		return errNoIndex
	}
	return err
}

func (a *Adapter) mergeOf(ctx context.Context, p page, from source) (recs []record.Record, err error) {
	keep := keeper(ctx)
	defer func() { keep(recs) }()
	begin := "" // names before it were read
	for most := fullPage; ; {
		w, err := from.window(ctx, p, begin)
		if err != nil {
			return nil, err
		}
		for len(w.of) > 0 {
			// Read as many groups as records are missing, because most groups show one record.
			n := min(len(w.of), max(p.limit-len(p.recs), 1), most)
			of := w.of[:n]
			stored, err := from.load(ctx, of)
			if errors.Is(err, record.ErrTooLarge) && n > 1 {
				// These groups do not fit in memory at once. w.of is unchanged, so the next round reads
				// fewer.
				keep(p.recs)
				most = n / 2
				continue
			}
			if err != nil {
				return nil, err
			}
			w.of = w.of[n:]
			ids, groups := make([]transform.GroupID, len(of)), make([][]record.Record, len(of))
			for i, c := range of {
				if ids[i] = c.id; led(a.leads[p.kind], stored[c.id]) {
					groups[i] = stored[c.id]
				}
			}
			shown, err := a.projectAll(ids, groups)
			if err != nil {
				return nil, err
			}
			for _, recs := range shown {
				p.add(recs)
			}
			keep(p.recs)
			// Records at or after the next candidate's name may still be missing, so they do not count
			// yet.
			if end, ends := w.next(); ends {
				if p.until(end) >= p.limit {
					return p.sorted(), nil
				}
			}
		}
		// The window held all candidates, so the list ends here.
		if !w.bounded {
			return p.sorted(), nil
		}
		begin = w.bound
	}
}

// next returns the first name that an unread candidate may have.
func (w *window) next() (name string, ends bool) {
	if len(w.of) > 0 {
		return w.of[0].low, true
	}
	return w.bound, w.bounded
}

// until returns the number of records of the page before a name.
func (p *page) until(name string) (n int) {
	for _, rec := range p.recs {
		if have, _ := rec.Key.Name(); have < name {
			n++
		}
	}
	return n
}

// walk is the source that scans the stored names for each page.
type walk struct{ a *Adapter }

func (of walk) load(ctx context.Context, cs []candidate) (groups, error) {
	ids := make([]transform.GroupID, len(cs))
	for i, c := range cs {
		ids[i] = c.id
	}
	return of.a.loadAll(ctx, ids, true)
}

func (of walk) window(ctx context.Context, p page, from string) (*window, error) {
	a := of.a
	w := &window{in: map[transform.GroupID]bool{}, most: a.most.window}
	kinds, prefix := a.sources(p)
	for _, kind := range kinds {
		err := a.names(ctx, kind, prefix, func(name string) error {
			c, ok := a.candidate(p.kind, kind, name)
			switch {
			case !ok:
				return nil
			// An open candidate may have names on both sides of the start.
			case c.open:
				ok = (strings.HasPrefix(c.low, p.prefix) || strings.HasPrefix(p.prefix, c.low)) && (c.low > p.after || strings.HasPrefix(p.after, c.low))
			default:
				ok = strings.HasPrefix(c.low, p.prefix) && (p.after == "" || c.low > p.after)
			}
			if ok && c.low >= from {
				w.add(c)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	// The heap has the last candidate on top. The page needs the first.
	slices.SortFunc(w.of, func(a, b candidate) int { return strings.Compare(a.low, b.low) })
	return w, nil
}

// candidate returns the candidate of a stored record's group, for a kind shown.
func (a *Adapter) candidate(kind, stored, name string) (candidate, bool) {
	id, ok, err := a.show.GroupOf(stored, record.StringKey(name))
	if !ok || err != nil {
		return candidate{}, false // no group, as in members
	}
	for _, sel := range a.show.TargetSelect(id) {
		if low, ok := sel.Key.Name(); ok && sel.Kind == kind {
			return candidate{low, sel.Prefix, id}, true
		}
	}
	return candidate{}, false
}

// names calls fn for all stored names of a kind with a prefix, until fn fails.
func (a *Adapter) names(ctx context.Context, kind, prefix string, fn func(name string) error) error {
	if a.batch == nil {
		return a.each(ctx, kind, prefix, func(rec record.Record) error {
			if name, ok := rec.Key.Name(); ok {
				return fn(name)
			}
			return nil
		})
	}
	for after := ""; ; {
		names, err := a.batch.ListNames(ctx, kind, prefix, after, namesPage)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := fn(name); err != nil {
				return err
			}
			after = name
		}
		if len(names) < namesPage {
			return nil
		}
	}
}
