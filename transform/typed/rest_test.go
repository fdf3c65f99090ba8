package typed_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/typed"
)

// Users and their profiles become accounts, which have badges.
type (
	user struct {
		Name string `bson:"name"`
	}
	profile struct {
		Bio string `bson:"bio"`
	}
	account struct {
		Name string  `bson:"name"`
		Bio  *string `bson:"bio,omitempty"`
	}
	badge struct {
		Level int32 `bson:"level"`
	}
	oldPerson struct {
		User    *user            `typed:"kind=users"`
		Profile *profile         `typed:"kind=profiles,key=profile-{group}"`
		Badges  map[string]badge `typed:"kind=badges,key={group}/{key}"`
	}
	newPerson struct {
		Account *account         `typed:"kind=accounts"`
		Badges  map[string]badge `typed:"kind=badges_v2,key={group}:{key}"`
	}
)

func people(keep string) typed.Group[oldPerson, newPerson] {
	return typed.Group[oldPerson, newPerson]{
		Name: "people", Revision: "1", KeepRest: keep,
		Up: func(old oldPerson, _ newPerson) (newPerson, error) {
			out := newPerson{Account: &account{Name: old.User.Name}, Badges: old.Badges}
			if old.Profile != nil {
				out.Account.Bio = &old.Profile.Bio
			}
			return out, nil
		},
		Down: func(n newPerson, _ oldPerson) (oldPerson, error) {
			out := oldPerson{User: &user{n.Account.Name}, Badges: n.Badges}
			if n.Account.Bio != nil {
				out.Profile = &profile{*n.Account.Bio}
			}
			return out, nil
		},
	}
}

// TestKeepRestLaws: whatever the records of a group hold beyond their types, under names
// that several of them have, is theirs again when they come back, without a complement.
func TestKeepRestLaws(t *testing.T) {
	t.Parallel()
	up, down := directions(t, spec(t, people("_rest")))
	name := rapid.SampledFrom([]string{"ann", "bob"})
	with := func(t *rapid.T, kind, key string, fields ...bson.E) record.Record {
		for _, unknown := range []string{"color", "size"} {
			if v := rapid.SampledFrom([]any{nil, "x", int64(1), bson.D{{Key: "y", Value: bson.A{1}}}}).Draw(t, kind+" "+unknown); v != nil {
				fields = append(fields, bson.E{Key: unknown, Value: v})
			}
		}
		return rec(t, kind, append(bson.D{{Key: "_id", Value: key}}, rapid.Permutation(fields).Draw(t, "order")...))
	}
	badges := func(t *rapid.T, kind, begin string) (out []record.Record) {
		for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b"}), 0, 2, rapid.ID).Draw(t, "badges") {
			out = append(out, with(t, kind, begin+id, bson.E{Key: "level", Value: rapid.Int32Range(0, 2).Draw(t, "level")}))
		}
		return out
	}
	old := rapid.Custom(func(t *rapid.T) []record.Record {
		n := name.Draw(t, "name")
		out := append(badges(t, "badges", n+"/"), with(t, "users", n, bson.E{Key: "name", Value: text(t, "A", "B")}))
		if rapid.Bool().Draw(t, "has a profile") {
			out = append(out, with(t, "profiles", "profile-"+n, bson.E{Key: "bio", Value: text(t, "", "x")}))
		}
		return out
	})
	fresh := rapid.Custom(func(t *rapid.T) []record.Record {
		n := name.Draw(t, "name")
		fields := []bson.E{{Key: "name", Value: text(t, "A", "B")}}
		if rapid.Bool().Draw(t, "has a bio") {
			fields = append(fields, bson.E{Key: "bio", Value: text(t, "", "x")})
		}
		return append(badges(t, "badges_v2", n+":"), with(t, "accounts", n, fields...))
	})
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: old, New: fresh})
}

func TestKeepRestIsChecked(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{"bio": "kind profiles has a field bio", "a.b": "cannot be the name of a field", "_id": "cannot be"} {
		if _, err := people(field).Spec(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("KeepRest %s: error is %v, want %q", field, err, want)
		}
	}
	if a, b := spec(t, people("")), spec(t, people("_rest")); a.Revision == b.Revision {
		t.Errorf("what is stored differs, and the revision is %s for both", a.Revision)
	}
	g := people("_rest")
	g.OneWay = true
	g.Up = func(oldPerson, newPerson) (newPerson, error) { return newPerson{}, nil }
	up, _ := directions(t, spec(t, g))
	x := []record.Record{rec(t, "users", bson.D{{Key: "_id", Value: "ann"}, {Key: "name", Value: "A"}, {Key: "secret", Value: "hush"}})}
	if _, err := put(t, up, x, nil); err == nil || !strings.Contains(err.Error(), "no record of accounts to keep, in _rest") || strings.Contains(err.Error(), "hush") {
		t.Errorf("a rest that nothing keeps: %v", err)
	}
	x = []record.Record{rec(t, "users", bson.D{{Key: "_id", Value: "ann"}, {Key: "name", Value: "A"}, {Key: "_rest", Value: "mine"}})}
	if _, err := put(t, transform.Unchecked(up), x, nil); err == nil || !strings.Contains(err.Error(), "users") || !strings.Contains(err.Error(), "_rest is not what a group keeps") {
		t.Errorf("a field of somebody else: %v", err)
	}
}
