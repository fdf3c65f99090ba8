package listing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion/internal/prototest"
	"dbcontroller.dev/apiversion/listing"
)

// shelf holds messages in name order.
type shelf []*dynamicpb.Message

func nameOf(m *dynamicpb.Message) string {
	return m.Get(m.Descriptor().Fields().ByName("name")).String()
}

func (s shelf) source(d protoreflect.MessageDescriptor) listing.Source[*dynamicpb.Message, *dynamicpb.Message] {
	return listing.Source[*dynamicpb.Message, *dynamicpb.Message]{
		Fetch: func(_ context.Context, after string, limit int) ([]*dynamicpb.Message, error) {
			i, found := slices.BinarySearchFunc(s, after, func(m *dynamicpb.Message, name string) int { return strings.Compare(nameOf(m), name) })
			if found {
				i++
			}
			return s[i:min(len(s), i+limit)], nil
		},
		Name: func(m *dynamicpb.Message) (string, error) { return nameOf(m), nil },
		Message: func(_ context.Context, m *dynamicpb.Message) (*dynamicpb.Message, error) {
			return proto.CloneOf(m), nil
		},
		NameField: "name", Descriptor: d,
	}
}

func newShelf(t rapid.TB, d protoreflect.MessageDescriptor, n int, fill func(i int, m *dynamicpb.Message)) shelf {
	s := make(shelf, n)
	for i := range s {
		s[i] = dynamicpb.NewMessage(d)
		fill(i, s[i])
		s[i].Set(d.Fields().ByName("name"), protoreflect.ValueOfString(fmt.Sprintf("n%05d", i)))
	}
	return s
}

type want struct {
	parent, filter, order, token string
	size                         int32
}

func request(t testing.TB, w want) proto.Message {
	m := dynamicpb.NewMessage(prototest.Message(t, "library_v1.proto", "ListBooksRequest"))
	set := func(name protoreflect.Name, v protoreflect.Value) { m.Set(m.Descriptor().Fields().ByName(name), v) }
	set("parent", protoreflect.ValueOfString(w.parent))
	set("filter", protoreflect.ValueOfString(w.filter))
	set("order_by", protoreflect.ValueOfString(w.order))
	set("page_token", protoreflect.ValueOfString(w.token))
	set("page_size", protoreflect.ValueOfInt32(w.size))
	return m
}

// TestPagesAreTheWholeList compares pages of random sizes with sorting and filtering
// everything at once.
func TestPagesAreTheWholeList(t *testing.T) {
	t.Parallel()
	d := kinds(t)
	orders := []string{"", "name", "name desc", "i32", "i32 desc, color", "opt_text", "opt_int desc", "item.count, labels.a desc", "at", "db", "flag desc", "raw", "boxed_number"}
	rapid.Check(t, func(rt *rapid.T) {
		s := newShelf(rt, d, rapid.IntRange(0, 12).Draw(rt, "records"), func(_ int, m *dynamicpb.Message) { prototest.Draw(rt, m) })
		f, err := prototest.DrawFilter(rt, d, paths, 1).Check(d)
		if err != nil || rapid.Bool().Draw(rt, "all") {
			f = listing.Filter{}
		}
		w := want{filter: f.String(), order: rapid.SampledFrom(orders).Draw(rt, "order")}
		order, err := listing.ParseOrder(w.order, d)
		if err != nil {
			rt.Fatal(err)
		}
		var naive []string
		sorted := slices.Clone(s)
		slices.SortStableFunc(sorted, func(a, b *dynamicpb.Message) int { return order.Compare(a, b) })
		for _, m := range sorted {
			if f.Eval(m) {
				naive = append(naive, nameOf(m))
			}
		}
		var got []string
		for {
			w.size = rapid.Int32Range(1, 5).Draw(rt, "size")
			page, err := listing.List(t.Context(), request(t, w), s.source(kinds(t)))
			if err != nil {
				rt.Fatal(err)
			}
			for _, m := range page.Items {
				got = append(got, nameOf(m))
			}
			if len(got) > len(naive) || len(page.Items) > int(w.size) {
				rt.Fatalf("got %v, want %v", got, naive)
			}
			if page.NextPageToken == "" {
				break
			}
			if len(page.Items) == 0 {
				rt.Fatal("an empty page has a next one")
			}
			w.token = page.NextPageToken
		}
		if !slices.Equal(got, naive) {
			rt.Fatalf("order %q, filter %s: got %v, want %v", w.order, f, got, naive)
		}
	})
}

