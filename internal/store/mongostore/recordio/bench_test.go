package recordio_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/recordio"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

const (
	benchDocs    = 200_000
	benchPage    = 2000
	benchWorkers = 4
)

// seedBench fills a fixed-name kind with documents of about 500 bytes.
func seedBench(b *testing.B, e *storetest.Engine) (record.Token, []record.Range) {
	b.Helper()
	tok := e.Collection("src", "src", true)
	rnd := rand.New(rand.NewPCG(1, 2))
	var docs []any
	for i := range benchDocs {
		text := make([]byte, 120)
		for k := range text {
			text[k] = 'a' + byte(rnd.IntN(26))
		}
		docs = append(docs, bson.D{
			{Key: "_id", Value: fmt.Sprintf("guid-%08d", i)}, {Key: "domain", Value: "apps"}, {Key: "instances", Value: int32(i % 7)},
			{Key: "routes", Value: bson.A{bson.D{{Key: "host", Value: "a.example.com"}, {Key: "port", Value: int32(8080)}}, bson.D{{Key: "host", Value: "b.example.com"}, {Key: "port", Value: int32(8081)}}}},
			{Key: "definition", Value: bson.D{{Key: "rootfs", Value: "preloaded:cflinuxfs4"}, {Key: "memory", Value: int32(512)}, {Key: "disk", Value: int32(1024)}, {Key: "action", Value: string(text)}}},
			{Key: "annotation", Value: string(text[:60])}, {Key: "modified", Value: int64(i)},
		})
		if len(docs) == 5000 {
			e.Insert(tok, docs...)
			docs = docs[:0]
		}
	}
	ranges, err := e.NS.Split(b.Context(), tok, 4*benchWorkers)
	if err != nil {
		b.Fatal(err)
	}
	return tok, ranges
}

// BenchmarkLoad measures copying without transformation, page by page and several ranges
// at once, and next to it what the database allows: the raw array of a find spliced into an
// insert, no document read.
func BenchmarkLoad(b *testing.B) {
	e := storetest.NewEngine(b)
	src, ranges := seedBench(b, e)
	copiers := []struct {
		name  string
		fixed bool
		page  func(ctx context.Context, e *storetest.Engine, src, dst record.Token, r record.Range) (record.Range, bool, error)
	}{
		{"raw", true, copyRaw},
		{"managed", false, copyPage},
		{"fixed", true, copyPage},
	}
	for _, c := range copiers {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				name := fmt.Sprintf("%s.n%d", c.name, i)
				dst := e.Collection(c.name, name, c.fixed)
				b.StartTimer()
				copyRanges(b, ranges, func(ctx context.Context, r record.Range) (record.Range, bool, error) {
					return c.page(ctx, e, src, dst, r)
				})
				b.StopTimer()
				if n, err := e.Coll(dst).EstimatedDocumentCount(b.Context()); err != nil || n != benchDocs {
					b.Fatalf("%d documents, %v", n, err)
				}
				for _, name := range []string{dst.Name, conn.GuardsName(c.name)} {
					if err := e.NS.DB.Collection(name).Drop(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				e.NS.ForgetSide(c.name)
				b.StartTimer()
			}
			b.ReportMetric(float64(benchDocs)*float64(b.N)/b.Elapsed().Seconds(), "docs/s")
		})
	}
}

func copyPage(ctx context.Context, e *storetest.Engine, src, dst record.Token, r record.Range) (record.Range, bool, error) {
	page, err := e.NS.Scan(ctx, record.ScanRequest{Token: src, Range: r, Limit: benchPage})
	if err != nil {
		return r, false, err
	}
	batch := record.Batch{Tokens: storetest.TokensOf(dst), Epoch: 1, Groups: make([]record.GroupWrite, len(page.Records))}
	writes := make([]record.Write, len(page.Records))
	for i, rec := range page.Records {
		writes[i] = record.Write{Kind: dst.Kind, Key: rec.Key, Doc: rec.Doc}
		batch.Groups[i] = record.GroupWrite{Group: string(rec.Key), Version: page.Version, Writes: writes[i : i+1]}
	}
	res, err := e.NS.Load(ctx, batch)
	if err != nil {
		return r, false, err
	}
	if i := slices.IndexFunc(res, func(r record.Result) bool { return r.Outcome != record.Applied }); i >= 0 {
		return r, false, fmt.Errorf("group %d: %s: %w", i, res[i].Outcome, res[i].Err)
	}
	r.From = page.Next
	return r, page.Done, nil
}

