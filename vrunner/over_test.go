package vrunner_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// lines shows each record of kind "pages" as records of kind "lines", "<page>/<line>", one for
// each word of its value, and as one of kind "titles".
type lines struct{ stored vrunner.Store }

func (l lines) Follows(...string) []string { return []string{"pages"} }
func (l lines) Several(kind string) bool   { return kind == "lines" }

func (l lines) Affected(_, name string) ([]record.Selector, error) {
	return []record.Selector{
		{Kind: "lines", Key: record.StringKey(name + "/"), Prefix: true}, {Kind: "titles", Key: record.StringKey(name)},
	}, nil
}

func (l lines) Get(context.Context, string, string) (record.Record, error) {
	return record.Record{}, record.ErrNotFound
}
func (l lines) Write(context.Context, []record.Mutation) error { return nil }

func (l lines) List(ctx context.Context, kind, prefix, after string, limit int) (out []record.Record, err error) {
	pages, err := l.stored.List(ctx, "pages", "", "", 0)
	for _, p := range pages {
		for word := range strings.FieldsSeq(p.Doc.Lookup("value").StringValue()) {
			if name := p.Key.String() + "/" + word; strings.HasPrefix(name, prefix) && name > after && len(out) < limit {
				out = append(out, record.Record{Kind: kind, Key: record.StringKey(name)})
			}
		}
	}
	return out, err
}

// losing is a store whose subscriptions lose what they are told to.
type losing struct {
	*sampletest.Store
	lose *bool
}

func (l losing) Changes(ctx context.Context, kinds ...string) (vrunner.Subscription, error) {
	s, err := l.Store.Changes(ctx, kinds...)
	return losingChanges{s, l.lose}, err
}

type losingChanges struct {
	vrunner.Subscription
	lose *bool
}

func (l losingChanges) Next(ctx context.Context) ([]vrunner.Dirty, error) {
	dirty, err := l.Subscription.Next(ctx)
	if *l.lose && err == nil {
		*l.lose = false
		return nil, vrunner.ErrLost
	}
	return dirty, err
}

// TestOverSeveral: of records of which a stored one shows several, those that came, stay and
// went are reported, those that went since the beginning and since what was lost among them.
func TestOverSeveral(t *testing.T) {
	t.Parallel()
	lose := false
	stored := losing{sampletest.New(t, "pages"), &lose}
	write := func(name, value string) {
		t.Helper()
		m := record.Mutation{Kind: "pages", Key: record.StringKey(name)}
		if value != "" {
			m.Doc, _ = bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "value", Value: value}})
		}
		if err := stored.Write(t.Context(), []record.Mutation{m}); err != nil {
			t.Fatal(err)
		}
	}
	write("p", "b c")
	write("q", "x")
	changes, err := vrunner.Over(stored, lines{stored}).Changes(t.Context(), "lines")
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close()
	next := func(want ...string) {
		t.Helper()
		dirty, err := changes.Next(t.Context())
		var have []string
		for _, d := range dirty {
			have = append(have, d.Kind+" "+d.Name)
		}
		if err != nil || !slices.Equal(have, want) {
			t.Errorf("%q, %v, want %q", have, err, want)
		}
	}
	write("p", "a c")
	next("lines p/a", "lines p/b", "lines p/c")
	write("p", "c")
	next("lines p/a", "lines p/c")
	write("q", "")
	next("lines q/x")
	lose = true
	write("q", "y")
	if dirty, err := changes.Next(t.Context()); err == nil {
		t.Errorf("%v, want it to be lost", dirty)
	}
	write("q", "")
	next("lines q/y")

	// What came and went before the first change is reported to who was shown it.
	late, err := vrunner.Over(stored, lines{stored}).Changes(t.Context(), "lines")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	write("q", "soon")
	late.(vrunner.Lister).Listed("lines", "q/soon")
	write("q", "")
	if dirty, err := late.Next(t.Context()); err != nil || !slices.Equal(dirty, []vrunner.Dirty{{Kind: "lines", Name: "q/soon"}}) {
		t.Errorf("%v, %v, want what was shown and is gone", dirty, err)
	}

	titles, err := vrunner.Over(stored, lines{stored}).Changes(t.Context(), "titles")
	if err != nil {
		t.Fatal(err)
	}
	defer titles.Close()
	write("q", "z")
	if dirty, err := titles.Next(t.Context()); err != nil || !slices.Equal(dirty, []vrunner.Dirty{{Kind: "titles", Name: "q"}}) {
		t.Errorf("%v, %v", dirty, err)
	}
}

// TestOverCountsNames: the names that a subscription remembers count as memory, as many as there are.
// Without room for them it is refused, and a stream runs again.
func TestOverCountsNames(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		stored := sampletest.New(t, "pages")
		write := func(value string) {
			t.Helper()
			doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "p"}, {Key: "value", Value: value}})
			if err == nil {
				err = stored.Write(ctx, []record.Mutation{{Kind: "pages", Key: record.StringKey("p"), Doc: doc}})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		const room, each = 400, 16 + 3 // for ten names of three bytes, which may take half
		budget := memory.NewBudget(room)
		subscribe := func(ctx context.Context) (vrunner.Subscription, error) {
			return vrunner.Over(stored, lines{stored}).Changes(memory.With(ctx, budget.Share(room)), "lines")
		}
		hold := func(what string, names int64) {
			t.Helper()
			if held := room - budget.Left(); held != names*each {
				t.Errorf("%s: %d bytes are held, want those of %d names", what, held, names)
			}
		}
		next := func(c vrunner.Subscription, want refusal.Reason) {
			t.Helper()
			if _, err := c.Next(ctx); why(err) != want {
				t.Errorf("%v, want %q", err, want)
			}
		}
		write("a b c")
		c, err := subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		hold("at first", 3)
		write("a b c d e")
		next(c, "")
		hold("after two came", 5)
		c.(vrunner.Lister).Listed("lines", "p/x")
		hold("after one was shown", 6)
		write("a")
		next(c, "")
		hold("after others went", 1)
		write("a b c d e f g h i j k l")
		next(c, refusal.Busy)
		write("a b")
		next(c, "")
		hold("with room again", 2)
		// Names that the caller lists may find no room. Then none stays uncounted, and the caller lists
		// again.
		for _, line := range []string{"c", "d", "e", "f", "g", "h", "i", "j", "k"} {
			c.(vrunner.Lister).Listed("lines", "p/"+line)
		}
		hold("without room for a listed one", 0)
		if _, err := c.Next(ctx); !errors.Is(err, vrunner.ErrLost) {
			t.Errorf("%v, want that the caller lists again", err)
		}
		hold("after it listed again", 2)
		write("a")
		next(c, "")
		hold("after another change", 1)
		c.Close()
		hold("in the end", 0)
		write("a b c d e f g h i j k l")
		if _, err := subscribe(ctx); why(err) != refusal.Busy {
			t.Errorf("without room: %v", err)
		}
		hold("after it was refused", 0)

		w := newWorld(ctx, t, plain)
		r, _ := following(ctx, w, w.clients(), vrunner.Config{})
		runs := 0
		err = r.Stream(ctx, func(ctx context.Context, _ string) error {
			if runs++; runs == 2 {
				return nil
			}
			write("a")
			c, err := subscribe(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			write("a b c d e f g h i j k l")
			_, err = c.Next(ctx)
			return err
		})
		if err != nil || runs != 2 {
			t.Errorf("%d runs of the stream, %v", runs, err)
		}
	})
}
