package typed_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/typed"
)

type oldTag struct {
	Epoch string `bson:"epoch"`
	Index int64  `bson:"index"`
}

type newTag struct {
	Generation string `bson:"generation"`
	Index      int64  `bson:"index"`
}

type oldJob struct {
	ID       string            `bson:"_id"`
	MemoryMB int32             `bson:"memory_mb"`
	DiskMB   int32             `bson:"disk_mb"`
	Image    string            `bson:"image"`
	First    string            `bson:"first"`
	Last     string            `bson:"last,omitempty"`
	Legacy   string            `bson:"legacy,omitempty"`
	Started  time.Time         `bson:"started"`
	Labels   map[string]string `bson:"labels"`
	Tag      oldTag            `bson:"tag"`
	A, B     string
	Owner    string `bson:"owner"`
}

type quantity string

type newMeta struct {
	Owner string `bson:"owner"`
}

type newJob struct {
	ID         string            `bson:"_id"`
	Memory     int32             `bson:"memory"`
	Disk       quantity          `bson:"disk"`
	Repository string            `bson:"repository"`
	Version    string            `bson:"version,omitempty"`
	Name       string            `bson:"name"`
	Priority   string            `bson:"priority"`
	Started    time.Time         `bson:"started"`
	Labels     map[string]string `bson:"labels"`
	Tag        newTag            `bson:"tag"`
	A, B       string
	Meta       newMeta `bson:"meta"`
}

func toQuantity(n int32) (quantity, error) { return quantity(fmt.Sprintf("%dMi", n)), nil }

func fromQuantity(q quantity) (int32, error) {
	s, ok := strings.CutSuffix(string(q), "Mi")
	n, err := strconv.ParseInt(s, 10, 32)
	if !ok || err != nil {
		return 0, errors.New("not a number of Mi")
	}
	return int32(n), nil
}

func splitImage(s string) (string, string, error) {
	repo, version, _ := strings.Cut(s, ":")
	return repo, version, nil
}

func joinImage(repo, version string) (string, error) {
	if version == "" {
		return repo, nil
	}
	return repo + ":" + version, nil
}

func fields() []typed.Field {
	return []typed.Field{
		typed.Rename("memory_mb", "memory"),
		typed.Convert("disk_mb", "disk", toQuantity, fromQuantity),
		typed.Split("image", "repository", "version", splitImage, joinImage),
		typed.Join("first", "last", "name",
			func(a, b string) (string, error) { return strings.TrimSuffix(a+" "+b, " "), nil },
			func(s string) (string, string, error) { a, b, _ := strings.Cut(s, " "); return a, b, nil }),
		typed.OldOnly("legacy", nil),
		typed.NewOnly("priority", "normal"),
		typed.Rename("tag.epoch", "tag.generation"),
		typed.Rename("a", "b"), typed.Rename("b", "a"), // exchanged
		typed.Rename("owner", "meta.owner"),
	}
}

func kind(name string) record.KindSpec { return record.KindSpec{Name: name} }

func jobs() typed.Pair[oldJob, newJob] {
	return typed.Pair[oldJob, newJob]{Name: "job", Revision: "1", OldKind: kind("jobs"), NewKind: kind("tasks"), Fields: fields()}
}

