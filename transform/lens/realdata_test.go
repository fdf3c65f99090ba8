package lens_test

import (
	"bytes"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// packagesInParts takes the package index apart: another key, lists and maps that become
// records.
const packagesInParts = `
key: {from: "{_key}", to: "debian/{_key}"}
operations:
  - fanOut: {field: depends, as: list, kind: dependencies, key: "{_key}/depends/{index}", value: alternatives, parent: package}
  - fanOut: {field: tags, as: map, kind: tags, key: "{_key}/tags/{id}", value: tag}
  - fanOut: {field: maintainer, as: object, kind: maintainers, key: "{_key}/maintainer", operations: [{rename: {from: email, to: address}}]}
  - rename: {from: section, to: category}
`

// TestRealData takes the whole sample apart and together again, to the byte. Where the
// _id is no string, as in three of a hundred, the record is refused.
func TestRealData(t *testing.T) {
	t.Parallel()
	docs := lenstest.RealData(t, 0)
	up, down := lenstest.Ways(t, lenstest.Parse(t, packagesInParts))
	count := map[string]int{}
	for _, d := range docs {
		key, err := record.KeyOfDoc(d)
		if err != nil {
			t.Fatal(err)
		}
		old := transform.Group{Records: []record.Record{{Kind: "old", Key: key, Doc: d}}}
		id, _, err := up.GroupOf("old", key)
		if bson.Type(key[0]) != bson.TypeString {
			if count["refused"]++; err == nil {
				t.Fatalf("%s is in group %v", key, id)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		old.Name = id.Name
		now, err := up.Transform(id, old, transform.Group{Name: id.Name})
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		for _, r := range now {
			count[r.Kind]++
			if got, _, err := down.GroupOf(r.Kind, r.Key); err != nil || got != id {
				t.Fatalf("%s %s is in group %v, not %v (%v)", r.Kind, r.Key, got, id, err)
			}
		}
		back, err := down.Transform(id, transform.Group{Name: id.Name, Records: now}, old)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if len(back) != 1 || back[0].Key != key || !bytes.Equal(back[0].Doc, d) {
			t.Fatalf("%s\ncame back as\n%s", d, back[0].Doc)
		}
	}
	for _, kind := range []string{"new", "dependencies", "tags", "maintainers", "refused"} {
		if count[kind] < len(docs)/50 {
			t.Errorf("%d of %s: the sample has changed", count[kind], kind)
		}
	}
}
