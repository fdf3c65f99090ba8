package vrunner_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/sample/sampletest"
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
