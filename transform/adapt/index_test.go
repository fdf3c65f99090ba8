package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/adapt"
)

// TestListsAreFresh: a list in another order shows what was acknowledged before it, by whichever
// server, and what was deleted no longer, however many write and list at a time.
func TestListsAreFresh(t *testing.T) {
	t.Parallel()
	for backend, open := range backends {
		for _, label := range []string{"names that sort otherwise", "no kind leads"} {
			t.Run(backend+", "+label, func(t *testing.T) {
				t.Parallel()
				w := ways[label]
				f := w.make(t, open(t))
				server, err := adapt.New(f.stored, f.show, f.keep, w.cfg) // another one
				if err != nil {
					t.Fatal(err)
				}
				for i := range 20 {
					put(t, f.adapter, w.kind, w.doc(w.name(1000*i)))
				}
				if got := strings.Fields(pages(t, f.adapter, w.kind, "", 7)); len(got) != 20 {
					t.Fatalf("listed %s", got)
				}
				g, ctx := errgroup.WithContext(t.Context())
				for n := range 3 {
					g.Go(func() error {
						for i := range 25 {
							rec := made(w.kind, w.doc(w.name(1000*(i%10)+n+1))) // made anew after it was deleted
							name, _ := rec.Key.Name()
							for _, there := range []bool{true, false} {
								m := record.Mutation{Kind: w.kind, Key: rec.Key}
								if there {
									m.Doc = rec.Doc
								}
								if err := server.Write(ctx, []record.Mutation{m}); err != nil {
									return err
								}
								for _, prefix := range []string{"", name[:1], name} {
									recs, err := f.adapter.List(ctx, w.kind, prefix, "", 100)
									if err != nil {
										return err
									}
									if listed := slices.ContainsFunc(recs, func(r record.Record) bool { return r.Key == rec.Key }); listed != there {
										return fmt.Errorf("%q is listed: %v, want %v", name, listed, there)
									}
								}
							}
						}
						return nil
					})
				}
				if err := g.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// faulty is a store that cannot always tell what has changed.
type faulty struct {
	*namespace
	err error
}

func (f *faulty) Since(ctx context.Context, after record.Position, kinds ...string) ([]record.Change, record.Position, error) {
	if f.err != nil {
		f.note("since")
		return nil, record.Position{}, f.err
	}
	return f.namespace.Since(ctx, after, kinds...)
}

func (f *faulty) ListWith(ctx context.Context, kind, prefix, after string, limit int, kinds []string, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	if f.err != nil {
		f.note("together")
		return nil, nil, f.err
	}
	return f.namespace.ListWith(ctx, kind, prefix, after, limit, kinds, also)
}

// TestWithoutAnIndex: where it is not known, or no longer known, what has changed, and where there
// are too many names, they are gone over.
func TestWithoutAnIndex(t *testing.T) {
	t.Parallel()
	w := ways["names that sort otherwise"]
	f := w.make(t, memstore.New())
	stored := &faulty{namespace: f.stored}
	a, err := adapt.New(stored, f.show, f.keep, w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	lists := func(what, asked string) {
		t.Helper()
		put(t, a, w.kind, w.doc(w.name(n)))
		n++
		stored.asked = nil
		got := strings.Fields(pages(t, a, w.kind, "", 100))
		if len(got) != n || !slices.IsSorted(got) {
			t.Errorf("%s: listed %s, want %d", what, got, n)
		}
		if have := strings.Join(stored.asked, " "); have != asked {
			t.Errorf("%s: asked %s, want %s", what, have, asked)
		}
	}
	lists("filled", "since names select")
	lists("one more", "select since select")
	stored.err = record.ErrHistoryLost
	lists("lost", "select since names select")
	stored.err = nil
	lists("filled again", "since names select")
	a.Remember(100, 500)
	lists("too many", "select since names select")
	lists("still too many", "names select")
	b, err := adapt.New(stored, f.show, f.keep, w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	a = b
	stored.err = errors.New("no stream")
	lists("not known", "since names select")
	lists("not known either", "since names select")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.List(ended, w.kind, "", "", 10); !errors.Is(err, context.Canceled) {
		t.Errorf("a list that nobody waits for: %v", err)
	}
	stored.err = &record.UnsupportedError{What: "a cluster"}
	lists("unsupported", "since names select")
	lists("not asked again", "names select")
	led := ways["one kind leads"]
	f = led.make(t, memstore.New())
	stored.namespace = f.stored
	if a, err = adapt.New(stored, f.show, f.keep, led.cfg); err != nil {
		t.Fatal(err)
	}
	w, n = led, 0
	lists("groups, unsupported", "together names select")
	lists("groups, not asked again", "names select")
}

// TestIdleIndex: an index that no list uses is forgotten.
func TestIdleIndex(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := ways["names that sort otherwise"]
		f := w.make(t, memstore.New())
		put(t, f.adapter, w.kind, w.doc(w.name(1)))
		lists := func(want string) {
			t.Helper()
			f.stored.asked = nil
			if got := pages(t, f.adapter, w.kind, "", 10); got != w.name(1) || strings.Join(f.stored.asked, " ") != want {
				t.Errorf("listed %s by %v, want %s", got, f.stored.asked, want)
			}
		}
		lists("since names select")
		for range 4 {
			time.Sleep(40 * time.Second)
			lists("select")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		lists("since names select")
	})
}

// TestManyNames: an index of many names has them in order, wherever they come.
func TestManyNames(t *testing.T) {
	t.Parallel()
	w := ways["names that sort otherwise"]
	f := w.make(t, memstore.New())
	var ms []record.Mutation
	add := func(i int) {
		rec := made(w.kind, w.doc(fmt.Sprintf("%d/x%d", i%7, i)))
		ms = append(ms, record.Mutation{Kind: w.kind, Key: rec.Key, Doc: rec.Doc})
	}
	const names = 6000
	write := func() {
		t.Helper()
		for some := range slices.Chunk(ms, 500) {
			if err := f.adapter.Write(t.Context(), some); err != nil {
				t.Fatal(err)
			}
		}
		ms = nil
	}
	for i := range 2000 {
		add(3 * i)
	}
	write()
	if got := strings.Fields(pages(t, f.adapter, w.kind, "", 1000)); len(got) != 2000 {
		t.Fatalf("%d are listed", len(got))
	}
	for i := range names { // most of them between two others, and the last ones behind all
		if i%3 != 0 {
			add(i)
		}
	}
	write()
	for _, size := range []int{700, 1000} {
		if got := strings.Fields(pages(t, f.adapter, w.kind, "", size)); len(got) != names || !slices.IsSorted(got) || len(slices.Compact(got)) != names {
			t.Errorf("%d are listed, sorted %v", len(got), slices.IsSorted(got))
		}
	}
	if got := strings.Fields(pages(t, f.adapter, w.kind, "3/x1", 100)); !slices.ContainsFunc(got, func(s string) bool { return s == "3/x10" }) || !slices.IsSorted(got) {
		t.Errorf("listed %v", got)
	}
}
