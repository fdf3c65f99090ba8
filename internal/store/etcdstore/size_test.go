package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/integration/memetcd"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/record"
)

// counting counts the transactions that etcd finds too large.
type counting struct {
	clientv3.KV
	refused *int
}

type countedTxn struct {
	clientv3.Txn
	refused *int
}

func (c counting) Txn(ctx context.Context) clientv3.Txn { return countedTxn{c.KV.Txn(ctx), c.refused} }

func (c countedTxn) If(cs ...clientv3.Cmp) clientv3.Txn  { c.Txn = c.Txn.If(cs...); return c }
func (c countedTxn) Then(os ...clientv3.Op) clientv3.Txn { c.Txn = c.Txn.Then(os...); return c }
func (c countedTxn) Else(os ...clientv3.Op) clientv3.Txn { c.Txn = c.Txn.Else(os...); return c }

func (c countedTxn) Commit() (*clientv3.TxnResponse, error) {
	resp, err := c.Txn.Commit()
	if etcdconn.TooLarge(err) {
		*c.refused++
	}
	return resp, err
}

// TestRequestsAreWhatTheyAreCountedAs: an etcd that takes not a byte more than the store counts
// refuses nothing, whatever the sizes of keys and documents are.
func TestRequestsAreWhatTheyAreCountedAs(t *testing.T) {
	raced.Leave(t)
	ctx, most := t.Context(), 96<<10
	for _, operations := range []int{128, 4000} {
		server := memetcd.New(memetcd.Options{Operations: operations, Bytes: most})
		client, tooLarge := server.Client(ctx), 0
		client.KV = counting{client.KV, &tooLarge}
		s, err := etcdstore.New(&etcdconn.Conn{Client: client}, etcdstore.Config{
			Prefix: "/" + strings.Repeat("p", 62) + "/", Operations: operations, Bytes: most,
			Fixed: map[string]etcdstore.Keys{"app": {Prefix: "/app/", Format: etcdstore.JSON}},
		})
		if err != nil {
			t.Fatal(err)
		}
		seed := uint64(time.Now().UnixNano())
		rng := rand.New(rand.NewPCG(seed, 1))
		defer func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}()
		managed := provisioned(t, s, strings.Repeat("k", 100))
		app, err := s.Provision(ctx, record.KindSpec{Name: "app", Fixed: true}, "app")
		if err != nil {
			t.Fatal(err)
		}
		toks := record.Tokens{managed.Kind: managed, app.Kind: app}
		outcomes := map[record.Outcome]int{}
		key := func(i int) (record.Key, string) {
			text := fmt.Sprintf("%06d", i) + strings.Repeat("x", rng.IntN(1+[]int{0, 300, 900, 9000}[rng.IntN(31)/10]))
			return record.StringKey(text), text
		}
		for round := range 5 {
			b := record.Batch{Epoch: 1, Tokens: toks}
			for i := range 600 {
				kind := []string{managed.Kind, app.Kind}[i%2]
				g := record.GroupWrite{Group: fmt.Sprint(round, i), Version: record.Version{byte(round + 1)}}
				for j := range 1 + rng.IntN(3) {
					k, text := key(1000*round + 10*i + j)
					w := record.Write{Kind: kind, Key: k}
					if rng.IntN(3) > 0 {
						large := []int{0, 300, 3000}[rng.IntN(3)]
						if rng.IntN(200) == 0 {
							large = 100_000
						}
						w.Doc = raw(t, bson.D{{Key: "_id", Value: text}, {Key: "n", Value: strings.Repeat("\u0001", rng.IntN(large+1))}})
					}
					g.Writes = append(g.Writes, w)
				}
				b.Groups = append(b.Groups, g)
			}
			write := s.Apply
			if round%3 == 0 {
				write = s.Load
			}
			results, err := write(ctx, b)
			if err != nil {
				t.Fatalf("%d operations, round %d: %v", operations, round, err)
			}
			for _, r := range results {
				outcomes[r.Outcome]++
			}
		}
		for _, tok := range toks {
			if err := s.Purge(ctx, tok); err != nil {
				t.Errorf("%d operations: %v", operations, err)
			}
		}
		if tooLarge > 0 {
			t.Errorf("%d operations: %d transactions were too large", operations, tooLarge)
		}
		if outcomes[record.Applied] < 1000 || outcomes[record.Refused] == 0 {
			t.Errorf("the outcomes are %v", outcomes)
		}
	}
}

