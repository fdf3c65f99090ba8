package keymap_test

import (
	"bytes"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

func TestKeyLaws(t *testing.T) {
	t.Parallel()
	project := rapid.SampledFrom([]string{"p", "p-1", "ü", "..", "a b", "%2F", strings.Repeat("x", 300)})
	name := rapid.SampledFrom([]string{"s", "s\u0301", "{secret}", "\U0001F511", "secrets"})
	lenstest.Laws(t, lenstest.Parse(t, lenstest.Secrets), false, false,
		func(t *rapid.T) []record.Record {
			d := bson.D{{Key: "_id", Value: "projects/" + project.Draw(t, "project") + "/secrets/" + name.Draw(t, "secret")}}
			return []record.Record{lenstest.Record(t, "old", lenstest.Maybe(t, lenstest.Maybe(t, d, "value", "x", 1), "other", 5))}
		},
		func(t *rapid.T) []record.Record {
			d := bson.D{{Key: "_id", Value: "projects/" + project.Draw(t, "project") + "/regions/us-west2/secrets/" + name.Draw(t, "secret")}}
			return []record.Record{lenstest.Record(t, "new", lenstest.Maybe(t, lenstest.Maybe(t, d, "payload", "x", 1), "other", 5))}
		})
}

// TestKeyByNameAlone: a delete arrives with nothing but the key.
func TestKeyByNameAlone(t *testing.T) {
	t.Parallel()
	up, down := lenstest.Ways(t, lenstest.Parse(t, lenstest.Secrets))
	old, now := record.StringKey("projects/p/secrets/s"), record.StringKey("projects/p/regions/us-west2/secrets/s")
	a, _, err := up.GroupOf("old", old)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := down.GroupOf("new", now)
	if err != nil || a != b {
		t.Errorf("groups %v and %v, error %v", a, b, err)
	}
	if kind, key := up.Anchor(a); kind != "new" || key != now {
		t.Errorf("anchor up is %s %s", kind, key)
	}
	if kind, key := down.Anchor(a); kind != "old" || key != old {
		t.Errorf("anchor down is %s %s", kind, key)
	}
	if s := up.TargetSelect(a); len(s) != 1 || s[0].Key != now || s[0].Prefix {
		t.Errorf("selected %v", s)
	}
	if !up.Whole("old") || !down.Whole("new") || up.NeedsHave(a) || down.NeedsHave(a) {
		t.Error("a record is its whole group, and nothing else needs to be read for it")
	}
	for _, bad := range []string{"projects/p/regions/us-east1/secrets/s", "projects/p/regions/us-west2/secrets/", "projects/p/secrets/s", "projects//regions/us-west2/secrets/s", "projects/p/regions/us-west2/secrets/s/x", ""} {
		if _, ok, err := down.GroupOf("new", record.StringKey(bad)); !ok || err == nil {
			t.Errorf("%q has a group", bad)
		}
	}
	five, err := record.KeyOf(bson.RawValue{Type: bson.TypeInt32, Value: []byte{5, 0, 0, 0}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := up.GroupOf("old", five); err == nil || !strings.Contains(err.Error(), "not a string of the form projects/{project}/secrets/{secret}") {
		t.Errorf("an integer: %v", err)
	}
}

func TestKeyInRecords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, lens string
		old, now   string // records, or of old alone an error
		err        string
	}{
		{"constant", lenstest.Secrets, `old {"_id":"projects/p/secrets/s","value":"v"}`, `new {"_id":"projects/p/regions/us-west2/secrets/s","payload":"v"}`, ""},
		{"the _id keeps its place", lenstest.Secrets, `old {"value":"v","_id":"projects/p/secrets/s","x":1}`, `new {"payload":"v","_id":"projects/p/regions/us-west2/secrets/s","x":1}`, ""},
		{"other form", lenstest.Secrets, `old {"_id":"secrets/s"}`, "", `"secrets/s" is not of the form projects/{project}/secrets/{secret}`},
		{"no name", lenstest.Secrets, `old {"_id":7}`, "", "not a string of the form"},
		{"field", lenstest.SecretsByLocation, `old {"_id":"projects/p/secrets/s","location":{"region":"eu","zone":"a"},"x":1}`, `new {"_id":"projects/p/regions/eu/secrets/s","location":{"zone":"a"},"x":1}`, ""},
		{"field alone in its object", lenstest.SecretsByLocation, `old {"_id":"projects/p/secrets/s","x":1,"location":{"region":"eu"}}`, `new {"_id":"projects/p/regions/eu/secrets/s","x":1}`, ""},
		{"no field", lenstest.SecretsByLocation, `old {"_id":"projects/p/secrets/s"}`, "", "no string location.region"},
		{"field with a slash", lenstest.SecretsByLocation, `old {"_id":"projects/p/secrets/s","location":{"region":"e/u"}}`, "", "contains a slash"},
		{"empty field", lenstest.SecretsByLocation, `old {"_id":"projects/p/secrets/s","location":{"region":""}}`, "", "would be empty"},
		{"field kept", strings.Replace(lenstest.SecretsByLocation, "location.region}", "location.region, keep: true}", 1), `old {"_id":"projects/p/secrets/s","location":{"region":"eu"}}`, `new {"_id":"projects/p/regions/eu/secrets/s","location":{"region":"eu"}}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := lenstest.Parse(t, tc.lens).Spec("old", "new")
			old := lenstest.FromJSON(t, tc.old)
			now, err := lenstest.Take(s.Up, old, nil)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error is %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := lenstest.Show(t, now), lenstest.Show(t, lenstest.FromJSON(t, tc.now)); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if back := lenstest.MustTake(t, s.Down, now, old); lenstest.Show(t, back) != lenstest.Show(t, old) {
				t.Errorf("came back as %s", lenstest.Show(t, back))
			}
		})
	}
}

// TestKeyWithout: going from names with a region to names without, the region moves
// into the record.
func TestKeyWithout(t *testing.T) {
	t.Parallel()
	s := lenstest.Parse(t, `
key:
  from: projects/{project}/regions/{region}/secrets/{secret}
  to: projects/{project}/secrets/{secret}
  without: {region: {field: location.region}}
operations: []
`).Spec("old", "new")
	old := lenstest.FromJSON(t, `old {"_id":"projects/p/regions/eu/secrets/s","x":1}`)
	now := lenstest.MustTake(t, s.Up, old, nil)
	if got := lenstest.Show(t, now); got != `new {"_id":"projects/p/secrets/s","x":1,"location":{"region":"eu"}}` {
		t.Errorf("got %s", got)
	}
	if back := lenstest.MustTake(t, s.Down, now, nil); lenstest.Show(t, back) != lenstest.Show(t, old) {
		t.Errorf("came back as %s", lenstest.Show(t, back))
	}
	if s.New.Kinds[0].Content == nil {
		t.Fatal("the group of a new record does not follow from its name")
	}
	group, err := s.New.Kinds[0].Content(now[0])
	if err != nil || group != string(old[0].Key) {
		t.Errorf("group %q, %v", group, err)
	}
	// Two regions have the same name there, and stay two groups: nothing is merged, and
	// only one of them can be migrated.
	other := lenstest.MustTake(t, s.Up, lenstest.FromJSON(t, `old {"_id":"projects/p/regions/us/secrets/s"}`), nil)
	if other[0].Key != now[0].Key {
		t.Errorf("%s", other[0].Key)
	}
	if group, err := s.New.Kinds[0].Content(other[0]); err != nil || group == string(old[0].Key) {
		t.Errorf("the two are in one group: %v", err)
	}
}

// TestKeyThatDisagrees: a kept field holds something else than the name.
func TestKeyThatDisagrees(t *testing.T) {
	t.Parallel()
	s := lenstest.Parse(t, strings.Replace(lenstest.SecretsByLocation, "location.region}", "location.region, keep: true}", 1)).Spec("old", "new")
	_, err := lenstest.Take(s.Down, lenstest.FromJSON(t, `new {"_id":"projects/p/regions/eu/secrets/s","location":{"region":"us"}}`), nil)
	if err == nil || !strings.Contains(err.Error(), `location.region is "us", and the record's name has "eu"`) {
		t.Errorf("error is %v", err)
	}
}

// TestKeyOfNoName: a service may be yet to name the record. Then it has no name in the
// other version either, unless fields of that hold parts of the name.
func TestKeyOfNoName(t *testing.T) {
	t.Parallel()
	doc, err := bson.Marshal(bson.D{{Key: "value", Value: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	l := lenstest.Parse(t, lenstest.Secrets)
	up, err := l.Up(doc, nil)
	if err != nil || up.String() != `{"payload": "x"}` {
		t.Errorf("up %s, %v", up, err)
	}
	if down, err := l.Down(up, nil); err != nil || !bytes.Equal(down, doc) {
		t.Errorf("down %s, %v", down, err)
	}
	if doc, err = bson.Marshal(bson.M{"location": bson.M{"region": "eu"}}); err != nil {
		t.Fatal(err)
	}
	if up, err := lenstest.Parse(t, lenstest.SecretsByLocation).Up(doc, nil); err == nil || !strings.Contains(err.Error(), "the record has no _id") {
		t.Errorf("by location: %s, %v", up, err)
	}
}
