package recordtest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// withIndexReader passes a kind with an index on the field in.v to the test.
func withIndexReader(run func(*testing.T, *kind, record.IndexReader)) func(*testing.T, *bench) {
	return withClient(func(t *testing.T, b *bench) {
		k := b.managed(t)
		reader, ok := b.Client.(record.IndexReader)
		info, err := b.Namespace.Describe(t.Context(), k.spec, k.tok.Name)
		if err != nil {
			t.Fatal(err)
		}
		if ok && info.Indexes {
			// Without an index, the reader must report that, and not answer another way.
			_, err := reader.ListIndexed(t.Context(), record.IndexRequest{Token: k.tok, Field: indexedField, Equal: rawOf(t, 1)})
			if !errors.Is(err, record.ErrNoIndex) {
				t.Errorf("without an index: %v", err)
			}
			k.spec.Indexed = []string{indexedField}
			if err := b.Namespace.BuildIndexes(t.Context(), k.tok, record.WithIndexed(k.spec)); err != nil {
				t.Fatal(err)
			}
		}
		if !ok || !info.Indexes {
			if ok {
				_, err := reader.ListIndexed(t.Context(), record.IndexRequest{Token: k.tok, Field: indexedField, Equal: rawOf(t, 1)})
				if !errors.Is(err, record.ErrNoIndex) {
					t.Errorf("a database without such indexes: %v", err)
				}
			}
			t.Log("left out: the backend does not read by declared fields")
			return
		}
		run(t, k, reader)
	})
}

const indexedField = "in.v"

func rawOf(t testing.TB, v any) bson.RawValue {
	t.Helper()
	if v == nil {
		return bson.RawValue{Type: bson.TypeNull}
	}
	kind, data, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: kind, Value: data}
}

// placed is the place of a record in an index.
type placed struct {
	value bson.RawValue
	name  string
}

// fill writes records with all kinds of values and returns their places in the index. With arrays
// it adds documents with arrays. Their places in a range are up to the backend.
func fill(t *testing.T, k *kind, arrays bool) []placed {
	t.Helper()
	decimal, err := bson.ParseDecimal128("2.5")
	if err != nil {
		t.Fatal(err)
	}
	// Values that sort close together, of every type that an index may have.
	values := []any{
		nil, "", "a", "a\x00b", "ab", "b", "\uffff", int32(-3), int64(2), 2.0, int32(2), 2.5, decimal, math.NaN(), math.Inf(-1), math.Inf(1), int64(math.MaxInt64),
		false, true, bson.DateTime(-1), bson.DateTime(5), bson.D{{Key: "x", Value: 1}},
	}
	if arrays {
		values = append(values, bson.A{"a", "b", "a"}, bson.A{})
	}
	var out []placed
	for i, v := range values {
		for _, prefix := range []string{"p/", "q/"} {
			name := fmt.Sprintf("%s%02d", prefix, (i*7)%len(values))
			doc := bson.D{{Key: "_id", Value: name}, {Key: "in", Value: bson.D{{Key: "v", Value: v}}}}
			if i%5 == 0 && v == nil {
				doc = doc[:1] // a missing field counts as null
			}
			raw, err := bson.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			if err := k.do(t, record.Mutation{Kind: k.spec.Name, Key: record.StringKey(name), Doc: raw}); err != nil {
				t.Fatal(err)
			}
			for _, v := range record.ValuesAt(raw, indexedField) {
				out = append(out, placed{v, name})
			}
		}
	}
	// Tombstones must not appear, even if an index has them.
	k.put(t, "p/dead")
	k.b.apply(t, tokens(k), 1, group(2, k.set("p/dead", -1)))
	slices.SortFunc(out, func(a, b placed) int {
		return cmp.Or(record.CompareValues(a.value, b.value), strings.Compare(a.name, b.name))
	})
	return out
}

func showPlaces(ps []placed) string {
	var b strings.Builder
	for _, p := range ps {
		fmt.Fprintf(&b, " %s=%s", p.name, p.value)
	}
	return b.String()
}

// indexEqual checks the records of one value: in name order, for any type of number, in pages of
// any size, and with name prefixes.
func indexEqual(t *testing.T, k *kind, reader record.IndexReader) {
	all := fill(t, k, true)
	for _, v := range []any{nil, "", "a", "b", int32(2), 2.5, math.NaN(), math.Inf(-1), true, false, bson.DateTime(5), "none", int64(7)} {
		for _, prefix := range []string{"", "q/", "r"} {
			for _, limit := range []int{0, 1, 2} {
				want := slices.DeleteFunc(slices.Clone(all), func(p placed) bool {
					return record.CompareValues(p.value, rawOf(t, v)) != 0 || !strings.HasPrefix(p.name, prefix)
				})
				var have []placed
				req := record.IndexRequest{Token: k.tok, Field: indexedField, Equal: rawOf(t, v), Prefix: prefix, Limit: limit}
				for pages := 0; ; pages++ {
					page := readIndex(t, reader, req)
					have = append(have, placesOf(page)...)
					if page.Done || pages > 2*len(all) {
						break
					}
					req.After = page.LastName
				}
				if showPlaces(names(have)) != showPlaces(names(want)) {
					t.Errorf("%v with %q, %d at a time:\nhave%s\nwant%s", v, prefix, limit, showPlaces(have), showPlaces(want))
				}
			}
		}
	}
}

