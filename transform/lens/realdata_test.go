package lens_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// everyOperation takes the package index through all operations on documents.
const everyOperation = `
operations:
  - rename: {from: section, to: category}
  - move: {from: homepage, to: links.homepage}
  - convert: {field: installed_size, from: int, to: long}
  - convert: {field: priority, table: {required: base, important: system, standard: standard, optional: normal, extra: rare}}
  - add: {field: schema, value: 2}
  - add: {field: state, default: new}
  - remove: {field: sha256}
  - copy: {from: name, to: title}
  - wrap: {field: multi_arch}
  - split: {field: filename, to: [pool.area, pool.component, pool.path], separator: /, rest: true}
  - each: {field: depends, operations: [each: {field: ., operations: [rename: {from: op, to: relation}]}]}
  - wrap: {field: maintainer}
  - each: {field: maintainer, match: name, operations: [remove: {field: email}, add: {field: role, default: owner}]}
  - each: {field: pre_depends, in: list, operations: [each: {field: ., operations: [move: {from: version, to: needs.version}]}]}
  - join: {fields: [version, architecture], to: release, separator: " "}
  - compute: {from: [size], to: [bytes], up: {bytes: size}, down: {size: bytes}}
`

// TestEveryOperationOnRealData: records of the sample go there and back to the byte
// over itself, and keeps what the new side changed, or is refused by a RecordError.
func TestEveryOperationOnRealData(t *testing.T) {
	t.Parallel()
	l, err := lens.Parse("all.yaml", []byte(everyOperation))
	if err != nil {
		t.Fatal(err)
	}
	docs := lenstest.RealData(t, 5000)
	refused := map[string]int{}
	for _, d := range docs {
		up, err := l.Up(d, nil)
		if err != nil {
			var bad *lens.RecordError
			if !errors.As(err, &bad) {
				t.Fatalf("%s: %v", d, err)
			}
			refused[bad.Operation]++
			continue
		}
		if again, err := l.Up(d, up); err != nil || !bytes.Equal(again, up) {
			t.Fatalf("over its own result %s became %s (%v)", up, again, err)
		}
		if back, err := l.Down(up, d); err != nil || !bytes.Equal(back, d) {
			t.Fatalf("%s came back as %s (%v)", d, back, err)
		}
		if !bytes.Contains(up, []byte("state")) {
			t.Fatalf("%s has no state", up)
		}
		changed := bytes.Replace(up, []byte("\x02state\x00\x04\x00\x00\x00new\x00"), []byte("\x02state\x00\x04\x00\x00\x00old\x00"), 1)
		down, err := l.Down(changed, d)
		if err != nil {
			t.Fatal(err)
		}
		if kept, err := l.Up(down, changed); err != nil || !bytes.Equal(kept, changed) {
			t.Fatalf("%s became %s (%v)", bson.Raw(changed), kept, err)
		}
	}
	total := 0
	for _, n := range refused {
		total += n
	}
	t.Logf("%d records, refused: %v", len(docs), refused)
	if total*4 > len(docs) {
		t.Errorf("of %d records %d were refused: %v", len(docs), total, refused)
	}
}

// TestTheExampleOfThePackage is the one in the package's comment.
func TestTheExampleOfThePackage(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(source)) {
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			lines = append(lines, text)
		}
	}
	text := []byte(strings.Join(lines, ""))
	if _, err := lens.Parse("doc.go", text, lens.WithHooks(lens.Hooks{"normalize": {Up: lenstest.Swapped, Down: lenstest.Swapped}})); err != nil {
		t.Error(err)
	}
	if err := lenstest.Validate(t, text); err != nil {
		t.Error(err)
	}
	for _, name := range lens.OperationNames() {
		if !bytes.Contains(text, []byte("- "+name+":")) && name != "reference" && name != "fanOut" && name != "gather" {
			t.Errorf("it lacks %s", name)
		}
	}
}

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
	raced.Leave(t)
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
