package listing_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/internal/base/dynproto"
)

// FuzzParseToken: any text is a token or one fixed error. A token reads the same after it was
// written again, so that no page is skipped or repeated.
func FuzzParseToken(f *testing.F) {
	f.Add(listing.Token{Name: "shelves/1/books/2", Values: []any{"a\xff", int64(-1), uint64(1), 0.5, true, []byte{0}, time.Unix(1, 5), nil}, Digest: "d"}.String())
	f.Add("")
	f.Add("eyJmIjoxfQ")                                               // {"f":1}
	f.Add("eyJmIjoxLCJ2IjpbIiJdfQ")                                   // {"f":1,"v":[""]}
	f.Add("eyJmIjoxLCJ2IjpbInQ5OTk5LTEyLTMxVDIzOjU5OjU5LTIzOjU5Il19") // a time that is in the year 10000 in UTC
	f.Fuzz(func(t *testing.T, text string) {
		token, err := listing.ParseToken(text)
		if err != nil {
			if len(err.Error()) > 100 {
				t.Errorf("the error has what the token holds: %v", err)
			}
			return
		}
		again, err := listing.ParseToken(token.String())
		if err != nil || again.String() != token.String() || again.Name != token.Name || again.Digest != token.Digest {
			t.Errorf("%q is %s, and read again %s: %v", text, token, again, err)
		}
	})
}

// FuzzParseOrder: an order_by that is accepted reads the same after it was written again.
func FuzzParseOrder(f *testing.F) {
	d := kinds(f)
	for _, seed := range []string{"name desc, i32", "labels.`a.b` asc", "at desc,child.name", " , "} {
		f.Add(seed)
	}
	m := message(f, d, `name: "x" i32: 1`)
	f.Fuzz(func(t *testing.T, text string) {
		order, err := listing.ParseOrder(text, d)
		if err != nil {
			return
		}
		again, err := listing.ParseOrder(order.String(), d)
		if err != nil || again.String() != order.String() || len(order.Values(m)) != len(order) {
			t.Errorf("%q was parsed as %s and then as %s: %v", text, order, again, err)
		}
	})
}

// FuzzMask: the paths of a mask select something of each message, or the mask is refused and
// changes nothing. What all paths select has what each of them selects.
func FuzzMask(f *testing.F) {
	d := kinds(f)
	whole, err := proto.Marshal(message(f, d, full))
	if err != nil {
		f.Fatal(err)
	}
	for _, paths := range []string{
		"name", "*", "", "items.*.key items.count", "texts.* item.tags.*", "by_number.1.key by_number.*.count by_number.2",
		"labels.`a.b` labels.*", "by_flag.true by_big.7 values.x.struct_value.fields.y", "child.child.child.name child", "item..key items.0 by_number.x `", "at.seconds extra.fields.*.list_value.values.*",
	} {
		f.Add(paths, whole, []byte{})
		f.Add(paths, []byte{}, whole)
	}
	f.Add("labels.x", []byte{}, []byte("\xc2\x02\x05\n\x010\b0")) // a map's key twice, once as a number
	f.Fuzz(func(t *testing.T, paths string, wire, other []byte) {
		m, src := dynamicpb.NewMessage(d), dynamicpb.NewMessage(d)
		if dynproto.Unmarshal(wire, m) != nil || dynproto.Unmarshal(other, src) != nil {
			return
		}
		all := mask(paths)
		got := proto.CloneOf(m)
		err := listing.ApplyMask(got, all)
		if checked := listing.CheckMask(all, d); (checked == nil) != (err == nil) {
			t.Errorf("%s: the check says %v, and its use %v", all, checked, err)
		}
		if err != nil && !proto.Equal(got, m) {
			t.Errorf("%s: refused, and %v became %v", all, m, got)
		}
		twice := proto.CloneOf(got)
		if again := listing.ApplyMask(twice, all); (again == nil) != (err == nil) || !proto.Equal(twice, got) {
			t.Errorf("%s: %v became %v: %v", all, got, twice, again)
		}
		for _, path := range all.GetPaths() {
			if err != nil {
				break
			}
			one, of := proto.CloneOf(m), proto.CloneOf(got)
			if a, b := listing.ApplyMask(one, mask(path)), listing.ApplyMask(of, mask(path)); a != nil || b != nil || !proto.Equal(one, of) {
				t.Errorf("%s selects %v alone and %v with %s: %v, %v", path, one, of, all, a, b)
			}
		}
		updated := proto.CloneOf(m)
		err = listing.Update(updated, src, all)
		twice = proto.CloneOf(updated)
		if again := listing.Update(twice, src, all); (again == nil) != (err == nil) || !proto.Equal(twice, updated) {
			t.Errorf("%s: the second update of %v by %v made %v: %v, %v", all, updated, src, twice, err, again)
		}
		if err != nil && (!proto.Equal(updated, m) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: refused, and %v became %v: %v", all, m, updated, err)
		}
	})
}
