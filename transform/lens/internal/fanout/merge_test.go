package fanout_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

const (
	nested = `gather: {kind: profiles, field: profile, as: object, key: "{item._id:objectId}", parent: user, unnamed: parent}`
	flat   = "operations:\n  - " + nested + "\n  - move: {from: profile._id, to: profileId}\n  - move: {from: profile.bio, to: bio}\n"
	second = `{"$oid":"755f1e5e5e5e5e5e5e5e5e5e"}`
)

// TestMergeOfTwoKinds makes one kind of two whose records have names of their own, and two
// of it again: also of what is new in the merged one.
func TestMergeOfTwoKinds(t *testing.T) {
	t.Parallel()
	user := `old {"_id":` + oid + `,"name":"kim"}`
	for _, tc := range []struct {
		name, lens string
		old        []string
		now        string
	}{
		{"nested", lenstest.Orders(nested), []string{user, `profiles {"_id":` + second + `,"user":` + oid + `,"bio":"x"}`}, `new {"_id":` + oid + `,"name":"kim","profile":{"_id":` + second + `,"bio":"x"}}`},
		{"flat", flat, []string{user, `profiles {"_id":` + second + `,"user":` + oid + `,"bio":"x"}`}, `new {"_id":` + oid + `,"name":"kim","profileId":` + second + `,"bio":"x"}`},
		{"without a profile", flat, []string{user}, `new {"_id":` + oid + `,"name":"kim"}`},
		{"new in the merged kind", flat, []string{user, `profiles {"_id":` + oid + `,"user":` + oid + `,"bio":"x"}`}, `new {"_id":` + oid + `,"name":"kim","bio":"x"}`},
		{"new in the merged kind, nested", lenstest.Orders(nested), []string{user, `profiles {"_id":` + oid + `,"user":` + oid + `}`}, `new {"_id":` + oid + `,"name":"kim","profile":{}}`},
		{"of any type", lenstest.Orders(strings.Replace(nested, "objectId", "any", 1)), []string{`old {"_id":5}`, `profiles {"_id":{"$numberDouble":"5.0"},"user":5,"bio":1}`}, `new {"_id":5,"profile":{"_id":{"$numberDouble":"5.0"},"bio":1}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := lenstest.Parse(t, tc.lens).Spec("old", "new")
			old, now := lenstest.FromJSON(t, tc.old...), lenstest.FromJSON(t, tc.now)
			if made := lenstest.MustTake(t, s.Up, old, nil); lenstest.Show(t, made) != lenstest.Show(t, now) {
				t.Fatalf("got\n%s\nwant\n%s", lenstest.Show(t, made), lenstest.Show(t, now))
			}
			back := lenstest.MustTake(t, s.Down, now, old)
			if !lenstest.SameBytes(back, old) {
				t.Errorf("came back as\n%s", lenstest.Show(t, back))
			}
			if again := lenstest.MustTake(t, s.Up, back, now); !lenstest.SameBytes(again, now) {
				t.Errorf("over itself it became\n%s", lenstest.Show(t, again))
			}
			fresh := lenstest.MustTake(t, s.Down, now, nil)
			if again := lenstest.MustTake(t, s.Up, fresh, now); !lenstest.SameBytes(again, now) {
				t.Errorf("made anew it became\n%s", lenstest.Show(t, again))
			}
		})
	}
}

func TestMergeOfTwoKindsRefuses(t *testing.T) {
	t.Parallel()
	user, profile := `old {"_id":`+oid+`}`, `profiles {"_id":`+second+`,"user":`+oid+`}`
	for _, tc := range []struct {
		name, lens string
		up         bool
		records    []string
		err        string
	}{
		{"two of one", flat, true, []string{user, profile, `profiles {"_id":` + oid + `,"user":` + oid + `}`}, "2 records of profiles are one object"},
		{"of nobody", flat, true, []string{profile}, "belongs to a missing record of old"},
		{"of somebody else", flat, true, []string{user, strings.Replace(profile, `"user":`+oid, `"user":5`, 1)}, "its user is"},
		{"of another type", flat, true, []string{user, strings.Replace(profile, second, "7", 1)}, "of type"},
		{"named as its record is", lenstest.Orders(nested), false, []string{`new {"_id":` + oid + `,"profile":{"_id":` + oid + `}}`}, "leave it out"},
		{"unnamed, and a key of another type", lenstest.Orders(nested), false, []string{`new {"_id":5,"profile":{}}`}, "not objectId"},
		{"without unnamed", lenstest.Orders(strings.Replace(nested, ", unnamed: parent", "", 1)), false, []string{`new {"_id":` + oid + `,"profile":{}}`}, "has no _id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := lenstest.Parse(t, tc.lens).Spec("old", "new")
			f := s.Down
			if tc.up {
				f = s.Up
			}
			if out, err := lenstest.Take(f, lenstest.FromJSON(t, tc.records...), nil); err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error is %v, want %q\n%s", err, tc.err, lenstest.Show(t, out))
			}
		})
	}
	for text, want := range map[string]string{
		lenstest.Orders(strings.Replace(nested, "unnamed: parent", "unnamed: child", 1)):                                                     `unknown name "child"; allowed: parent`,
		lenstest.Orders(`gather: {kind: p, field: f, as: object, key: "{_key}", unnamed: parent}`):                                           "unnamed is for an object whose _id is the key",
		lenstest.Orders(`gather: {kind: p, field: f, as: list, key: "{item._id:objectId}", id: _id, order: at, parent: u, unnamed: parent}`): "unnamed is for an object",
		lenstest.Orders(`gather: {kind: p, field: f, as: object, key: "p/{item._id:objectId}", parent: u, unnamed: parent}`):                 "unnamed is for an object",
	} {
		if _, err := lens.Parse("l.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
	}
}

// TestMergeLaws runs the laws of the engine, by content, over both forms.
func TestMergeLaws(t *testing.T) {
	t.Parallel()
	ids := []bson.ObjectID{{1}, {2}, {3}}
	draw := func(t *rapid.T, label string) bson.ObjectID { return rapid.SampledFrom(ids).Draw(t, label) }
	for name, text := range map[string]string{"nested": lenstest.Orders(nested), "flat": flat} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up, down := lenstest.Ways(t, lenstest.Parse(t, text))
			lawtest.Check(t, lawtest.Case{Up: up, Down: down,
				Old: rapid.Custom(func(t *rapid.T) []record.Record {
					user := draw(t, "user")
					out := []record.Record{lenstest.Record(t, "old", lenstest.Maybe(t, bson.D{{Key: "_id", Value: user}}, "name", "a", nil))}
					if rapid.Bool().Draw(t, "profile") {
						out = append(out, lenstest.Record(t, "profiles", lenstest.Maybe(t, bson.D{{Key: "_id", Value: draw(t, "profile's")}, {Key: "user", Value: user}}, "bio", "x", nil)))
					}
					return out
				}),
				New: rapid.Custom(func(t *rapid.T) []record.Record {
					d := lenstest.Maybe(t, bson.D{{Key: "_id", Value: ids[0]}}, "name", "a", nil)
					if name == "flat" {
						return []record.Record{lenstest.Record(t, "new", lenstest.Maybe(t, lenstest.Maybe(t, d, "profileId", ids[1], ids[2]), "bio", "x", nil))}
					}
					if rapid.Bool().Draw(t, "profile") {
						d = append(d, bson.E{Key: "profile", Value: lenstest.Maybe(t, lenstest.Maybe(t, bson.D{}, "_id", ids[1], ids[2]), "bio", "x", nil)})
					}
					return []record.Record{lenstest.Record(t, "new", d)}
				}),
			})
		})
	}
}