func compile[A, B any](t testing.TB, p typed.Pair[A, B]) *typed.Transformer {
	t.Helper()
	tr, err := typed.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func directions(t testing.TB, s transform.Spec) (up, down transform.Direction) {
	t.Helper()
	r := transform.NewRegistry("test")
	if err := r.Add("v1", "v2", s); err != nil {
		t.Fatal(err)
	}
	up, err1 := r.Direction("v1", "v2")
	down, err2 := r.Direction("v2", "v1")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return up, down
}

func rec(t interface{ Fatal(...any) }, kind string, d bson.D) record.Record {
	doc, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{Kind: kind, Key: key, Doc: doc}
}

func put(t testing.TB, d transform.Direction, src, have []record.Record) ([]record.Record, error) {
	t.Helper()
	id, ok, err := d.GroupOf(src[0].Kind, src[0].Key)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	return d.Transform(id, transform.Group{Name: id.Name, Records: src}, transform.Group{Name: id.Name, Records: have})
}

// draw makes documents of a kind: each field may be left out, in any order.
func draw(kind string, fields func(t *rapid.T) bson.D) *rapid.Generator[[]record.Record] {
	return rapid.Custom(func(t *rapid.T) []record.Record {
		var d bson.D
		for _, e := range fields(t) {
			if rapid.IntRange(0, 9).Draw(t, "leave out "+e.Key) > 0 {
				d = append(d, e)
			}
		}
		d = append(bson.D{{Key: "_id", Value: rapid.SampledFrom([]string{"j", "k"}).Draw(t, "key")}}, rapid.Permutation(d).Draw(t, "order")...)
		return []record.Record{rec(t, kind, d)}
	})
}

func text(t *rapid.T, of ...string) string { return rapid.SampledFrom(of).Draw(t, "text") }

func oldDocs(t *rapid.T) bson.D {
	return bson.D{
		{Key: "memory_mb", Value: rapid.SampledFrom([]any{int32(1), int64(2), 3.0, nil}).Draw(t, "memory")},
		{Key: "disk_mb", Value: rapid.SampledFrom([]any{int32(1), int64(2), nil}).Draw(t, "disk")},
		{Key: "image", Value: text(t, "", "repo", "repo:1")}, {Key: "first", Value: text(t, "", "ann")}, {Key: "last", Value: text(t, "", "smith")},
		{Key: "legacy", Value: text(t, "", "x")}, {Key: "started", Value: time.UnixMilli(rapid.Int64Range(0, 9).Draw(t, "started"))},
		{Key: "labels", Value: bson.D{{Key: "x", Value: "y"}, {Key: "future", Value: 1}}},
		{Key: "tag", Value: bson.D{{Key: "index", Value: int64(1)}, {Key: "epoch", Value: text(t, "e", "f")}, {Key: "unknown", Value: 1}}},
		{Key: "a", Value: text(t, "1", "2")}, {Key: "b", Value: text(t, "3", "4")}, {Key: "owner", Value: text(t, "", "o")},
		{Key: "unknown", Value: bson.A{nil, 1.5}},
	}
}

func newDocs(t *rapid.T) bson.D {
	return bson.D{
		{Key: "memory", Value: rapid.SampledFrom([]any{int32(1), int64(2), nil}).Draw(t, "memory")},
		{Key: "disk", Value: text(t, "1Mi", "2Mi")},
		{Key: "repository", Value: text(t, "", "repo")}, {Key: "version", Value: text(t, "", "1")},
		{Key: "name", Value: text(t, "", "ann", "ann smith")},
		{Key: "priority", Value: text(t, "high", "low", "normal")}, {Key: "started", Value: time.UnixMilli(rapid.Int64Range(0, 9).Draw(t, "started"))},
		{Key: "tag", Value: bson.D{{Key: "index", Value: int64(1)}, {Key: "generation", Value: text(t, "e", "f")}}},
		{Key: "a", Value: text(t, "1", "2")}, {Key: "b", Value: text(t, "3", "4")},
		{Key: "meta", Value: bson.D{{Key: "owner", Value: text(t, "", "o")}}},
		{Key: "unknown", Value: bson.A{nil, 1.5}},
	}
}

func TestPairLaws(t *testing.T) {
	t.Parallel()
	up, down := directions(t, compile(t, jobs()).Spec)
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: draw("jobs", oldDocs), New: draw("tasks", newDocs), LossyUp: true, LossyDown: true})
}

