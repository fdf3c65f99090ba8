package etcdstore_test

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/memetcd"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/record"
)

// family is a group of a head and parts, which are selected by the beginning of their names.
const parts = 2

// families fills two kinds with groups and returns what reads all of them.
func families(tb testing.TB, s *etcdstore.Store, n int) record.ReadRequest {
	tb.Helper()
	toks := record.Tokens{}
	for _, kind := range []string{"heads", "parts"} {
		tok, err := s.Provision(tb.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
		if err != nil {
			tb.Fatal(err)
		}
		toks[kind] = tok
	}
	b := record.Batch{Tokens: toks, Epoch: 1}
	req := record.ReadRequest{Tokens: toks}
	write := func(kind, name string) record.Write {
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "text", Value: fmt.Sprintf("%0500d", 0)}})
		if err != nil {
			tb.Fatal(err)
		}
		return record.Write{Kind: kind, Key: record.StringKey(name), Doc: doc}
	}
	for i := range n {
		head := fmt.Sprintf("g%05d", i)
		g := record.GroupWrite{Group: head, Version: record.Version{7: 1}, Writes: []record.Write{write("heads", head)}}
		for p := range parts {
			g.Writes = append(g.Writes, write("parts", fmt.Sprintf("%s/%d", head, p)))
		}
		b.Groups = append(b.Groups, g)
		req.Select = append(req.Select, record.Selector{Kind: "heads", Key: record.StringKey(head)},
			record.Selector{Kind: "parts", Key: record.StringKey(head + "/"), Prefix: true})
	}
	if _, err := s.Apply(tb.Context(), b); err != nil {
		tb.Fatal(err)
	}
	return req
}

// TestGroupsAreReadTogether: reading groups takes as many requests as their records fill, and not
// one, and a wait for it, for each of them.
func TestGroupsAreReadTogether(t *testing.T) {
	s, client := inMemory(t, memetcd.New(memetcd.Options{}))
	const n = 500
	req := families(t, s, n)
	requests := 0
	client.KV = hooked{client.KV, func() { requests++ }}
	snap, err := s.Read(t.Context(), req)
	if err != nil || len(snap.Records) != n*(1+parts) {
		t.Fatalf("%d records, %v; want %d", len(snap.Records), err, n*(1+parts))
	}
	if most := n / 20; requests > most {
		t.Errorf("%d groups took %d requests, more than %d", n, requests, most)
	}
}

// TestPagesAreReadAtOnce: what a collection's records take is known from its first page on, so
// that further ones do not begin with a few records.
func TestPagesAreReadAtOnce(t *testing.T) {
	s, client := inMemory(t, memetcd.New(memetcd.Options{}))
	tok := families(t, s, 1000).Tokens["parts"]
	requests, rest := 0, record.Range{}
	client.KV = hooked{client.KV, func() { requests++ }}
	for i, want := range []int{4, 1, 1, 1} { // 16, 64, 256 and as many as are wanted still; all that are
		page, err := s.Scan(t.Context(), record.ScanRequest{Token: tok, Range: rest, Limit: 500})
		if err != nil || len(page.Records) != 500 || requests != want {
			t.Errorf("page %d: %d records of 500 by %d requests, %v; want %d", i, len(page.Records), requests, err, want)
		}
		requests, rest.From = 0, page.Next
	}
}

// BenchmarkReadGroups reads groups of some records from an etcd, and as many single ones.
func BenchmarkReadGroups(b *testing.B) {
	endpoint := startEtcd(b)
	s := at(b, connect(b, endpoint), "/groups/")
	const n = 500
	groups := families(b, s, n)
	singles := record.ReadRequest{Tokens: groups.Tokens}
	for i := range n {
		for p := range parts {
			singles.Select = append(singles.Select, record.Selector{Kind: "parts", Key: record.StringKey(fmt.Sprintf("g%05d/%d", i, p))})
		}
		singles.Select = append(singles.Select, groups.Select[2*i])
	}
	var took [2]float64 // for each record
	for i, req := range []record.ReadRequest{singles, groups} {
		b.Run([]string{"singles", "groups"}[i], func(b *testing.B) {
			for b.Loop() {
				snap, err := s.Read(b.Context(), req)
				if err != nil || len(snap.Records) != n*(1+parts) {
					b.Fatalf("%d records, %v", len(snap.Records), err)
				}
			}
			took[i] = b.Elapsed().Seconds() / float64(b.N) / float64(n*(1+parts))
			b.ReportMetric(1/took[i], "records/s")
			if i == 1 && took[0] > 0 {
				b.ReportMetric(took[0]/took[1], "of-singles")
			}
		})
	}
}