// TestEtcdTakesLessThanSaid: where etcd was started with less than the configuration says, what
// fits is written, in as many transactions as it takes, and what does not is refused by itself.
func TestEtcdTakesLessThanSaid(t *testing.T) {
	conn := connect(t, localetcd.Start(t, localetcd.Options{Bytes: 64 << 10}))
	s := at(t, conn, "/records/")
	tok := provisioned(t, s, "k")
	b := record.Batch{Epoch: 1, Tokens: record.Tokens{"k": tok}}
	sizes := map[int]int{3: 70 << 10, 17: 2 << 20, 30: 40 << 10, 31: 40 << 10}
	for i := range 200 {
		doc := raw(t, bson.D{{Key: "_id", Value: name(i)}, {Key: "n", Value: strings.Repeat("x", sizes[i])}})
		b.Groups = append(b.Groups, record.GroupWrite{Group: name(i), Version: record.Version{1},
			Writes: []record.Write{{Kind: "k", Key: record.StringKey(name(i)), Doc: doc}}})
	}
	check := func(what string, results []record.Result, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for i, r := range results {
			want := record.Applied
			if i == 3 || i == 17 {
				want = record.Refused
			}
			if r.Outcome != want || want == record.Refused && !strings.Contains(r.Err.Error(), "--max-request-bytes") {
				t.Errorf("%s of %d: %v, %v", what, i, r.Outcome, r.Err)
			}
		}
	}
	results, err := s.Load(t.Context(), b)
	check("load", results, err)
	for i := range b.Groups {
		b.Groups[i].Version = record.Version{2}
	}
	results, err = s.Apply(t.Context(), b)
	check("apply", results, err)
	resp, err := conn.Get(t.Context(), "/records/d/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || resp.Count != 198 {
		t.Errorf("there are %d records, %v", resp.Count, err)
	}
	err = s.Write(t.Context(), b.Tokens, []record.Mutation{{Kind: "k", Key: record.StringKey("large"), Absent: true, Doc: raw(t, bson.D{{Key: "_id", Value: "large"}, {Key: "n", Value: strings.Repeat("x", 70<<10)}})}})
	if err == nil || !strings.Contains(err.Error(), "--max-request-bytes") || errors.Is(err, record.ErrUnknown) {
		t.Errorf("a client's write: %v", err)
	}
}

// TestSurveyIsWhatFits: a group that is as large as the survey says is written.
func TestSurveyIsWhatFits(t *testing.T) {
	conn := connect(t, localetcd.Start(t, localetcd.Options{}))
	s, err := etcdstore.New(conn, etcdstore.Config{Prefix: "/records/"})
	if err != nil {
		t.Fatal(err)
	}
	survey, err := s.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tok := provisioned(t, s, "k")
	for i, n := range []int{1, survey.MaxGroup - 1} {
		g := record.GroupWrite{Group: name(i), Version: record.Version{1}}
		for j := range n {
			id := strings.Repeat(name(n*i+j), 20)
			key := record.StringKey(id)
			room := survey.MaxBytes/n - survey.PerRecord - 2*len(key)
			doc := raw(t, bson.D{{Key: "_id", Value: id}, {Key: "n", Value: ""}})
			doc = raw(t, bson.D{{Key: "_id", Value: id}, {Key: "n", Value: strings.Repeat("x", room-len(doc))}})
			g.Writes = append(g.Writes, record.Write{Kind: "k", Key: key, Doc: doc})
		}
		results, err := s.Apply(t.Context(), record.Batch{Epoch: 1, Tokens: record.Tokens{"k": tok}, Groups: []record.GroupWrite{g}})
		if err != nil || results[0].Outcome != record.Applied {
			t.Errorf("a group of %d: %v, %v", n, results, err)
		}
	}
}