func TestPair(t *testing.T) {
	t.Parallel()
	up, down := directions(t, compile(t, jobs()).Spec)
	x := []record.Record{rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "memory_mb", Value: int64(5)}, {Key: "future", Value: 1}, {Key: "image", Value: "repo:1"}, {Key: "disk_mb", Value: int32(7)},
		{Key: "owner", Value: "ann"}, {Key: "legacy", Value: "l"}, {Key: "last", Value: "b"}, {Key: "a", Value: "A"}, {Key: "first", Value: "f"}, {Key: "b", Value: "B"}, {Key: "tag", Value: bson.D{{Key: "epoch", Value: "e"}, {Key: "x", Value: nil}}}})}
	y, err := put(t, up, x, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := rec(t, "tasks", bson.D{{Key: "_id", Value: "j"}, {Key: "memory", Value: int64(5)}, {Key: "future", Value: 1}, {Key: "repository", Value: "repo"}, {Key: "version", Value: "1"}, {Key: "disk", Value: "7Mi"},
		{Key: "b", Value: "A"}, {Key: "name", Value: "f b"}, {Key: "a", Value: "B"}, {Key: "tag", Value: bson.D{{Key: "generation", Value: "e"}, {Key: "x", Value: nil}}}, {Key: "meta", Value: bson.D{{Key: "owner", Value: "ann"}}}, {Key: "priority", Value: "normal"}})
	if !bytes.Equal(y[0].Doc, want.Doc) {
		t.Errorf("became %s\nwant   %s", y[0].Doc, want.Doc)
	}
	// An edit in the new version keeps what only the old one has, and widths that the
	// old one chose.
	edited := rec(t, "tasks", bson.D{{Key: "_id", Value: "j"}, {Key: "memory", Value: int64(6)}, {Key: "disk", Value: "7Mi"}})
	have := []record.Record{rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "disk_mb", Value: int64(7)}, {Key: "legacy", Value: "l"}})}
	back, err := put(t, down, []record.Record{edited}, have)
	wantBack := rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "memory_mb", Value: int64(6)}, {Key: "disk_mb", Value: int64(7)}, {Key: "legacy", Value: "l"}})
	if err != nil || !bytes.Equal(back[0].Doc, wantBack.Doc) {
		t.Errorf("came back as %v, %v", back, err)
	}
}

func TestPairParksWhatItCannotHold(t *testing.T) {
	t.Parallel()
	up, down := directions(t, compile(t, jobs()).Spec)
	for _, tc := range []struct {
		name, want string
		d          transform.Direction
		r          record.Record
	}{
		{"another type", "field disk_mb: it is of type string, not int32", up, rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "disk_mb", Value: "7"}})},
		{"null where nothing stands for it", "field image: it is null", up, rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "image", Value: nil}})},
		{"the other version's field", "field memory belongs to the other version", up, rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "memory", Value: 1}})},
		{"within an object", "field tag.generation belongs", up, rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "tag", Value: bson.D{{Key: "generation", Value: 1}}}})},
		{"does not come back", "field image: the value does not come back the same", up, rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "image", Value: "repo:"}})},
		{"refused by the function", "field disk: not a number of Mi", down, rec(t, "tasks", bson.D{{Key: "_id", Value: "j"}, {Key: "disk", Value: "7Gi"}})},
		{"twice", "field disk_mb is there twice", up, rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "disk_mb", Value: 1}, {Key: "disk_mb", Value: 2}})},
		{"in the way", "meta is in the way of meta.owner", up, rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "owner", Value: "o"}, {Key: "meta", Value: 1}})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out, err := put(t, tc.d, []record.Record{tc.r}, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, error %v, want %q", out, err, tc.want)
			}
		})
	}
}

