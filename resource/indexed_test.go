package resource

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/examples/sampletest"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	tasksv3 "dbcontroller.dev/gen/tasks/v3"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
)

// taskStores are two stores with the same tasks, of which one has indexes of declared fields.
func taskStores(t *testing.T, n int, edit func(i int, d bson.D) bson.D) (plain, indexed *sampletest.Store) {
	t.Helper()
	plain, indexed = sampletest.New(t, "tasks"), sampletest.New(t, "tasks")
	indexed.BuildIndex(t, "tasks", "title", "urgency", "due_time", "priority")
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		name := fmt.Sprintf("tasks/%04d", random.IntN(10000))
		d := bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}}
		switch random.IntN(4) {
		case 0: // absent is the zero value
		case 1:
			d = append(d, bson.E{Key: "title", Value: nil})
		default:
			d = append(d, bson.E{Key: "title", Value: []string{"", "a", "b", "bb"}[random.IntN(4)]})
		}
		d = append(d, bson.E{Key: "urgency", Value: []any{nil, "URGENCY_UNSPECIFIED", tasksv3.Urgency_name[1], tasksv3.Urgency_name[2]}[random.IntN(4)]})
		if random.IntN(3) > 0 {
			d = append(d, bson.E{Key: "due_time", Value: bson.NewDateTimeFromTime(time.Unix(int64(random.IntN(5)), 0))})
		}
		d = append(d, bson.E{Key: "priority", Value: []any{int32(0), int64(-2), 3.0, int64(3), int32(7), nil}[random.IntN(6)]})
		if edit != nil {
			d = edit(i, d)
		}
		raw, err := bson.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*sampletest.Store{plain, indexed} {
			if err := s.Write(context.Background(), []record.Mutation{{Kind: "tasks", Key: record.StringKey(name), Doc: raw}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return plain, indexed
}

func taskTable(s *sampletest.Store) *Table[*tasksv3.Task] {
	return New(s, Config[*tasksv3.Task]{Kind: "tasks", Pattern: "tasks/{task}"})
}

// bookTable shows the same records as books.
func bookTable(s *sampletest.Store) *Table[*libraryv1.Book] {
	return New(s, Config[*libraryv1.Book]{Kind: "tasks", Pattern: "tasks/{task}"})
}

// pages lists to the end.
func pages[M interface {
	proto.Message
	GetName() string
}](t *testing.T, table *Table[M], filter, order string, size int32) (names []string) {
	t.Helper()
	req := &libraryv1.ListRequest{Filter: filter, OrderBy: order, PageSize: size}
	for range 1000 {
		page, err := table.List(context.Background(), req)
		if err != nil {
			t.Fatalf("%s by %s: %v", filter, order, err)
		}
		for _, m := range page.Items {
			names = append(names, m.GetName())
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return names
		}
	}
	t.Fatalf("%s by %s: no end", filter, order)
	return nil
}

// TestIndexedLists: with indexes of declared fields a list is the one that it is without, for all
// types of fields, with values that are absent, null, zero and of other types of numbers, in both
// directions, and in pages of any size.
func TestIndexedLists(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(int, bson.D) bson.D{
		"as they are written": nil,
		"a time that is a text and an enum that is a number": func(i int, d bson.D) bson.D {
			if i == 7 {
				for j := range d {
					switch d[j].Key {
					case "due_time":
						d[j].Value = "1970-01-01T01:00:02+01:00"
					case "urgency":
						d[j].Value = int32(2)
					}
				}
			}
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 150
			if raced.On {
				n = 16
			}
			plain, indexed := taskStores(t, n, edit)
			compare(t, taskTable(plain), taskTable(indexed),
				[]string{"", `urgency == "URGENCY_NOW"`, `urgency == "URGENCY_UNSPECIFIED"`, `due_time == timestamp("1970-01-01T00:00:02Z")`, `priority == 3`, `priority == 0`,
					`priority in [3, 7] && urgency == "URGENCY_NOW"`, `urgency == "URGENCY_NOW" || priority == 3`, `priority > 2`},
				[]string{"", "urgency", "urgency desc", "due_time", "due_time desc", "priority", "priority desc", "name desc", "priority, due_time"})
			compare(t, bookTable(plain), bookTable(indexed),
				[]string{"", `title == "b"`, `title == ""`, `title in ["a", "bb", "none"]`, `title != "a"`}, []string{"", "title", "title desc"})
			if indexed.Reads("tasks by title") == 0 || indexed.Reads("tasks by priority") == 0 {
				t.Error("no index was read")
			}
		})
	}
}

func compare[M interface {
	proto.Message
	GetName() string
}](t *testing.T, without, with *Table[M], filters, orders []string) {
	t.Helper()
	for _, filter := range filters {
		for _, order := range orders {
			want := pages(t, without, filter, order, 0)
			for _, size := range []int32{0, 1, 7} {
				if have := pages(t, with, filter, order, size); !slices.Equal(have, want) {
					t.Errorf("%q by %q, %d at a time:\nhave %v\nwant %v", filter, order, size, have, want)
				}
			}
		}
	}
}

// TestIndexedReadsLittle: a comparison and an order by a declared field read what is on the page, and
// nothing else of the kind.
func TestIndexedReadsLittle(t *testing.T) {
	t.Parallel()
	_, indexed := taskStores(t, 50, nil)
	table := bookTable(indexed)
	before := indexed.Reads("tasks")
	for _, req := range []*libraryv1.ListRequest{{Filter: `title == "b"`}, {OrderBy: "title desc", PageSize: 1}, {Filter: `title == "b"`, OrderBy: "revision"}} {
		if _, err := table.List(context.Background(), req); err != nil {
			t.Fatal(err)
		}
	}
	if n := indexed.Reads("tasks") - before; n != 0 {
		t.Errorf("%d reads of the kind", n)
	}
}

// TestIndexedOrderIsUnbounded: an order that would sort more records in memory than a list may is
// refused, and served by the index of its field.
func TestIndexedOrderIsUnbounded(t *testing.T) {
	t.Parallel()
	const n = 10_001
	s := sampletest.New(t, "tasks")
	ms := make([]record.Mutation, 0, n)
	for i := range n {
		name := fmt.Sprintf("tasks/%05d", i)
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "title", Value: fmt.Sprintf("%05d", n-i)}})
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, record.Mutation{Kind: "tasks", Key: record.StringKey(name), Doc: raw})
	}
	for part := range slices.Chunk(ms, 1000) {
		if err := s.Write(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	req := &libraryv1.ListRequest{OrderBy: "title", PageSize: 2}
	if _, err := bookTable(s).List(t.Context(), req); err == nil || !strings.Contains(err.Error(), "narrow the filter, or list without order_by") {
		t.Errorf("without an index: %v", err)
	}
	s.BuildIndex(t, "tasks", "title")
	var names []string
	for range 2 {
		page, err := bookTable(s).List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Items {
			names = append(names, m.GetName())
		}
		req.PageToken = page.NextPageToken
	}
	if want := []string{"tasks/10000", "tasks/09999", "tasks/09998", "tasks/09997"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// TestListBytes: a list does not read a thousand large records at once.
func TestListBytes(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	s := sampletest.New(t, "tasks")
	for i := range 20 {
		name := fmt.Sprintf("tasks/%02d", i)
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "title", Value: strings.Repeat("x", 1<<20)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(context.Background(), []record.Mutation{{Kind: "tasks", Key: record.StringKey(name), Doc: raw}}); err != nil {
			t.Fatal(err)
		}
	}
	recs, more, err := bookTable(s).fetch(context.Background(), within{}, "", 1000, fetchBytes)
	if err != nil || !more || len(recs) != fetchBytes>>20 {
		t.Errorf("%d records, more %t, %v", len(recs), more, err)
	}
	if n := len(pages(t, bookTable(s), "", "", 1000)); n != 20 {
		t.Errorf("%d tasks", n)
	}
	if n := len(pages(t, bookTable(s), "", "title desc", 1000)); n != 20 {
		t.Errorf("%d tasks by title", n)
	}
}

// scarce is a store with memory for the records of two values.
type scarce struct {
	*sampletest.Store
	values int
}

func (s *scarce) ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error) {
	if len(req.Equal.Value) > 0 {
		if s.values++; s.values > 2 {
			return record.IndexPage{}, record.ErrTooLarge
		}
	}
	return s.Store.ListIndexed(ctx, kind, req)
}

// TestManyValuesOfLargeRecords checks that a comparison with many values, whose records do not fit in
// memory together, is answered by a scan.
func TestManyValuesOfLargeRecords(t *testing.T) {
	t.Parallel()
	plain, indexed := taskStores(t, 40, nil)
	for _, order := range []string{"", "priority"} {
		const filter = `priority in [0, 3, 7, -2]`
		s := &scarce{Store: indexed}
		have := pages(t, New(s, Config[*tasksv3.Task]{Kind: "tasks", Pattern: "tasks/{task}"}), filter, order, 100)
		if want := pages(t, taskTable(plain), filter, order, 100); !slices.Equal(have, want) || len(want) == 0 || s.values < 3 {
			t.Errorf("by %q: %q after %d values, want %q", order, have, s.values, want)
		}
	}
}
