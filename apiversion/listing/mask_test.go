package listing_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion/internal/prototest"
	"dbcontroller.dev/apiversion/listing"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
)

func mask(paths string) *fieldmaskpb.FieldMask {
	return &fieldmaskpb.FieldMask{Paths: strings.Fields(paths)}
}

const full = `name: "n" i32: 1 item { key: "k" count: 2 tags: "t" } items { key: "a" count: 1 } items { key: "b" count: 2 }
	labels { key: "x" value: "1" } labels { key: "a.b" value: "2" } by_number { key: 1 value { key: "e" count: 3 } } by_number { key: 2 value { count: 4 } } choice_text: "c"`

func TestApplyMask(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ mask, want string }{
		{"", full},
		{"*", full},
		{"name *", full},
		{"name", `name: "n"`},
		{"i64", ``},
		{"item.key item.count", `item { key: "k" count: 2 }`},
		{"item item.key", `item { key: "k" count: 2 tags: "t" }`},
		{"item.key item", `item { key: "k" count: 2 tags: "t" }`},
		{"items.key", `items { key: "a" } items { key: "b" }`},
		{"items.*.count", `items { count: 1 } items { count: 2 }`},
		{"labels.x", `labels { key: "x" value: "1" }`},
		{"labels.`a.b`", `labels { key: "a.b" value: "2" }`},
		{"labels.none", ``},
		{"by_number.*.count", `by_number { key: 1 value { count: 3 } } by_number { key: 2 value { count: 4 } }`},
		{"by_number.1.key", `by_number { key: 1 value { key: "e" } }`},
		{"by_number.1.key by_number.*.count", `by_number { key: 1 value { key: "e" count: 3 } } by_number { key: 2 value { count: 4 } }`},
		{"by_number.1 by_number.*.count", `by_number { key: 1 value { key: "e" count: 3 } } by_number { key: 2 value { count: 4 } }`},
		{"item.tags.*", `item { tags: "t" }`},
		{"choice_text choice_int", `choice_text: "c"`},
	} {
		t.Run(tc.mask, func(t *testing.T) {
			t.Parallel()
			m := message(t, kinds(t), full)
			if err := listing.ApplyMask(m, mask(tc.mask)); err != nil {
				t.Fatal(err)
			}
			if want := message(t, m.ProtoReflect().Descriptor(), tc.want); !proto.Equal(m, want) {
				t.Errorf("got %v, want %v", m, want)
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	const dst = `name: "n" i32: 1 opt_int: 5 item { key: "k" count: 2 } texts: "a" labels { key: "x" value: "1" } labels { key: "y" value: "2" } by_number { key: 1 value { key: "e" count: 3 } }`
	for _, tc := range []struct{ mask, src, want string }{
		{"", `name: "new"`, strings.Replace(dst, `"n"`, `"new"`, 1)},
		{"", `item { count: 9 }`, strings.Replace(dst, `item { key: "k" count: 2 }`, `item { count: 9 }`, 1)},
		{"*", `name: "new"`, `name: "new"`},
		{"name", `name: "new" i32: 7`, strings.Replace(dst, `"n"`, `"new"`, 1)},
		{"name opt_int", ``, `i32: 1 item { key: "k" count: 2 } texts: "a" labels { key: "x" value: "1" } labels { key: "y" value: "2" } by_number { key: 1 value { key: "e" count: 3 } }`},
		{"item.count", `item { key: "z" count: 9 }`, strings.Replace(dst, `count: 2`, `count: 9`, 1)},
		{"item.count", ``, strings.Replace(dst, ` count: 2`, ``, 1)},
		{"child.name", ``, dst},
		{"child.name", `child { name: "c" i32: 1 }`, dst + ` child { name: "c" }`},
		{"texts", `texts: "b" texts: "c"`, strings.Replace(dst, `texts: "a"`, `texts: "b" texts: "c"`, 1)},
		{"labels.x labels.y labels.z", `labels { key: "x" value: "9" } labels { key: "z" value: "3" }`, strings.Replace(dst, `labels { key: "x" value: "1" } labels { key: "y" value: "2" }`, `labels { key: "x" value: "9" } labels { key: "z" value: "3" }`, 1)},
		{"by_number.1.count", `by_number { key: 1 value { count: 8 } }`, strings.Replace(dst, `count: 3`, `count: 8`, 1)},
		{"by_number.1.count", ``, strings.Replace(dst, ` count: 3`, ``, 1)},
		{"by_number.1", ``, strings.Replace(dst, `by_number { key: 1 value { key: "e" count: 3 } }`, ``, 1)},
		{"by_number.2", `by_number { key: 2 value { key: "f" } }`, dst + ` by_number { key: 2 value { key: "f" } }`},
	} {
		t.Run(tc.mask+" "+tc.src, func(t *testing.T) {
			t.Parallel()
			d := kinds(t)
			m, src := message(t, d, dst), message(t, d, tc.src)
			if err := listing.Update(m, src, mask(tc.mask)); err != nil {
				t.Fatal(err)
			}
			if want := message(t, d, tc.want); !proto.Equal(m, want) {
				t.Errorf("got %v, want %v", m, want)
			}
		})
	}
}

func TestMasksRefuse(t *testing.T) {
	t.Parallel()
	m := message(t, kinds(t), full)
	for path, want := range map[string]string{
		"nme":          "prototest.Kinds has no field nme",
		"item.nme":     "prototest.Item has no field item.nme",
		"name.x":       "name is not a message",
		"item..key":    "has an empty part",
		"labels.`x":    "backquote that is not closed",
		"by_number.xx": "the keys of by_number are of type int32",
		// Masks are read for each message: one of megabytes would keep a server busy.
		strings.Repeat("name ", 1000): "has 1001 paths, at most 1000 are allowed",
	} {
		before := proto.Clone(m)
		for field, err := range map[string]error{
			"read_mask":   listing.ApplyMask(m, mask("name "+path)),
			"update_mask": listing.Update(m, message(t, kinds(t), `name: "z"`), mask("name "+path)),
		} {
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) || violation(t, err) != field {
				t.Errorf("%s %s: %v", field, path, err)
			}
		}
		if !proto.Equal(m, before) {
			t.Errorf("%s: a refused mask changed the message", path)
		}
	}
	if err := listing.Update(m, m, mask("items.key")); err == nil || !strings.Contains(err.Error(), "can only be replaced whole") {
		t.Errorf("items of a list: %v", err)
	}
	if err := listing.Update(new(bbsv1.Action), new(bbsv1.EnvVar), nil); err == nil {
		t.Error("messages of two types were mixed")
	}
}

// TestMaskLaws: what was put is what is got, and nothing else changed.
func TestMaskLaws(t *testing.T) {
	t.Parallel()
	d := kinds(t)
	possible := []string{"name", "opt_int", "texts", "item", "item.count", "item.notes.a", "labels", "labels.a", "labels.`a.b`", "by_number.1", "by_number.1.count", "child.item.key", "at", "choice_item.key", "extra", "boxed_text"}
	rapid.Check(t, func(t *rapid.T) {
		dst, src := dynamicpb.NewMessage(d), dynamicpb.NewMessage(d)
		prototest.Draw(t, dst)
		prototest.Draw(t, src)
		if rapid.Bool().Draw(t, "oneof") {
			dst.Clear(d.Fields().ByName("choice_text"))
			dst.Clear(d.Fields().ByName("choice_int"))
		}
		paths := &fieldmaskpb.FieldMask{Paths: rapid.SliceOfN(rapid.SampledFrom(possible), 1, 4).Draw(t, "mask")}
		same := proto.CloneOf(dst)
		if err := listing.Update(same, dst, paths); err != nil || !proto.Equal(same, dst) {
			t.Fatalf("update by itself: %v became %v, %v", dst, same, err)
		}
		twice := proto.CloneOf(dst)
		for _, err := range []error{listing.Update(dst, src, paths), listing.Update(twice, src, paths), listing.Update(twice, src, paths)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if !proto.Equal(dst, twice) {
			t.Fatalf("the second update changed %v to %v", dst, twice)
		}
		// Every value that src has at a path is now in dst.
		got, want := proto.CloneOf(dst), proto.CloneOf(src)
		for _, m := range []proto.Message{got, want} {
			if err := listing.ApplyMask(m, paths); err != nil {
				t.Fatal(err)
			}
		}
		merged := proto.CloneOf(dst)
		if err := listing.Update(merged, want, paths); err != nil || !proto.Equal(merged, dst) {
			t.Fatalf("what the mask shows of src is not all that it sets: %v and %v, %v", merged, dst, err)
		}
	})
}