func TestTokensAreForOneRequest(t *testing.T) {
	t.Parallel()
	d := kinds(t)
	s := newShelf(t, d, 5, func(i int, m *dynamicpb.Message) {
		m.Set(d.Fields().ByName("i32"), protoreflect.ValueOfInt32(int32(i)))
	})
	first := want{parent: "p", filter: "i32 >= 0", order: "i32 desc", size: 2}
	page, err := listing.List(t.Context(), request(t, first), s.source(kinds(t)))
	if err != nil || page.NextPageToken == "" {
		t.Fatalf("%v, %v", page, err)
	}
	for _, tc := range []struct {
		name string
		edit func(*want)
		ok   bool
	}{
		{"same", func(*want) {}, true},
		{"other size", func(w *want) { w.size = 3 }, true},
		{"other parent", func(w *want) { w.parent = "q" }, false},
		{"other filter", func(w *want) { w.filter = "i32 >= 1" }, false},
		{"no filter", func(w *want) { w.filter = "" }, false},
		{"other order", func(w *want) { w.order = "i32" }, false},
		{"no token at all", func(w *want) { w.token = "42" }, false},
		{"cut", func(w *want) { w.token = w.token[:len(w.token)-3] }, false},
		{"forged value", func(w *want) {
			tok, err := listing.ParseToken(w.token)
			if err != nil {
				t.Error(err)
			}
			tok.Values = []any{"text"}
			w.token = tok.String()
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := first
			w.token = page.NextPageToken
			tc.edit(&w)
			_, err := listing.List(t.Context(), request(t, w), s.source(kinds(t)))
			if tc.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if connect.CodeOf(err) != connect.CodeInvalidArgument || violation(t, err) != "page_token" {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// TestNewerClients: a field that the service does not know is part of the digest.
func TestNewerClients(t *testing.T) {
	t.Parallel()
	s := newShelf(t, kinds(t), 3, func(int, *dynamicpb.Message) {})
	req := request(t, want{size: 1})
	req.ProtoReflect().SetUnknown(protoreflect.RawFields{0xf8, 0x01, 0x01})
	page, err := listing.List(t.Context(), req, s.source(kinds(t)))
	if err != nil || page.NextPageToken == "" || len(req.ProtoReflect().GetUnknown()) == 0 {
		t.Fatalf("%v, %v", page, err)
	}
	if _, err := listing.List(t.Context(), request(t, want{token: page.NextPageToken}), s.source(kinds(t))); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("without the field: %v", err)
	}
}

func TestPageSizes(t *testing.T) {
	t.Parallel()
	s := newShelf(t, kinds(t), 1100, func(int, *dynamicpb.Message) {})
	for _, tc := range []struct{ size, want int }{{0, 100}, {1, 1}, {1000, 1000}, {5000, 1000}} {
		page, err := listing.List(t.Context(), request(t, want{size: int32(tc.size)}), s.source(kinds(t)))
		if err != nil || len(page.Items) != tc.want {
			t.Errorf("size %d gave %d: %v", tc.size, len(page.Items), err)
		}
	}
	if _, err := listing.List(t.Context(), request(t, want{size: -1}), s.source(kinds(t))); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("size -1: %v", err)
	}
}

// TestLargeMessages: pages are no larger than a gRPC client takes by default, in either
// kind of order, and all of them together are the whole list.
func TestLargeMessages(t *testing.T) {
	t.Parallel()
	d := kinds(t)
	s := newShelf(t, d, 9, func(i int, m *dynamicpb.Message) {
		n := 1 << 20
		if i == 4 {
			n = 6 << 20 // too large for any page, so it is one by itself
		}
		m.Set(d.Fields().ByName("raw"), protoreflect.ValueOfBytes(make([]byte, n)))
		m.Set(d.Fields().ByName("i32"), protoreflect.ValueOfInt32(int32(i%2)))
	})
	for order, pages := range map[string]string{"": "2 2 1 2 2", "name": "2 2 1 2 2", "i32 desc": "2 2 2 1 2"} {
		w, sizes, seen := want{order: order}, []string{}, map[string]bool{}
		for {
			page, err := listing.List(t.Context(), request(t, w), s.source(d))
			if err != nil {
				t.Fatal(err)
			}
			bytes := 0
			for _, m := range page.Items {
				bytes += proto.Size(m)
				seen[nameOf(m)] = true
			}
			if bytes > 4<<20 && len(page.Items) > 1 {
				t.Errorf("order %q: a page of %d messages has %d bytes", order, len(page.Items), bytes)
			}
			sizes = append(sizes, fmt.Sprint(len(page.Items)))
			if w.token = page.NextPageToken; w.token == "" {
				break
			}
		}
		if got := strings.Join(sizes, " "); got != pages || len(seen) != len(s) {
			t.Errorf("order %q: pages of %s messages, %d different ones", order, got, len(seen))
		}
	}
	// What the mask leaves out does not count.
	req := request(t, want{})
	listing.SetMask(req.ProtoReflect(), "read_mask", &fieldmaskpb.FieldMask{Paths: []string{"name"}})
	page, err := listing.List(t.Context(), req, s.source(d))
	if err != nil || len(page.Items) != len(s) {
		t.Errorf("names alone: %d, %v", len(page.Items), err)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	d := kinds(t)
	s := newShelf(t, d, 10_002, func(i int, m *dynamicpb.Message) {
		m.Set(d.Fields().ByName("i32"), protoreflect.ValueOfInt32(int32(i)))
	})
	_, err := listing.List(t.Context(), request(t, want{order: "i32"}), s.source(kinds(t)))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "narrow the filter, or list without order_by") {
		t.Errorf("too many to sort: %v", err)
	}
	if page, err := listing.List(t.Context(), request(t, want{order: "i32 desc", filter: "i32 > 1", size: 1}), s.source(kinds(t))); err != nil || nameOf(page.Items[0]) != "n10001" {
		t.Errorf("10,000 to sort: %v, %v", page, err)
	}
	// One request does not look through everything for what few records match.
	w := want{filter: "i32 == 10001"}
	page, err := listing.List(t.Context(), request(t, w), s.source(kinds(t)))
	if err != nil || len(page.Items) != 0 || page.NextPageToken == "" {
		t.Fatalf("%v, %v", page, err)
	}
	w.token = page.NextPageToken
	if page, err = listing.List(t.Context(), request(t, w), s.source(kinds(t))); err != nil || len(page.Items) != 1 || page.NextPageToken != "" {
		t.Errorf("%v, %v", page, err)
	}
}

func TestGoneRecordsAreLeftOut(t *testing.T) {
	t.Parallel()
	s := newShelf(t, kinds(t), 3, func(int, *dynamicpb.Message) {})
	src := s.source(kinds(t))
	src.Message = func(_ context.Context, m *dynamicpb.Message) (*dynamicpb.Message, error) {
		if nameOf(m) == "n00001" {
			return nil, fmt.Errorf("load: %w", listing.ErrGone)
		}
		return m, nil
	}
	for _, order := range []string{"", "i32"} {
		page, err := listing.List(t.Context(), request(t, want{order: order, size: 2}), src)
		if err != nil || len(page.Items) != 2 || page.NextPageToken != "" {
			t.Errorf("order %q: %v, %v", order, page, err)
		}
	}
	broken := errors.New("broken")
	src.Message = func(context.Context, *dynamicpb.Message) (*dynamicpb.Message, error) { return nil, broken }
	if _, err := listing.List(t.Context(), request(t, want{}), src); !errors.Is(err, broken) {
		t.Errorf("error is %v", err)
	}
}

// TestUnorderedSourceIsSeen: tokens rest on the order of names.
func TestUnorderedSourceIsSeen(t *testing.T) {
	t.Parallel()
	s := newShelf(t, kinds(t), 2, func(int, *dynamicpb.Message) {})
	s[0], s[1] = s[1], s[0]
	src := s.source(kinds(t))
	src.Fetch = func(context.Context, string, int) ([]*dynamicpb.Message, error) { return s, nil }
	if _, err := listing.List(t.Context(), request(t, want{}), src); err == nil || !strings.Contains(err.Error(), `"n00000" was fetched after "n00001"`) {
		t.Errorf("error is %v", err)
	}
}

func TestOrderRefuses(t *testing.T) {
	t.Parallel()
	var many []string // a map has any number of keys
	for i := range 17 {
		many = append(many, fmt.Sprintf("labels.k%d", i))
	}
	for _, tc := range []struct{ order, want string }{
		{"nme", "has no field nme"},
		{"name up", `"name up" must be a field, or a field and desc`},
		{"name,", `"" must be a field`},
		{"texts", "texts has no single value to sort by"},
		{"items.key", "items.key has no single value"},
		{"item", "item has no single value"},
		{"name, name desc", "name is there twice"},
		{strings.Join(many, ","), "has 17 fields, at most 16 are allowed"},
	} {
		_, err := listing.ParseOrder(tc.order, kinds(t))
		if err == nil || !strings.Contains(err.Error(), tc.want) || violation(t, err) != "order_by" {
			t.Errorf("%q: %v", tc.order, err)
		}
	}
}