// TestTooMuchForOneWrite: what a client writes at once and etcd does not take is refused for good,
// with what to do, and nothing of it is written: whether the store counts it or etcd itself does.
func TestTooMuchForOneWrite(t *testing.T) {
	ctx := t.Context()
	for name, tc := range map[string]struct{ takes, configured int }{"as counted here": {128, 128}, "as etcd says": {128, 4000}} {
		server := memetcd.New(memetcd.Options{Operations: tc.takes, Bytes: 96 << 10})
		s, err := etcdstore.New(&etcdconn.Conn{Client: server.Client(ctx)}, etcdstore.Config{Prefix: "/p/", Operations: tc.configured, Bytes: 96 << 10})
		if err != nil {
			t.Fatal(err)
		}
		tok := provisioned(t, s, "k")
		var ms []record.Mutation
		var rs []record.Record
		for i := range 200 {
			key := fmt.Sprint(i)
			ms = append(ms, record.Mutation{Kind: "k", Key: record.StringKey(key), Doc: raw(t, bson.D{{Key: "_id", Value: key}}), Absent: i%2 == 0})
			rs = append(rs, record.Record{Kind: "k", Key: record.StringKey(key), Doc: ms[i].Doc})
		}
		toks := record.Tokens{"k": tok}
		_, once := s.CreateOnce(ctx, toks, "first", rs)
		for what, err := range map[string]error{"write": s.Write(ctx, toks, ms), "first records": once} {
			if !errors.Is(err, record.ErrOversize) || !errors.Is(err, record.ErrRefused) || errors.Is(err, record.ErrUnknown) || !strings.Contains(fmt.Sprint(err), "--max-txn-ops") {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if rs, err := s.List(ctx, record.ListRequest{Token: tok}); err != nil || len(rs) != 0 {
			t.Errorf("%s: %d records, %v", name, len(rs), err)
		}
	}
}

// TestWhatIsLoadedCanBeChanged: a group of an application's records that Load takes, Apply takes,
// too, which writes a guard next to each. Else the copy would go well, and the first change of the
// group be parked.
func TestWhatIsLoadedCanBeChanged(t *testing.T) {
	ctx := t.Context()
	s, err := etcdstore.New(&etcdconn.Conn{Client: memetcd.New(memetcd.Options{}).Client(ctx)}, etcdstore.Config{
		Prefix: "/p/", Fixed: map[string]etcdstore.Keys{"app": {Prefix: "/app/", Format: etcdstore.JSON}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := s.Provision(ctx, record.KindSpec{Name: "app", Fixed: true}, "app")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]record.Outcome{62: record.Applied, 63: record.Applied, 64: record.Refused, 100: record.Refused} {
		g := record.GroupWrite{Group: fmt.Sprint(n), Version: record.Version{1}}
		for i := range n {
			key := fmt.Sprintf("%d-%d", n, i)
			g.Writes = append(g.Writes, record.Write{Kind: "app", Key: record.StringKey(key), Doc: raw(t, bson.D{{Key: "_id", Value: key}, {Key: "n", Value: int32(1)}})})
		}
		b := record.Batch{Epoch: 1, Tokens: record.Tokens{"app": tok}, Groups: []record.GroupWrite{g}}
		for what, write := range map[string]func(context.Context, record.Batch) ([]record.Result, error){"load": s.Load, "apply": s.Apply} {
			results, err := write(ctx, b)
			if err != nil || what == "apply" && results[0].Outcome != want || what == "load" && (results[0].Outcome == record.Refused) != (want == record.Refused) {
				t.Errorf("%s of %d: %v, %v, want %s", what, n, results, err, want)
			}
		}
	}
}

// TestMostOnce: no more records can be made once than it says, and as many can.
func TestMostOnce(t *testing.T) {
	ctx := t.Context()
	s, err := etcdstore.New(&etcdconn.Conn{Client: memetcd.New(memetcd.Options{}).Client(ctx)}, etcdstore.Config{Prefix: "/p/"})
	if err != nil {
		t.Fatal(err)
	}
	toks := record.Tokens{}
	for _, kind := range []string{"k", "l", "m"} {
		toks[kind] = provisioned(t, s, kind)
	}
	for _, over := range []int{1, 0} {
		var rs []record.Record
		for i := range etcdstore.MostOnce(0, len(toks)) + over {
			rs = append(rs, record.Record{Kind: "k", Key: record.StringKey(fmt.Sprint(i)), Doc: raw(t, bson.D{{Key: "_id", Value: fmt.Sprint(i)}})})
		}
		if made, err := s.CreateOnce(ctx, toks, "first", rs); made != (over == 0) || errors.Is(err, record.ErrOversize) != (over == 1) {
			t.Errorf("%d over: %v, %v", over, made, err)
		}
	}
}
