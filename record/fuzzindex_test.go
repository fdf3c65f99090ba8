package record_test

import (
	"bytes"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// FuzzIndex: any index spec and options that a source database has are read. A stopped TTL index
// gets its seconds back, and nothing else of it changes.
func FuzzIndex(f *testing.F) {
	for _, spec := range []bson.D{
		{{Key: "key", Value: bson.D{{Key: "at", Value: 1}}}, {Key: "name", Value: "at_1"}, {Key: "expireAfterSeconds", Value: 60}},
		{{Key: "key", Value: bson.D{{Key: "a.$**", Value: 1}, {Key: "b", Value: "2dsphere"}}}, {Key: "unique", Value: true}},
		{{Key: "key", Value: bson.D{{Key: "_fts", Value: "text"}}}, {Key: "expireAfterSeconds", Value: 1.5}, {Key: "sparse", Value: false}},
		{{Key: "key", Value: 5}, {Key: "name", Value: nil}, {Key: "expireAfterSeconds", Value: "x"}, {Key: "unique", Value: 1}},
		{{Key: "validator", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "validationLevel", Value: "off"}, {Key: "changeStreamPreAndPostImages", Value: true}},
	} {
		raw, err := bson.Marshal(spec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(raw), int64(3600))
		f.Add([]byte(raw[:len(raw)-3]), int64(-1))
	}
	f.Fuzz(func(t *testing.T, spec []byte, seconds int64) {
		kept := bytes.Clone(spec)
		shape := record.Shape{Indexes: []bson.Raw{spec}}
		name := record.IndexName(spec)
		_ = record.Refuses(spec)
		if record.IsUnique(spec) && !record.Refuses(spec) {
			t.Errorf("%x is unique and refuses nothing", spec)
		}
		if text := record.DifferentIndex(spec, spec); text != "" {
			t.Errorf("%x differs from itself: %s", spec, text)
		}
		if names := record.DifferentOptions(spec, spec); len(names) > 0 {
			t.Errorf("the options %x differ from themselves: %q", spec, names)
		}
		if got := record.ChangeableOptions(spec); len(got) != 4 {
			t.Errorf("%x changes %v", spec, got)
		}
		had := record.ExpiryOf(shape)
		stopped, noted := record.Unexpiring(shape)
		if len(noted) != len(had) || noted[name] != had[name] {
			t.Errorf("%x expires after %v, and %v is noted", spec, had, noted)
		}
		other := record.WithExpiry(shape, map[string]int64{name: seconds})
		if !bytes.Equal(spec, kept) {
			t.Fatalf("the spec was written to")
		}
		for _, s := range []record.Shape{stopped, other} {
			got := s.Indexes[0]
			if len(had) == 0 && !bytes.Equal(got, spec) {
				t.Errorf("%x is no TTL index, and became %x", spec, []byte(got))
			}
			if record.IndexName(got) != name || record.Refuses(got) != record.Refuses(spec) {
				t.Errorf("index %q became %q", name, record.IndexName(got))
			}
		}
		if !canonical(spec) || len(had) == 0 {
			return
		}
		if got := record.ExpiryOf(stopped); got[name] != record.NeverExpires {
			t.Errorf("%x still expires after %v", spec, got)
		}
		if got := record.ExpiryOf(other); got[name] != seconds {
			t.Errorf("%x expires after %v, want %d", spec, got, seconds)
		}
		back := record.WithExpiry(stopped, noted).Indexes[0]
		if record.ExpiryOf(record.Shape{Indexes: []bson.Raw{back}})[name] != had[name] || record.DifferentIndex(back, spec) != "" {
			t.Errorf("%x came back as %x", spec, []byte(back))
		}
	})
}

// canonical reports whether a driver writes a document as it is, with each name once.
func canonical(doc bson.Raw) bool {
	var d bson.D
	if bson.Unmarshal(doc, &d) != nil {
		return false
	}
	raw, err := bson.Marshal(d)
	var names []string
	for _, e := range d {
		names = append(names, e.Key)
	}
	slices.Sort(names)
	return err == nil && bytes.Equal(raw, doc) && len(slices.Compact(names)) == len(d)
}