func TestCompileHoldsTypesAgainstEachOther(t *testing.T) {
	t.Parallel()
	type a struct {
		ID string `bson:"_id"`
		X  int32  `bson:"x"`
	}
	type b struct {
		ID string `bson:"_id"`
		X  string `bson:"x"`
	}
	itoa := func(n int32) (string, error) { return strconv.Itoa(int(n)), nil }
	atoi := func(s string) (int32, error) { n, err := strconv.Atoi(s); return int32(n), err }
	for _, tc := range []struct {
		name, want string
		fields     []typed.Field
	}{
		{"another type", "field x of old has no counterpart in new with the same type", nil},
		{"rename changes nothing of the type", "x of new is string: use Convert", []typed.Field{typed.Rename("x", "x")}},
		{"function of another type", "field x of old is int32, and its function takes string", []typed.Field{typed.Convert("x", "x", atoi, itoa)}},
		{"no such field", "new has no field y", []typed.Field{typed.Convert("x", "y", itoa, atoi)}},
		{"named twice", "named twice", []typed.Field{typed.Convert("x", "x", itoa, atoi), typed.OldOnly("x", nil)}},
		{"default of another type", "field x of new is string, and its default int", []typed.Field{typed.OldOnly("x", nil), typed.NewOnly("x", 5)}},
		{"the key", "use Names", []typed.Field{typed.Rename("_id", "_id")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := typed.Compile(typed.Pair[a, b]{Name: "p", OldKind: kind("old"), NewKind: kind("new"), Fields: tc.fields})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
	compile(t, typed.Pair[a, b]{Name: "p", OldKind: kind("old"), NewKind: kind("new"), Fields: []typed.Field{typed.Convert("x", "x", itoa, atoi)}})
	compile(t, typed.Pair[a, b]{Name: "p", OldKind: kind("old"), NewKind: kind("new"), Fields: []typed.Field{typed.OldOnly("x", nil), typed.NewOnly("x", nil)}})
}

func TestNames(t *testing.T) {
	t.Parallel()
	p := jobs()
	p.Names = &typed.Names{
		Up: func(n string) (string, error) { return "regions/r/" + n, nil },
		Down: func(n string) (string, error) {
			rest, ok := strings.CutPrefix(n, "regions/r/")
			if !ok {
				return "", errors.New("not of region r")
			}
			return rest, nil
		},
		UpParent: func(s string) (string, error) { return "regions/r/" + s, nil },
	}
	tr := compile(t, p)
	up, down := directions(t, tr.Spec)
	x := []record.Record{rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "memory_mb", Value: 1}})}
	y, err := put(t, up, x, nil)
	if err != nil || y[0].Key != record.StringKey("regions/r/j") {
		t.Fatal(y, err)
	}
	if back, err := put(t, down, y, nil); err != nil || !bytes.Equal(back[0].Doc, x[0].Doc) {
		t.Errorf("came back as %v, %v", back, err)
	}
	id, _, _ := up.GroupOf("jobs", x[0].Key)
	if kind, key := up.Anchor(id); kind != "tasks" || key != y[0].Key || up.TargetSelect(id)[0] != (record.Selector{Kind: "tasks", Key: y[0].Key}) {
		t.Errorf("anchor %s %s, found by %v", kind, key, up.TargetSelect(id))
	}
	if _, _, err := up.GroupOfTarget("tasks", record.StringKey("x")); err == nil {
		t.Error("a name of no old record has a group")
	}
	if n, err := tr.Up.Name("j"); n != "regions/r/j" || err != nil {
		t.Error(n, err)
	}
	if n, err := tr.Up.Parent("x"); n != "regions/r/x" || err != nil {
		t.Error(n, err)
	}
	var refused *transform.MappingError
	if _, err := tr.Down.Parent("x"); !errors.As(err, &refused) || refused.Field != "x" {
		t.Error(err)
	}
	if _, err := tr.Down.Name("x"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "not of region r") {
		t.Error(err)
	}
}

