package client_test

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/client"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestSentAhead: what comes with a list is read together with it once that is known, as far as it
// was expected, and the rest after it; and no longer while that is in vain.
func TestSentAhead(t *testing.T) {
	t.Parallel()
	uri, name := mongotest.Database(t)
	ns := storetest.OpenSuite(t, uri, name)
	c := ns.Client()
	toks := record.Tokens{}
	for _, kind := range []string{"heads", "parts"} {
		tok, err := ns.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
		if err != nil {
			t.Fatal(err)
		}
		toks[kind] = tok
	}
	put := func(kind, name string) {
		t.Helper()
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: name}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Write(t.Context(), toks, []record.Mutation{{Kind: kind, Key: record.StringKey(name), Doc: doc}}); err != nil {
			t.Fatal(err)
		}
	}
	const heads = 30
	for i := range heads {
		name := fmt.Sprintf("h%02d", i)
		put("heads", name)
		for n := range 1 + 4*(i/20) { // more for each of the last ones than is expected
			put("parts", fmt.Sprintf("%s/%d", name, n))
		}
	}
	list := func(after string, limit, want int) {
		t.Helper()
		listed, with, err := c.ListWith(t.Context(), toks, record.ListRequest{Token: toks["heads"], After: after, Limit: limit}, func(recs []record.Record) (sels []record.Selector, err error) {
			for _, r := range recs {
				name, _ := r.Key.Name()
				sels = append(sels, record.Selector{Kind: "parts", Key: record.StringKey(name + "/"), Prefix: true})
			}
			return sels, nil
		})
		seen := map[record.Key]bool{}
		for _, r := range with {
			seen[r.Key] = true
		}
		if err != nil || len(listed) != limit || len(with) != want || len(seen) != want {
			t.Fatalf("after %q: %d records with %d, %d of them different, %v; want %d with %d", after, len(listed), len(with), len(seen), err, limit, want)
		}
	}
	habit := func() client.Learned { return c.LearnedOf("heads") }
	list("", 10, 10)
	if h := habit(); h.Kind != "parts" || h.Each != 1 {
		t.Fatalf("learned %+v", h)
	}
	quiet := false
	for range 100 { // whatever else the server writes now and then
		list("h04", 10, 10)
		if h := habit(); h.Vain == 0 && h.Skips == 0 {
			quiet = true
		}
	}
	if !quiet {
		t.Error("nothing that was sent ahead was used")
	}
	list("", heads, 20+5*(heads-20))
	c.Failed(record.ListRequest{Token: toks["heads"]})
	if h := habit(); h.Skips == 0 {
		t.Errorf("after a failure: %+v", h)
	}
	list("h19", 10, 50)
	if _, _, err := c.ListWith(t.Context(), toks, record.ListRequest{Token: toks["heads"]}, func([]record.Record) ([]record.Selector, error) { return nil, nil }); err != nil || habit().Kind != "" {
		t.Errorf("what brings nothing: %+v, %v", habit(), err)
	}
}
