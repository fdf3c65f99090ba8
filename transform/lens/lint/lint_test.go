package lint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/lint"
)

// loaded reads lenses given as file name and text, one after the other.
func loaded(t *testing.T, texts ...string) []lint.Subject {
	t.Helper()
	dir := t.TempDir()
	var inputs []lint.Input
	for i := 0; i < len(texts); i += 2 {
		path := filepath.Join(dir, texts[i])
		if err := os.WriteFile(path, []byte(texts[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, lint.Input{Path: path})
	}
	files, errs := lint.Load(inputs, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var out []lint.Subject
	for _, f := range files {
		out = append(out, f.Subject())
	}
	return out
}

// of is a sample of Extended JSON.
func of(t *testing.T, kind, text string) lint.Sample {
	t.Helper()
	s, err := lint.Open("sample of "+kind, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return lint.Sample{Kind: kind, Source: s}
}

func linted(t *testing.T, subjects []lint.Subject, o lint.Options, samples ...lint.Sample) *lint.Report {
	t.Helper()
	r, err := lint.Run(t.Context(), subjects, samples, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Rate = lint.Rate{}
	return r
}

func brokenLaws(r *lint.Report) []string {
	var out []string
	for _, l := range r.Laws {
		if l.Broken > 0 {
			out = append(out, l.Name)
		}
	}
	return out
}

const (
	orders = `
kinds: {from: orders, to: orders}
operations:
  - remove: {field: legacy}
  - add: {field: state, default: new}
  - fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{index}", parent: order, operations: [add: {field: done, default: false}]}
  - gather: {kind: ratings, field: rating, as: object, key: "{_key}/rating"}
`
	items = `
kinds: {from: items, to: items}
key: {from: "regions/{r}/items/{i}", to: "items/{i}", without: {r: {field: region}}}
operations:
  - convert: {field: price, from: int, to: string}
`
	orderRecords = `
{"_id":"orders/1","legacy":"x","lines":[{"sku":"a","n":1},{"sku":"b","n":2}]}
{"_id":"orders/2","lines":[{"sku":"a","n":1}]}
{"_id":"orders/3","state":"old"}`
	ratingRecords = `{"_id":"orders/1/rating","stars":5} {"_id":"orders/9/rating","stars":5}`
	itemRecords   = `
{"_id":"regions/a/items/1","price":5}
{"_id":"regions/b/items/1","price":6}
{"_id":"regions/b/items/2","price":"6"}
{"_id":"regions/b/items/3","price":"7"}
{"_id":"regions/b/items/4","price":7.5}
{"_id":"nonsense","price":7}`
)

func TestGroupsOfSeveralKindsAndContent(t *testing.T) {
	t.Parallel()
	r := linted(t, loaded(t, "orders.yaml", orders, "items.yaml", items), lint.Options{},
		of(t, "orders", orderRecords), of(t, "ratings", ratingRecords), of(t, "items", itemRecords))
	if got := brokenLaws(r); got != nil {
		t.Errorf("laws are broken: %v", got)
	}
	if r.Groups != 10 || r.Laws[0].Tried != 4 {
		t.Errorf("%d groups, %d tried", r.Groups, r.Laws[0].Tried)
	}
	type lost struct {
		direction, kind, field string
		records                int64
	}
	var losses []lost
	for _, l := range r.Losses {
		losses = append(losses, lost{l.Direction, l.Kind, l.Field, l.Records})
	}
	if diff := cmp.Diff([]lost{{"up", "orders", "legacy", 1}, {"down", "orders", "state", 2}, {"down", "lines", "done", 2}}, losses, cmp.AllowUnexported(lost{})); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	var fails []string
	for _, f := range r.Failures {
		fails = append(fails, fmt.Sprint(f.Groups, " ", f.Field, ": ", f.Reason, ": ", f.Examples[0].Name))
	}
	want := []string{
		"2 price: is of type string, not int: regions/b/items/3",
		"1 : record … of ratings belongs to a missing record of orders: create that record, or delete this one: orders/9/rating",
		"1 : … is not of the form regions/{r}/items/{i}: the name does not match: nonsense",
		"1 state: is there already (string), and the reverse would mistake it for the field made here: orders/3",
		"1 price: is of type double, not int: regions/b/items/4",
	}
	if diff := cmp.Diff(want, fails); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(lint.Collided{Keys: 1, Examples: []lint.Collision{{Kind: "items", Key: "items/1", Sources: []string{"regions/a/items/1", "regions/b/items/1"}}}}, r.Collisions); diff != "" {
		t.Errorf("collisions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"6 records fail", "1 key collides"}, r.Problems()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestALimitKeepsGroupsWhole: records that belong to others which the limit left out do
// not look as if they belonged to none.
func TestALimitKeepsGroupsWhole(t *testing.T) {
	t.Parallel()
	parents, children := `{"_id":"orders/1"} {"_id":"orders/2"} {"_id":"orders/3"}`,
		`{"_id":"orders/3/rating","stars":3} {"_id":"orders/2/rating","stars":2} {"_id":"nothing"} {"_id":"orders/9/rating"}`
	for limit, want := range map[int]struct {
		children int64
		problems []string
	}{
		2: {1, nil}, 4: {4, []string{"2 records fail"}},
	} {
		r := linted(t, loaded(t, "orders.yaml", orders), lint.Options{Limit: limit}, of(t, "ratings", children), of(t, "orders", parents))
		if got := r.Sample[1].Records; got != want.children || !slices.Equal(r.Problems(), want.problems) {
			t.Errorf("limit %d: %v, %v", limit, r.Sample, r.Problems())
		}
	}
}

// TestMuchIsKeptInFiles compares a run that has no memory with one that has enough.
func TestMuchIsKeptInFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	subjects := loaded(t, "orders.yaml", orders)
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, `{"_id":"orders/%d","lines":[{"sku":"%s"}]}`, i%2900, strings.Repeat("s", 100))
	}
	var reports []*lint.Report
	files := 0
	for _, memory := range []int{1, 0} {
		s := &watched{Source: of(t, "orders", text.String()).Source, dir: dir}
		reports = append(reports, linted(t, subjects, lint.Options{Memory: memory}, lint.Sample{Kind: "orders", Source: s}))
		files = max(files, s.most)
	}
	if files == 0 {
		t.Error("no file was used")
	}
	if diff := cmp.Diff(reports[1], reports[0]); diff != "" {
		t.Errorf("with files (-in memory +with files):\n%s", diff)
	}
	if f := reports[0].Failures; len(f) != 1 || f[0].Groups != 100 {
		t.Errorf("records that are twice in the sample: %+v", f)
	}
	if left, err := os.ReadDir(dir); err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "dbcontroller-") }) {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// watched counts the entries of a folder while a source is read.
type watched struct {
	lint.Source
	dir  string
	most int
}

func (w *watched) Next(ctx context.Context) (bson.Raw, error) {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "dbcontroller-lens-") {
			n++
		}
	}
	w.most = max(w.most, n)
	return w.Source.Next(ctx)
}

func TestLargeDocumentsAreCounted(t *testing.T) {
	t.Parallel()
	r := linted(t, loaded(t, "a.yaml", "operations: [add: {field: pad, value: 0123456789012345678901234567890123456789}]"),
		lint.Options{MaxDocument: 70}, of(t, "a", `{"_id":"x"} {"_id":"a","more":"than that"}`))
	if r.Size.Over != 1 || r.Size.Largest.Name != "a" || r.Size.Names[0] != "a of a" {
		t.Errorf("%+v, %+v", r.Size, r.Size.Largest)
	}
	if got := r.Problems(); !slices.Equal(got, []string{"1 document is too large"}) {
		t.Error(got)
	}
}

// fn is a transform of the document of a record, have empty for nothing.
type fn func(doc, have bson.D) bson.D

func spec(up, down fn) transform.Spec {
	way := func(f fn, to string) transform.Func {
		return func(src, have transform.Group) ([]record.Record, error) {
			var doc, held bson.D
			if len(src.Records) > 0 {
				doc = decoded(src.Records[0].Doc)
			}
			if len(have.Records) > 0 {
				held = decoded(have.Records[0].Doc)
			}
			out := f(doc, held)
			if out == nil {
				return nil, nil
			}
			raw, err := bson.Marshal(out)
			if err != nil {
				return nil, err
			}
			key, err := record.KeyOfDoc(raw)
			return []record.Record{{Kind: to, Key: key, Doc: raw}}, err
		}
	}
	side := func(kind string) transform.Side {
		return transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kind}}}}
	}
	return transform.Spec{
		Name: "broken", Old: side("old"), New: side("new"), UpNeedsHave: true, DownNeedsHave: true,
		Up: way(up, "new"), Down: way(down, "old"),
	}
}

