package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/adapt"
)

// kindOfError is what a caller can recognize of an error.
func kindOfError(err error) error {
	for _, kind := range []error{record.ErrNotFound, record.ErrExists, record.ErrMismatch} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}

// content shows a document without the order of its fields, which a transformer may change.
func content(t fatal, doc bson.Raw) string {
	t.Helper()
	var m map[string]any
	if err := bson.Unmarshal(doc, &m); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(m)
}

func contents(t fatal, recs []record.Record) (out []string) {
	t.Helper()
	for _, r := range recs {
		out = append(out, r.Kind+" "+r.Key.String()+" "+content(t, r.Doc))
	}
	return out
}

// aspects are the pairs of versions that the property is checked for.
var aspects = map[string]struct {
	kind  string
	cfg   adapt.Config
	make  func(t fatal) (face, *namespace) // and the model, a native store
	name  *rapid.Generator[string]
	doc   func(name string, n int, body string) bson.D
	field string // of doc, with the body
	extra func(t fatal, f face, name string, n int) bool
}{
	"1 to 1 + N": {
		kind: "wholes",
		cfg:  adapt.Config{Leads: map[string]string{"wholes": "heads"}},
		make: func(t fatal) (face, *namespace) {
			return wholesOverV2(t), namespaceOn(t, memstore.New(), record.KindSpec{Name: "wholes"})
		},
		name:  rapid.SampledFrom([]string{"a", "a-b", "a.c", "ab", "b", "c"}),
		doc:   whole,
		field: "body.text",
		// A native v2 writer adds a part that v1 does not show; it checks the head.
		extra: func(t fatal, f face, name string, n int) bool {
			head, err := f.stored.Get(context.Background(), "heads", name)
			if err != nil {
				return false
			}
			key := fmt.Sprintf("%s/extra%d", name, n)
			part := made("parts", bson.D{{Key: "_id", Value: key}, {Key: "body", Value: n}})
			err = f.stored.Write(context.Background(), []record.Mutation{
				{Kind: "heads", Key: head.Key, Doc: head.Doc, Match: record.MatchDoc(head.Doc)}, {Kind: "parts", Key: part.Key, Doc: part.Doc},
			})
			if err != nil {
				t.Fatal(err)
			}
			return true
		},
	},
	"another order of names": {
		kind: "things",
		make: func(t fatal) (face, *namespace) {
			return newFace(t, memstore.New(), swapped(t), "v2", "v1", adapt.Config{}), namespaceOn(t, memstore.New(), record.KindSpec{Name: "things"})
		},
		name: rapid.SampledFrom([]string{"a/z", "a/y", "b/x", "b/z", "c-/x", "c/x"}),
		doc: func(name string, n int, body string) bson.D {
			return bson.D{{Key: "_id", Value: name}, {Key: "n", Value: int32(n)}, {Key: "text", Value: body}}
		},
		field: "text",
		extra: func(t fatal, f face, name string, n int) bool {
			a, b, _ := strings.Cut(name, "/")
			rec, err := f.stored.Get(context.Background(), "items", b+"/"+a)
			if err != nil {
				return false
			}
			var d bson.D
			if err := bson.Unmarshal(rec.Doc, &d); err != nil {
				t.Fatal(err)
			}
			d = slices.DeleteFunc(d, func(e bson.E) bool { return e.Key == "extra" })
			put(t, f.stored, "items", append(d, bson.E{Key: "extra", Value: int32(n)}))
			return true
		},
	},
}

// oneByOne shows the same over a store that reads one record at a time.
func oneByOne(t fatal, f face, cfg adapt.Config) face {
	t.Helper()
	a, err := adapt.New(single{f.stored}, f.show, f.keep, cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.adapter = a
	return f
}

// extras are what the stored version has in addition to what is shown.
func extras(t fatal, f face) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for kind := range f.stored.tokens {
		recs, err := f.stored.List(context.Background(), kind, "", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			if name := r.Key.String(); strings.Contains(name, "/extra") {
				head, _, _ := strings.Cut(name, "/")
				out[head+" "+name] = true
			}
			if v, ok := r.Doc.Lookup("extra").Int32OK(); ok {
				a, b, _ := strings.Cut(r.Key.String(), "/")
				out[fmt.Sprintf("%s/%s %d", b, a, v)] = true
			}
		}
	}
	return out
}

