package listing_test

import (
	"testing"
	"time"

	"dbcontroller.dev/apiversion/listing"
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