func decoded(doc bson.Raw) bson.D {
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		panic(err)
	}
	return d
}

func without(d bson.D, name string) bson.D {
	return slices.DeleteFunc(slices.Clone(d), func(e bson.E) bool { return e.Key == name })
}

func value(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

func same(doc, _ bson.D) bson.D { return doc }

// TestEachLawIsSeenBroken has a transformer for each law that breaks it.
func TestEachLawIsSeenBroken(t *testing.T) {
	t.Parallel()
	calls, downs := 0, 0 // with the second record
	state := []lens.Loss{{Field: "state", Operation: "add state"}}
	for _, tc := range []struct {
		name    string
		subject lint.Subject
		edit    func(*transform.Spec)
		want    []string
		detail  string
	}{
		{name: "none", subject: lint.Subject{Spec: spec(same, same)}},
		{
			name:    "a field that nobody declares is lost",
			subject: lint.Subject{Spec: spec(same, func(doc, _ bson.D) bson.D { return without(doc, "a") })},
			want:    []string{"round trip", "get-put", "put-get"}, detail: "a int 1 is not there",
		},
		{
			name: "a value comes back with another type",
			subject: lint.Subject{Spec: spec(same, func(doc, _ bson.D) bson.D {
				if doc == nil {
					return nil
				}
				return append(without(doc, "a"), bson.E{Key: "a", Value: int64(1)})
			})},
			want: []string{"round trip", "get-put", "put-get"}, detail: "a int 1 is long 1",
		},
		{
			name: "the reverse does not look at what the old version held",
			subject: lint.Subject{LostUp: []lens.Loss{{Field: "a", Operation: "remove a"}},
				Spec: spec(func(doc, _ bson.D) bson.D { return without(doc, "a") }, same)},
			want: []string{"round trip"}, detail: "a int 1 is not there",
		},
		{
			name: "what the new version set is written over",
			subject: lint.Subject{LostDown: state, Spec: spec(
				func(doc, _ bson.D) bson.D {
					if doc == nil {
						return nil
					}
					return append(slices.Clone(doc), bson.E{Key: "state", Value: "new"})
				},
				func(doc, _ bson.D) bson.D { return without(doc, "state") })},
			// put-get only with the first record, which has none before it.
			want: []string{"get-put", "put-get"}, detail: `state "new~" is "new"`,
		},
		{
			name: "what the old version held gets into what was changed",
			subject: lint.Subject{Spec: spec(same, func(doc, have bson.D) bson.D {
				if doc != nil && value(doc, "b") == nil && value(have, "b") != nil {
					return append(slices.Clone(doc), bson.E{Key: "b", Value: value(have, "b")})
				}
				return doc
			})},
			want: []string{"put-get"}, detail: "b int 2 is there as well",
		},
		{
			name: "the order of fields changes from call to call",
			subject: lint.Subject{Spec: spec(func(doc, _ bson.D) bson.D {
				if len(doc) < 3 {
					return doc
				}
				if calls++; calls > 1 {
					doc = bson.D{doc[0], doc[2], doc[1]}
				}
				return doc
			}, same)},
			edit: func(s *transform.Spec) { s.UpNeedsHave, s.DownNeedsHave = false, false },
			want: []string{"stable"}, detail: "up: the fields have another order",
		},
		{
			name: "the reverse changes from call to call",
			subject: lint.Subject{Spec: spec(same, func(doc, _ bson.D) bson.D {
				if len(doc) < 3 {
					return doc
				}
				if downs++; downs > 1 {
					doc = bson.D{doc[0], doc[2], doc[1]}
				}
				return doc
			})},
			edit: func(s *transform.Spec) { s.UpNeedsHave, s.DownNeedsHave = false, false },
			want: []string{"stable"}, detail: "down: the fields have another order",
		},
		{
			name: "what was deleted comes back",
			subject: lint.Subject{Spec: spec(func(doc, have bson.D) bson.D {
				if doc == nil {
					return have
				}
				return doc
			}, same)},
			want: []string{"deleted"}, detail: "new record 1 of new has no source record",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.edit != nil {
				tc.edit(&tc.subject.Spec)
			}
			r := linted(t, []lint.Subject{tc.subject}, lint.Options{}, of(t, "old", `{"_id":"1","a":1} {"_id":"2","a":1,"b":2} {"_id":"3","a":1}`))
			if diff := cmp.Diff(tc.want, brokenLaws(r)); diff != "" {
				t.Fatalf("broken (-want +got):\n%s", diff)
			}
			for _, l := range r.Laws {
				if l.Tried == 0 {
					t.Errorf("%s was never tried", l.Name)
				}
				if l.Broken > 0 && l.Name == tc.want[0] && l.Examples[0].Detail != tc.detail {
					t.Errorf("%s: %q, want %q", l.Name, l.Examples[0].Detail, tc.detail)
				}
			}
		})
	}
}