// TestModel: an adapter is, to its callers, the store of the version that it shows; and
// what it does not show stays, until its record is deleted.
func TestModel(t *testing.T) {
	t.Parallel()
	for label, as := range aspects {
		slow := as
		slow.make = func(t fatal) (face, *namespace) {
			f, model := as.make(t)
			return oneByOne(t, f, as.cfg), model
		}
		aspects[label+", one by one"] = slow
	}
	for label, as := range aspects {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				ctx := context.Background()
				f, model := as.make(t)
				f.adapter.Remember(rapid.SampledFrom([]int{1, 2, 4, 100}).Draw(t, "remember"), rapid.SampledFrom([]int{0, 500, 1 << 20}).Draw(t, "index"))
				kept := map[string]bool{}
				mutation := rapid.Custom(func(t *rapid.T) record.Mutation {
					name := as.name.Draw(t, "name")
					m := record.Mutation{Kind: as.kind, Key: record.StringKey(name)}
					body := rapid.SampledFrom([]string{"x", "y"})
					if rapid.Bool().Draw(t, "put") {
						m.Doc = raw(panics{}, as.doc(name, rapid.IntRange(0, 2).Draw(t, "n"), body.Draw(t, "body")))
					}
					switch rapid.IntRange(0, 4).Draw(t, "condition") {
					case 0:
						m.Absent = m.Doc != nil
					case 1:
						m.Exists = true
					case 2:
						v := raw(panics{}, bson.D{{Key: "v", Value: body.Draw(t, "match")}})
						m.Match = &record.Match{Path: as.field, Value: v.Lookup("v")}
					case 3:
						m.Match = record.MatchDoc(raw(panics{}, as.doc(name, rapid.IntRange(0, 2).Draw(t, "match n"), body.Draw(t, "match body"))))
					}
					return m
				})
				t.Repeat(map[string]func(*rapid.T){
					"write": func(t *rapid.T) {
						ms := rapid.SliceOfN(mutation, 1, 3).Draw(t, "mutations")
						got, want := f.adapter.Write(ctx, ms), model.Write(ctx, ms)
						if kindOfError(got) != kindOfError(want) { //nolint:errorlint // sentinels
							t.Fatalf("write: %v, want %v", got, want)
						}
						if got == nil {
							for _, m := range ms {
								if m.Doc == nil {
									maps.DeleteFunc(kept, func(k string, _ bool) bool { return strings.HasPrefix(k, m.Key.String()+" ") })
								}
							}
							// Deleted and made anew in one write: the store cannot see
							// that.
							maps.DeleteFunc(kept, func(k string, _ bool) bool { return !extras(t, f)[k] && remade(ms, k) })
							for k := range extras(t, f) {
								if remade(ms, k) {
									kept[k] = true
								}
							}
						}
					},
					"extra": func(t *rapid.T) {
						name, n := as.name.Draw(t, "name"), rapid.IntRange(0, 9).Draw(t, "n")
						if !as.extra(t, f, name, n) {
							t.Skip("there is no such record")
						}
						if as.kind == "things" { // one at a time
							maps.DeleteFunc(kept, func(k string, _ bool) bool { return strings.HasPrefix(k, name+" ") })
							kept[fmt.Sprintf("%s %d", name, n)] = true
						} else {
							kept[fmt.Sprintf("%s %s/extra%d", name, name, n)] = true
						}
					},
					"get": func(t *rapid.T) {
						name := as.name.Draw(t, "name")
						got, err := f.adapter.Get(ctx, as.kind, name)
						want, wantErr := model.Get(ctx, as.kind, name)
						if kindOfError(err) != kindOfError(wantErr) || (err == nil && content(t, got.Doc) != content(t, want.Doc)) { //nolint:errorlint // sentinels
							t.Fatalf("get %s: %s %v, want %s %v", name, got.Doc, err, want.Doc, wantErr)
						}
					},
					"list": func(t *rapid.T) {
						prefix := rapid.SampledFrom([]string{"", "a", "a/", "b/", "c", "x"}).Draw(t, "prefix")
						after := rapid.OneOf(rapid.Just(""), as.name, rapid.Just("a/")).Draw(t, "after")
						limit := rapid.IntRange(0, 4).Draw(t, "limit")
						got, err := f.adapter.List(ctx, as.kind, prefix, after, limit)
						want, wantErr := model.List(ctx, as.kind, prefix, after, limit)
						if err != nil || wantErr != nil || !slices.Equal(contents(t, got), contents(t, want)) {
							t.Fatalf("list %q after %q, %d:\ngot  %v %v\nwant %v %v", prefix, after, limit, contents(t, got), err, contents(t, want), wantErr)
						}
					},
					"": func(t *rapid.T) {
						if have := extras(t, f); !maps.Equal(have, kept) {
							t.Fatalf("in addition to what is shown there is %v, want %v", have, kept)
						}
					},
				})
			})
		})
	}
}

// remade reports whether a write deletes a record and makes it again.
func remade(ms []record.Mutation, extra string) bool {
	deleted, made := false, false
	for _, m := range ms {
		if strings.HasPrefix(extra, m.Key.String()+" ") {
			deleted = deleted || m.Doc == nil
			made = made || m.Doc != nil
		}
	}
	return deleted && made
}

// panics fails a generator, which has no test.
type panics struct{}

func (panics) Helper()           {}
func (panics) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
