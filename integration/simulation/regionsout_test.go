package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// copiesKind is a kind of copies besides items.
const copiesKind = "items_copies"

// withCopies is the registry of items with a kind of copies. If it is not local, the copies are records
// like others, which transform as their name says.
func withCopies(local bool) *transform.Registry {
	r, specs := transform.NewRegistry("items"), []transform.Spec{itemSpec("1")}
	asIs := func(refused string) transform.Func {
		return func(src, _ transform.Group) ([]record.Record, error) {
			for _, rec := range src.Records {
				if rec.Key == record.StringKey(refused) {
					return nil, errors.New(refused)
				}
			}
			return src.Records, nil
		}
	}
	side := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: copiesKind}}}}
	if !local {
		specs = append(specs, transform.Spec{Name: "copies", Revision: "1", Old: side, New: side, Up: asIs("no way up"), Down: asIs("no way down")})
	}
	if err := r.Add("v1", "v2", specs...); err != nil {
		panic(err)
	}
	for _, v := range []string{"v1", "v2"} {
		if !local {
			continue
		}
		if err := r.DeclareLocal(v, record.KindSpec{Name: copiesKind}); err != nil {
			panic(err)
		}
	}
	return r
}

// copyOnly writes a copy into the namespace of a version, and nothing elsewhere.
func (s *system) copyOnly(ctx context.Context, version, name string) {
	s.t.Helper()
	doc := must(bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "of", Value: version}}))
	space := &placeSpace{s, version, s.db[version]}
	s.check(space.Write(ctx, []record.Mutation{{Kind: copiesKind, Key: record.StringKey(name), Doc: doc}}))
}

// TestCopiesTakeNoPart: copies are not parked, compared, proven or rolled back. Each case is run a second
// time with copies that are records like others, and must show them then.
func TestCopiesTakeNoPart(t *testing.T) {
	for name, takesPart := range map[string]func(ctx context.Context, s *system, c *process) bool{
		"parking": func(ctx context.Context, s *system, _ *process) bool {
			s.copyOnly(ctx, "v1", "no way up")
			pass(10 * time.Second)
			list, err := s.admin.ParkedNow(ctx)
			s.check(err)
			return len(list) > 0
		},
		"comparison": func(ctx context.Context, s *system, c *process) bool {
			s.copyOnly(ctx, "v1", "differs")
			pass(10 * time.Second)
			s.copyOnly(ctx, "v2", "differs")
			rep, err := c.app.Verify(ctx, nil)
			s.check(err)
			// The controllers correct what differs between two looks of a comparison.
			held := s.contents(ctx, "v2")[copiesKind+"/differs"]
			return rep.Mismatched > 0 || !strings.Contains(held, "v2")
		},
		"proof": func(ctx context.Context, s *system, _ *process) bool {
			s.copyOnly(ctx, "v1", "no way down")
			pass(10 * time.Second)
			s.beginTo(ctx, "v2")
			pass(time.Minute)
			d, err := s.admin.Get(ctx)
			s.check(err)
			return d.CurrentVersion != "v2"
		},
		"rollback": func(ctx context.Context, s *system, _ *process) bool {
			s.switchTo(ctx, "v2")
			s.copyOnly(ctx, "v2", "of v2")
			pass(10 * time.Second)
			s.switchTo(ctx, "v1")
			pass(10 * time.Second)
			_, there := s.contents(ctx, "v1")[copiesKind+"/"+record.StringKey("of v2").String()]
			return there
		},
	} {
		for _, local := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/local %t", name, local), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					s := newSystemOf(ctx, t, memory(), withCopies(local), stack)
					s.quiet()
					a, server := s.server(ctx, "server", nil)
					request(t, a, "PUT", "one", "?n=1&parts=1")
					c := s.controller(ctx, "controller", nil)
					pass(time.Second)
					if got := takesPart(ctx, s, c); got == local {
						t.Errorf("copies take part: %t", got)
					}
					cancel()
					c.kill()
					server.kill()
				})
			})
		}
	}
}
