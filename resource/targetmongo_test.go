package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/apiversion"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// mongodb is a namespace of a real MongoDB that no switch moves.
type mongodb struct {
	client *mongostore.Client
	tokens record.Tokens
}

var _ vrunner.IndexStore = mongodb{}

// realMongo returns two views of the same namespace, as two servers have them.
func realMongo(t *testing.T) (stores [2]mongodb) {
	t.Helper()
	uri, name := mongotest.Database(t)
	for i := range stores {
		ns, err := mongostore.Open(t.Context(), mongostore.Config{URI: uri, Database: name, Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ns.Close(context.Background()) })
		stores[i] = mongodb{ns.Client(), record.Tokens{}}
		for _, kind := range []record.KindSpec{{Name: "libraries", Indexed: []string{"city"}}, {Name: "books", Indexed: []string{"library"}}} {
			spec := record.WithIndexed(kind)
			if i == 0 {
				tok, err := ns.Provision(t.Context(), spec, record.PhysicalName(kind.Name, 1))
				if err == nil {
					err = ns.BuildIndexes(t.Context(), tok, spec)
				}
				if err != nil {
					t.Fatal(err)
				}
				stores[0].tokens[kind.Name] = tok
			}
			stores[i].tokens[kind.Name] = stores[0].tokens[kind.Name]
		}
	}
	return stores
}

func (s mongodb) Get(ctx context.Context, kind, key string) (record.Record, error) {
	return s.client.Get(ctx, s.tokens[kind], record.StringKey(key))
}

func (s mongodb) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	return s.client.List(ctx, record.ListRequest{Token: s.tokens[kind], Prefix: prefix, After: after, Limit: limit})
}

func (s mongodb) Write(ctx context.Context, ms []record.Mutation) error {
	return s.client.Write(ctx, s.tokens, ms)
}

func (mongodb) Changes(context.Context, ...string) (vrunner.Subscription, error) {
	return nil, errors.ErrUnsupported
}

func (s mongodb) Indexed(kind, field string) bool {
	return kind == "books" && field == "library" || kind == "libraries" && field == "city"
}

func (s mongodb) ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error) {
	req.Token = s.tokens[kind]
	return s.client.ListIndexed(ctx, req)
}

// TestTargetsInMongoDB: two servers delete libraries, while clients of both put books into them and
// move books from one to another. No book ever refers to a library that is gone. After a delete that
// succeeds, the book stays, goes or refers to nothing, as declared.
func TestTargetsInMongoDB(t *testing.T) {
	t.Parallel()
	for _, d := range []TargetDelete{Block, Cascade, Unset} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			const rounds, writers = 12, 4
			ctx, stores := t.Context(), realMongo(t)
			var libraries [2]*Table[*libraryv1.Library]
			var books [2]*Table[*libraryv1.Book]
			for i, s := range stores {
				libraries[i] = New(s, Config[*libraryv1.Library]{Kind: "libraries", Pattern: "libraries/{library}"})
				books[i] = New(s, Config[*libraryv1.Book]{Kind: "books", Pattern: "books/{book}"})
				books[i].Refer(Target{Field: "library", Table: libraries[i], TargetDelete: d})
				libraries[i].Refer(Target{Field: "city", Table: libraries[i], TargetDelete: d})
			}
			if err := insert(ctx, books[0], &libraryv1.Book{Name: "books/moves"}); err != nil {
				t.Fatal(err)
			}
			var deleted, refused, late atomic.Int64
			for round := range rounds {
				names := []string{fmt.Sprintf("libraries/%d-a", round), fmt.Sprintf("libraries/%d-b", round)}
				for i, name := range names {
					// Each of them is in the other one: a cycle.
					if err := insert(ctx, libraries[i], &libraryv1.Library{Name: name, City: []string{"", names[0]}[i]}); err != nil {
						t.Fatal(err)
					}
				}
				if d != Block {
					if _, err := libraries[0].Update(ctx, &libraryv1.UpdateLibraryRequest{Library: &libraryv1.Library{Name: names[0], City: names[1]}}); err != nil {
						t.Fatal(err)
					}
				}
				// What a client may be told: that others changed it all the time, or that it is gone.
				told := func(err error) error {
					switch connect.CodeOf(apiversion.CodeError(err)) {
					case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAborted:
						late.Add(1)
						return nil
					}
					return err
				}
				var g errgroup.Group
				for w := range writers {
					g.Go(func() error {
						for i, name := range names {
							err := insert(ctx, books[(w+i)%2], &libraryv1.Book{Name: fmt.Sprintf("books/%d-%d-%d", round, w, i), Library: name})
							if err := told(err); err != nil {
								return fmt.Errorf("create: %w", err)
							}
							_, err = books[w%2].Change(ctx, &libraryv1.LendBookRequest{Name: "books/moves"}, func(b *libraryv1.Book) error { b.Library = name; return nil })
							if err := told(err); err != nil {
								return fmt.Errorf("move: %w", err)
							}
						}
						return nil
					})
				}
				for i := range names {
					g.Go(func() error {
						err := libraries[i].Delete(ctx, &libraryv1.DeleteRequest{Name: names[1-i]})
						switch {
						case err == nil:
							deleted.Add(1)
							return nil
						case connect.CodeOf(err) == connect.CodeFailedPrecondition && d == Block:
							refused.Add(1)
							return nil
						}
						if err := told(err); err != nil {
							return fmt.Errorf("delete: %w", err)
						}
						return nil
					})
				}
				if err := g.Wait(); err != nil {
					t.Fatal(err)
				}
				there := map[string]bool{"": true}
				if err := libraries[0].Each(ctx, "", func(name string, _ *libraryv1.Library) error { there[name] = true; return nil }); err != nil {
					t.Fatal(err)
				}
				dangling := func(name, of string) {
					if !there[of] {
						t.Errorf("round %d: %s refers to %s, which is gone", round, name, of)
					}
				}
				moves := false
				if err := errors.Join(
					books[1].Each(ctx, "", func(name string, b *libraryv1.Book) error {
						moves = moves || name == "books/moves"
						dangling(name, b.GetLibrary())
						return nil
					}),
					libraries[1].Each(ctx, "", func(name string, l *libraryv1.Library) error { dangling(name, l.GetCity()); return nil }),
				); err != nil {
					t.Fatal(err)
				}
				if !moves && d != Cascade {
					t.Fatal("a book is gone")
				}
				if !moves {
					if err := insert(ctx, books[0], &libraryv1.Book{Name: "books/moves"}); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Logf("%d libraries deleted, %d refused, %d calls of others came too late", deleted.Load(), refused.Load(), late.Load())
			if d != Block && deleted.Load() == 0 {
				t.Error("nothing was deleted")
			}
			if slices.Contains([]TargetDelete{Block}, d) && refused.Load() == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}