// TestAPanicIsAFailure: the record is named, and the others are tried.
func TestAPanicIsAFailure(t *testing.T) {
	t.Parallel()
	s := spec(func(doc, _ bson.D) bson.D {
		if value(doc, "a") == int32(2) {
			panic("no twos")
		}
		return doc
	}, same)
	r := linted(t, []lint.Subject{{Spec: s}}, lint.Options{}, of(t, "old", `{"_id":"1","a":1} {"_id":"2","a":2}`))
	if len(r.Failures) != 1 || r.Failures[0].Reason != "panic: no twos" || r.Failures[0].Examples[0].Name != "2" || r.Laws[0].Tried != 1 {
		t.Errorf("%+v", r.Failures)
	}
}

func TestLimitAndCancel(t *testing.T) {
	t.Parallel()
	subjects := loaded(t, "a.yaml", "operations: []")
	r := linted(t, subjects, lint.Options{Limit: 2}, of(t, "a", `{"_id":1} {"_id":2} {"_id":3}`))
	if r.Groups != 2 || r.Sample[0].Records != 2 {
		t.Errorf("%d groups of %v", r.Groups, r.Sample)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lint.Run(ctx, subjects, []lint.Sample{of(t, "a", `{"_id":1}`)}, lint.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := lint.Run(t.Context(), subjects, []lint.Sample{of(t, "b", `{"_id":1}`)}, lint.Options{}); err == nil || err.Error() != "no lens has the kind b" {
		t.Error(err)
	}
	if _, err := lint.Run(t.Context(), subjects, []lint.Sample{of(t, "a", `{"a":1}`)}, lint.Options{}); err == nil || !strings.Contains(err.Error(), "record 1 of a has no _id") {
		t.Error(err)
	}
}

var _ lint.Source = (*watched)(nil)

// all reads a source to its end.
func all(t *testing.T, s lint.Source) ([]bson.Raw, error) {
	t.Helper()
	var out []bson.Raw
	for {
		doc, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, doc)
	}
}

// judge refuses records by name.
type judge struct{ tried int }

func (j *judge) Try(_ context.Context, rs []record.Record) ([]error, error) {
	out := make([]error, len(rs))
	for i, r := range rs {
		j.tried++
		if strings.HasSuffix(r.Key.String(), "7") {
			out[i] = errors.New("it ends in 7")
		}
	}
	return out, nil
}

// TestRefusedByTheDatabase: each record that is made is judged once, and all that are refused
// are named, beyond the number of examples and over several rounds.
func TestRefusedByTheDatabase(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 1207 {
		fmt.Fprintf(&text, `{"_id": "p%d", "a": 1}`, i)
	}
	j := &judge{}
	r := linted(t, loaded(t, "p.yaml", "operations:\n  - rename: {from: a, to: b}\n"), lint.Options{Judge: j}, of(t, "p", text.String()))
	if j.tried != 1207 || len(r.Refused) != 1 || r.Refused[0].Records != 120 || len(r.Refused[0].Names) != 120 {
		t.Errorf("%d tried, %+v", j.tried, r.Refused)
	}
	if want := []string{"120 records break an index or a validator of the new version"}; !slices.Equal(r.Problems(), want) {
		t.Errorf("%v", r.Problems())
	}
}