func TestWhole(t *testing.T) {
	t.Parallel()
	type a struct {
		ID   string   `bson:"_id"`
		List []string `bson:"list"`
		N    int32    `bson:"n"`
	}
	type b struct {
		ID    string `bson:"_id"`
		Count int32  `bson:"count"`
		Text  string `bson:"text,omitempty"`
		N     int32  `bson:"n"`
	}
	tr := compile(t, typed.Pair[a, b]{
		Name: "w", OldKind: kind("old"), NewKind: kind("new"),
		Whole: &typed.Whole[a, b]{
			OldFields: []string{"list"}, NewFields: []string{"count", "text"},
			Up:   func(x a, y *b) error { y.Count, y.Text = int32(len(x.List)), strings.Join(x.List, ","); return nil },
			Down: func(y b, x *a) error { x.List = strings.Split(y.Text, ","); return nil },
		},
	})
	up, down := directions(t, tr.Spec)
	x := []record.Record{rec(t, "old", bson.D{{Key: "_id", Value: "k"}, {Key: "list", Value: bson.A{"p", "q"}}, {Key: "n", Value: int64(4)}, {Key: "future", Value: 1}})}
	y, err := put(t, up, x, nil)
	if want := rec(t, "new", bson.D{{Key: "_id", Value: "k"}, {Key: "n", Value: int64(4)}, {Key: "future", Value: 1}, {Key: "count", Value: int32(2)}, {Key: "text", Value: "p,q"}}); err != nil || !bytes.Equal(y[0].Doc, want.Doc) {
		t.Fatalf("became %v, %v", y, err)
	}
	again, err := put(t, up, x, y)
	if err != nil || !bytes.Equal(again[0].Doc, y[0].Doc) {
		t.Errorf("not stable: %v, %v", again, err)
	}
	if back, err := put(t, down, y, x); err != nil || back[0].Doc.Lookup("list").String() != `["p","q"]` || back[0].Doc.Lookup("count").Type != 0 {
		t.Errorf("came back as %v, %v", back, err)
	}
	if got, err := tr.Up.Field("list"); err != nil || fmt.Sprint(got) != "[count text]" {
		t.Errorf("mask %v, %v", got, err)
	}
	if _, err := tr.Up.Order("list"); err == nil {
		t.Error("a computed field can be ordered by")
	}
}

func explode() { panic("no such unit") }

// What ends a function ends nothing else.
func TestUserFunctionsRunApart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func()
		want []string
	}{
		"panic":  {explode, []string{"no such unit", "typed_test.explode"}},
		"goexit": {runtime.Goexit, []string{"runtime.Goexit was called"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := jobs()
			p.Fields[1] = typed.Convert("disk_mb", "disk", func(n int32) (quantity, error) { tc.end(); return "", nil }, fromQuantity)
			tr := compile(t, p)
			up, _ := directions(t, tr.Spec)
			src := rec(t, "jobs", bson.D{{Key: "_id", Value: "j"}, {Key: "disk_mb", Value: 1}})
			var err error
			ended := make(chan struct{})
			go func() { // which must not be ended
				defer close(ended)
				err = errors.New("the goroutine that asked was ended")
				_, err = put(t, up, []record.Record{src}, nil)
			}()
			<-ended
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want %q", err, want)
				}
			}
			_, err = tr.Up.Compare(transform.Condition{Path: "disk_mb", Op: transform.OpEqual, Values: []any{int64(1)}})
			if err == nil || !strings.Contains(err.Error(), tc.want[0]) {
				t.Errorf("literal: error is %v", err)
			}
		})
	}
}

func BenchmarkPair(b *testing.B) {
	up, _ := directions(b, compile(b, jobs()).Spec)
	d := bson.D{{Key: "_id", Value: "j"}, {Key: "memory_mb", Value: int32(5)}, {Key: "disk_mb", Value: int32(7)}, {Key: "image", Value: "repo:1"}}
	for i := range 36 {
		d = append(d, bson.E{Key: fmt.Sprint("field", i), Value: "some text of a usual length"})
	}
	src := []record.Record{rec(b, "jobs", d)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := put(b, up, src, nil); err != nil {
			b.Fatal(err)
		}
	}
}
