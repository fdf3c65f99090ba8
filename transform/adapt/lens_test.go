package adapt_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/transform/lens"
)

const secretsLens = `
lens: 1
key:
  from: projects/{project}/secrets/{secret}
  to: projects/{project}/regions/{region}/secrets/{secret}
  with: {region: us-west2}
operations:
  - rename: {from: expires_at, to: expire_time}
  - convert: {field: expire_time, from: epoch, to: date}
  - split: {field: owner, to: [owner_team, owner_person], separator: /}
  - add: {field: rotation_days, default: 0}
`

// TestLens: a lens with a key of its own is adapted as it is.
func TestLens(t *testing.T) {
	t.Parallel()
	l, err := lens.Parse("secrets.yaml", []byte(secretsLens))
	if err != nil {
		t.Fatal(err)
	}
	reg := transform.NewRegistry("secrets")
	if err := reg.Add("v1", "v2", l.Spec("secrets", "secrets", lens.Managed())); err != nil {
		t.Fatal(err)
	}
	cfg := adapt.Config{} // the lens says what leads, and how names are mapped
	f := newFace(t, memstore.New(), reg, "v2", "v1", cfg)
	secret := func(name, owner string) bson.D {
		return bson.D{{Key: "_id", Value: name}, {Key: "expires_at", Value: int64(1_700_000_000)}, {Key: "owner", Value: owner}}
	}
	for _, name := range []string{"projects/p/secrets/b", "projects/p/secrets/a", "projects/q/secrets/c"} {
		put(t, f.adapter, "secrets", secret(name, "team/person"))
	}
	stored, err := f.stored.Get(t.Context(), "secrets", "projects/p/regions/us-west2/secrets/a")
	if err != nil || stored.Doc.Lookup("owner_person").StringValue() != "person" || !stored.Doc.Lookup("expire_time").Time().Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("stored %s, %v", stored.Doc, err)
	}
	// A v2 client sets what v1 does not know, and another region.
	var d bson.D
	if err := bson.Unmarshal(stored.Doc, &d); err != nil {
		t.Fatal(err)
	}
	for i := range d {
		if d[i].Key == "rotation_days" {
			d[i].Value = int32(30)
		}
	}
	put(t, f.stored, "secrets", d)
	d[0].Value = "projects/p/regions/elsewhere/secrets/z"
	put(t, f.stored, "secrets", d)

	put(t, f.adapter, "secrets", secret("projects/p/secrets/a", "team/other"))
	if stored, err = f.stored.Get(t.Context(), "secrets", "projects/p/regions/us-west2/secrets/a"); err != nil ||
		stored.Doc.Lookup("rotation_days").AsInt64() != 30 || stored.Doc.Lookup("owner_person").StringValue() != "other" {
		t.Errorf("stored %s, %v", stored.Doc, err)
	}
	if got := pages(t, f.adapter, "secrets", "projects/p/secrets/", 1); got != "projects/p/secrets/a projects/p/secrets/b" {
		t.Errorf("listed %s", got)
	}
	// Names that sort the same are followed page by page, however many there are: the lens knows
	// that they do.
	o := &observed{Store: f.stored}
	ordered, err := adapt.New(o, f.show, f.keep, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if recs, err := ordered.List(t.Context(), "secrets", "projects/", "", 2); err != nil || len(recs) != 2 ||
		!slices.Equal(slices.Compact(o.asked), []string{"list secrets projects/"}) {
		t.Errorf("listed %v, %v by %v", recs, err, o.asked)
	}
	for prefix, want := range map[string]string{
		"": "projects/p/secrets/a projects/p/secrets/b projects/q/secrets/c", "projects/": "projects/p/secrets/a projects/p/secrets/b projects/q/secrets/c",
		"projects/p/secrets/": "projects/p/secrets/a projects/p/secrets/b", "projects/q/secrets/c": "projects/q/secrets/c", "projects/r/secrets/": "",
	} {
		for size := 1; size <= 3; size++ {
			if got := pages(t, ordered, "secrets", prefix, size); got != want {
				t.Errorf("in order, %d of %q at a time: %s, want %s", size, prefix, got, want)
			}
		}
	}
	// A place in a list need not be the name of a record.
	for _, a := range []*adapt.Adapter{ordered, f.adapter} {
		if recs, err := a.List(t.Context(), "secrets", "", "projects/p0", 1); err != nil || names(recs) != "projects/q/secrets/c" {
			t.Errorf("after no name: %s, %v", names(recs), err)
		}
		if recs, err := a.List(t.Context(), "secrets", "projects/p/secrets/", "projects/q", 1); err != nil || len(recs) != 0 {
			t.Errorf("after the prefix: %s, %v", names(recs), err)
		}
		if recs, err := a.List(t.Context(), "secrets", "projects/p/secrets/", "a", 1); err != nil || names(recs) != "projects/p/secrets/a" {
			t.Errorf("after a name before the prefix: %s, %v", names(recs), err)
		}
	}
	if _, err := f.adapter.Get(t.Context(), "secrets", "projects/p/secrets/z"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a secret of another region: %v", err)
	}
	if _, err := f.adapter.Get(t.Context(), "secrets", "no name of a secret"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("get of a name that v2 cannot have: %v", err)
	}
	if err := f.adapter.Write(t.Context(), []record.Mutation{{Kind: "secrets", Key: record.StringKey("no name of a secret"), Exists: true}}); !errors.Is(err, adapt.ErrTransform) {
		t.Errorf("write to a name that v2 cannot have: %v", err)
	}
}