// copyRaw copies a whole range with one cursor.
func copyRaw(ctx context.Context, e *storetest.Engine, src, dst record.Token, r record.Range) (record.Range, bool, error) {
	session, err := e.NS.Mongo.StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return r, false, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	from, err := wire.PlaceOf(src)
	if err != nil {
		return r, false, err
	}
	to, err := wire.PlaceOf(dst)
	if err != nil {
		return r, false, err
	}
	find := wire.AppendCommand(nil, "find", from)
	find, at := wire.BeginElement(find, bson.TypeEmbeddedDocument, "hint")
	find = wire.EndDocument(bsoncore.AppendInt32Element(find, "_id", 1), at)
	find = recordio.AppendBound(recordio.AppendBound(find, "min", r.From), "max", r.To)
	find = bsoncore.AppendInt32Element(find, "batchSize", benchPage)
	raw, err := e.NS.Run(ctx, wire.EndDocument(find, 0))
	if err != nil {
		return r, false, err
	}
	reply, err := wire.ParseReply(raw)
	for err == nil {
		if len(reply.Docs) > 5 {
			insert := wire.AppendCommand(make([]byte, 0, len(reply.Docs)+256), "insert", to)
			insert = bsoncore.AppendHeader(insert, bsoncore.TypeArray, "documents")
			insert = append(insert, reply.Docs...)
			insert = wire.AppendMajority(bsoncore.AppendBooleanElement(insert, "ordered", false))
			if _, err := e.NS.Run(ctx, wire.EndDocument(insert, 0)); err != nil {
				return r, false, err
			}
		}
		if reply.ID == 0 {
			return r, true, nil
		}
		reply, err = e.NS.GetMore(ctx, from, reply.ID, benchPage)
	}
	return r, false, err
}

// BenchmarkApply measures the guarded way: records that are there with a lower guard.
func BenchmarkApply(b *testing.B) {
	for _, fixed := range []bool{false, true} {
		b.Run(fmt.Sprintf("fixed=%t", fixed), func(b *testing.B) {
			e := storetest.NewEngine(b)
			tok := e.Collection("k", "k", fixed)
			doc := func(i int) record.Write {
				return storetest.Put(b, "k", bson.D{{Key: "_id", Value: fmt.Sprintf("%06d", i)}, {Key: "text", Value: string(make([]byte, 450))}})
			}
			const groups = 500
			n := 0
			for v := uint64(1); b.Loop(); v++ {
				g, ctx := errgroup.WithContext(b.Context())
				for w := range benchWorkers {
					batch := record.Batch{Tokens: storetest.TokensOf(tok), Epoch: v}
					for i := range groups {
						batch.Groups = append(batch.Groups, storetest.Group(1, doc(w*groups+i)))
					}
					g.Go(func() error { _, err := e.NS.Apply(ctx, batch); return err })
				}
				if err := g.Wait(); err != nil {
					b.Fatal(err)
				}
				n += benchWorkers * groups
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "docs/s")
		})
	}
}

// copyRanges copies ranges page by page, by benchWorkers at the same time.
func copyRanges(b *testing.B, ranges []record.Range, page func(context.Context, record.Range) (rest record.Range, done bool, err error)) {
	b.Helper()
	work := make(chan record.Range, len(ranges))
	for _, r := range ranges {
		work <- r
	}
	close(work)
	g, ctx := errgroup.WithContext(b.Context())
	for range benchWorkers {
		g.Go(func() error {
			for r := range work {
				for done := false; !done; {
					var err error
					if r, done, err = page(ctx, r); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}
