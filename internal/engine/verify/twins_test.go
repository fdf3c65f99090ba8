package verify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// twins are a kind on both sides whose records keep their keys: n is doubled, 0 has no
// counterpart and what is negative cannot be transformed.
type twins struct {
	source, target *counting
	src, dst       transform.View
	dir            transform.Direction
	up             *verify.Comparer
}

// require is what a test and a check of rapid have in common.
type require interface {
	Context() context.Context
	Fatal(args ...any)
}

func double(src, _ transform.Group) ([]record.Record, error) {
	r := src.Records[0]
	n := r.Doc.Lookup("n").Int32()
	if n < 0 {
		return nil, errors.New("n is negative")
	}
	if n == 0 {
		return nil, nil
	}
	d, err := bson.Marshal(bson.D{{Key: "_id", Value: r.Doc.Lookup("_id")}, {Key: "n", Value: 2 * n}})
	return []record.Record{{Kind: "things", Key: r.Key, Doc: d}}, err
}

// newTwins holds, by id, the n of the source and of the target.
func newTwins(t require, source, target map[any]int32) *twins {
	spec := record.KindSpec{Name: "things", Fixed: true}
	side := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: spec}}}
	reg := transform.NewRegistry("test")
	err := reg.Add("v1", "v2", transform.Spec{Name: "things", Old: side, New: side, Up: double, Down: double, Reversal: transform.ReversalNone})
	if err != nil {
		t.Fatal(err)
	}
	w := &twins{}
	if w.dir, err = reg.Direction("v1", "v2"); err != nil {
		t.Fatal(err)
	}
	fill := func(ns map[any]int32) (*counting, transform.View) {
		s := memstore.New()
		tok, err := s.Provision(t.Context(), spec, "things")
		if err != nil {
			t.Fatal(err)
		}
		for id, n := range ns {
			d, err := bson.Marshal(bson.D{{Key: "_id", Value: id}, {Key: "n", Value: n}})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Foreign().Insert(t.Context(), "things", d); err != nil {
				t.Fatal(err)
			}
		}
		return &counting{Namespace: s}, transform.View{Tokens: record.Tokens{"things": tok}}
	}
	w.source, w.src = fill(source)
	w.target, w.dst = fill(target)
	w.up = verify.New(w.source, w.target, w.dir)
	return w
}

func keyOf(t require, id any) record.Key {
	typ, b, err := bson.MarshalValue(id)
	if err != nil {
		t.Fatal(err)
	}
	k, err := record.KeyOf(bson.RawValue{Type: typ, Value: b})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestTwins: in ranges and pages of any size, what a look at each key would find is found
// once, strays before and behind everything that the source has included, by scans alone.
func TestTwins(t *testing.T) {
	t.Parallel()
	var ids []any
	for i := range 8 {
		ids = append(ids, int32(i), float64(i)+0.5, fmt.Sprint("k", i), bson.ObjectID{byte(i)}, bson.DateTime(i))
	}
	rapid.Check(t, func(t *rapid.T) {
		source, target := map[any]int32{}, map[any]int32{}
		var differ []string
		for _, id := range ids {
			was := false
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 0: // on neither side
			case 1, 2:
				target[id], was = 1, true // a stray
			case 3:
				source[id], was = 1, true // not there
			case 4:
				source[id], target[id], was = 1, 3, true
			case 5:
				source[id], was = -1, true // cannot be transformed
			case 6:
				source[id] = 0 // has no counterpart
			case 7:
				source[id], target[id], was = 0, 2, true // has one, and must not
			default:
				source[id], target[id] = 2, 4
			}
			if was {
				differ = append(differ, keyOf(t, id).String())
			}
		}
		w := newTwins(t, source, target)
		limit := rapid.IntRange(1, 12).Draw(t, "limit")
		ranges, err := w.source.Split(t.Context(), w.src.Tokens["things"], rapid.IntRange(1, 5).Draw(t, "ranges"))
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		compared := 0
		for _, rest := range ranges {
			for done := false; !done; {
				p, err := w.up.SourcePage(t.Context(), w.src, w.dst, "things", rest, limit)
				if err != nil {
					t.Fatal(err)
				}
				if len(p.Orphans) > 0 || len(p.Differ) > 3*limit {
					t.Errorf("%d orphans, %d differ on a page of %d", len(p.Orphans), len(p.Differ), limit)
				}
				for _, id := range p.Differ {
					found = append(found, record.Key(id.Name).String())
				}
				compared += p.Compared
				rest, done = p.Next, p.Done
			}
		}
		slices.Sort(differ)
		slices.Sort(found)
		if !slices.Equal(found, differ) || compared != len(source) {
			t.Errorf("%q differ of %d, want %q of %d", found, compared, differ, len(source))
		}
		if w.source.docs+w.source.keys+w.target.docs+w.target.keys > 0 {
			t.Error("records were looked up")
		}
		rep, err := w.up.Run(t.Context(), w.src, w.dst, once, nil)
		if err != nil || rep.Mismatched != int64(len(differ)) || rep.Compared != int64(len(source)) {
			t.Errorf("%+v, %v, want %d mismatches of %d", rep, err, len(differ), len(source))
		}
	})
}

// TestTwinsOrphans: a record of the target whose key no group can have is shown as one; where
// the source has it too it is parked there besides.
func TestTwinsOrphans(t *testing.T) {
	t.Parallel()
	alone, both := strings.Repeat("a", record.MaxKey), strings.Repeat("b", record.MaxKey)
	w := newTwins(t, map[any]int32{both: 1, "c": 1, strings.Repeat("d", record.MaxKey): 1}, map[any]int32{alone: 1, both: 1, "c": 2})
	p, err := w.up.SourcePage(t.Context(), w.src, w.dst, "things", record.Range{}, 10)
	if err != nil || len(p.Differ) > 0 || len(p.Orphans) != 2 || !p.Done {
		t.Fatalf("%d differ, %d orphans, %v", len(p.Differ), len(p.Orphans), err)
	}
	for i, id := range []string{alone, both} {
		if o := p.Orphans[i]; o.Kind != "things" || o.Key != keyOf(t, id) || o.Err == nil {
			t.Errorf("orphan %d is %.20s of %s: %v", i, o.Key, o.Kind, o.Err)
		}
	}
}

// TestTwinsLoss: what only the target has is counted once, as deleted.
func TestTwinsLoss(t *testing.T) {
	t.Parallel()
	w := newTwins(t, map[any]int32{"b": 1, "c": 2}, map[any]int32{"a": 2, "b": 2, "d": 2})
	loss, err := verify.EstimateLoss(t.Context(), w.source, w.target, w.dir, w.src, w.dst, func(int64) {})
	if err != nil || loss.Compared != 4 || loss.Created != 1 || loss.Deleted != 2 || loss.Changed != 0 {
		t.Errorf("%+v, %v", loss, err)
	}
}