// indexRange checks that a range has the values of one type between its bounds, in both directions.
func indexRange(t *testing.T, k *kind, reader record.IndexReader) {
	all := fill(t, k, false)
	for _, r := range []struct{ above, below any }{
		{"", nil}, {"", "b"}, {"a", "ab"}, {math.Inf(-1), nil}, {math.Inf(-1), 0}, {2, math.Inf(1)}, {int64(2), 2.5}, {bson.DateTime(math.MinInt64), nil}, {false, nil}, {"zz", "zzz"}, {"b", "a"},
	} {
		for _, reverse := range []bool{false, true} {
			for _, prefix := range []string{"", "q/"} {
				for _, limit := range []int{0, 1, 3} {
					req := record.IndexRequest{Token: k.tok, Field: indexedField, Above: rawOf(t, r.above), Reverse: reverse, Prefix: prefix, Limit: limit}
					if r.below != nil {
						req.Below = rawOf(t, r.below)
					}
					want := slices.DeleteFunc(slices.Clone(all), func(p placed) bool {
						return !strings.HasPrefix(p.name, prefix) || !record.SameType(p.value, req.Above) || record.CompareValues(p.value, req.Above) <= 0 ||
							req.Below.Type != 0 && record.CompareValues(p.value, req.Below) >= 0
					})
					if reverse {
						slices.Reverse(want)
					}
					page := readIndex(t, reader, req)
					have := placesOf(page)
					if limit > 0 && len(have) > limit {
						t.Errorf("%d records, %d were asked for", len(have), limit)
					}
					// A page that is not Done may have fewer records, but never other ones.
					if page.Done && len(have) != len(want) || !page.Done && len(have) > len(want) {
						t.Errorf("%v reverse %t with %q, %d at a time: done %t with\n%s\nof\n%s", r, reverse, prefix, limit, page.Done, showPlaces(have), showPlaces(want))
					} else if showPlaces(names(have)) != showPlaces(names(want[:len(have)])) {
						t.Errorf("%v reverse %t with %q, %d at a time:\nhave%s\nwant%s", r, reverse, prefix, limit, showPlaces(have), showPlaces(want))
					}
					if !page.Done && (page.Last.Type == 0 || page.LastName == "") {
						t.Errorf("%v: a page without an end: %+v", r, page)
					}
				}
			}
		}
	}
}

// names clears the values, which differ if one document has several.
func names(ps []placed) []placed {
	out := slices.Clone(ps)
	for i := range out {
		out[i].value = bson.RawValue{Type: bson.TypeNull}
	}
	return out
}

// indexBytes checks that a page ends with the record that reaches its bytes.
func indexBytes(t *testing.T, k *kind, reader record.IndexReader) {
	var want []string
	for i := range 6 {
		name := fmt.Sprintf("n%d", i)
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "in", Value: bson.D{{Key: "v", Value: "same"}}}, {Key: "pad", Value: strings.Repeat("x", 1000)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.do(t, record.Mutation{Kind: k.spec.Name, Key: record.StringKey(name), Doc: raw}); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	page := readIndex(t, reader, record.IndexRequest{Token: k.tok, Field: indexedField, Equal: rawOf(t, "same"), Bytes: 1500})
	if len(page.Records) != 2 || page.Done || page.LastName != "n1" {
		t.Errorf("%d records, done %t, last %s", len(page.Records), page.Done, page.LastName)
	}
	// The limit must also hold for a range.
	page = readIndex(t, reader, record.IndexRequest{Token: k.tok, Field: indexedField, Above: rawOf(t, "a"), Prefix: "n", Bytes: 1500})
	if len(page.Records) != 2 || page.Done || page.LastName != "n1" {
		t.Errorf("of a range: %d records, done %t, last %s", len(page.Records), page.Done, page.LastName)
	}
	if page = readIndex(t, reader, record.IndexRequest{Token: k.tok, Field: indexedField, Equal: rawOf(t, "same"), Bytes: 1 << 20}); len(page.Records) != len(want) || !page.Done {
		t.Errorf("%d records, done %t", len(page.Records), page.Done)
	}
}

// clientListBytes checks that a list ends with the record that reaches its bytes.
func clientListBytes(t *testing.T, b *bench) {
	k := b.managed(t)
	for i := range 6 {
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: fmt.Sprintf("n%d", i)}, {Key: "pad", Value: strings.Repeat("x", 1000)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.do(t, record.Mutation{Kind: k.spec.Name, Key: record.StringKey(fmt.Sprintf("n%d", i)), Doc: raw}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		bytes, want int
		cut         bool
	}{{0, 6, false}, {1500, 2, true}, {1, 1, true}, {1 << 20, 6, false}} {
		// Cut must tell a cut list from a complete one.
		cut := false
		recs, err := b.Client.List(t.Context(), record.ListRequest{Token: k.tok, Bytes: c.bytes, Cut: &cut})
		if err != nil || len(recs) != c.want || cut != c.cut {
			t.Errorf("list of %d bytes: %d records, cut %t, %v, want %d, %t", c.bytes, len(recs), cut, err, c.want, c.cut)
		}
	}
}

func readIndex(t *testing.T, reader record.IndexReader, req record.IndexRequest) record.IndexPage {
	t.Helper()
	page, err := reader.ListIndexed(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Values) != len(page.Records) || page.Looked < len(page.Records) {
		t.Fatalf("%d records with %d values of %d looked at", len(page.Records), len(page.Values), page.Looked)
	}
	return page
}

func placesOf(page record.IndexPage) (out []placed) {
	for i, r := range page.Records {
		name, _ := r.Key.Name()
		out = append(out, placed{page.Values[i], name})
	}
	return out
}
