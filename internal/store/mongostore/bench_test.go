package mongostore

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

	"dbcontroller.dev/record"
)

const (
	benchDocs    = 200_000
	benchPage    = 2000
	benchWorkers = 4
)

// seedBench fills a fixed-name kind with documents of about 500 bytes.
func seedBench(b *testing.B, e *engine) (record.Token, []record.Range) {
	b.Helper()
	tok := e.collection("src", "src", true)
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
			e.insert(tok, docs...)
			docs = docs[:0]
		}
	}
	ranges, err := e.ns.Split(b.Context(), tok, 4*benchWorkers)
	if err != nil {
		b.Fatal(err)
	}
	return tok, ranges
}

// BenchmarkLoad measures copying without transformation, page by page and several ranges
// at once, and next to it what the database allows: the raw array of a find spliced into an
// insert, no document read.
func BenchmarkLoad(b *testing.B) {
	e := newEngine(b)
	src, ranges := seedBench(b, e)
	copiers := []struct {
		name  string
		fixed bool
		page  func(ctx context.Context, e *engine, src, dst record.Token, r record.Range) (record.Range, bool, error)
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
				dst := e.collection(c.name, name, c.fixed)
				b.StartTimer()
				copyRanges(b, ranges, func(ctx context.Context, r record.Range) (record.Range, bool, error) {
					return c.page(ctx, e, src, dst, r)
				})
				b.StopTimer()
				if n, err := e.coll(dst).EstimatedDocumentCount(b.Context()); err != nil || n != benchDocs {
					b.Fatalf("%d documents, %v", n, err)
				}
				for _, name := range []string{dst.Name, GuardsName(c.name)} {
					if err := e.ns.db.Collection(name).Drop(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				e.ns.forgetSide(c.name)
				b.StartTimer()
			}
			b.ReportMetric(float64(benchDocs)*float64(b.N)/b.Elapsed().Seconds(), "docs/s")
		})
	}
}

func copyPage(ctx context.Context, e *engine, src, dst record.Token, r record.Range) (record.Range, bool, error) {
	page, err := e.ns.Scan(ctx, record.ScanRequest{Token: src, Range: r, Limit: benchPage})
	if err != nil {
		return r, false, err
	}
	batch := record.Batch{Tokens: tokensOf(dst), Epoch: 1, Groups: make([]record.GroupWrite, len(page.Records))}
	writes := make([]record.Write, len(page.Records))
	for i, rec := range page.Records {
		writes[i] = record.Write{Kind: dst.Kind, Key: rec.Key, Doc: rec.Doc}
		batch.Groups[i] = record.GroupWrite{Group: string(rec.Key), Version: page.Version, Writes: writes[i : i+1]}
	}
	res, err := e.ns.Load(ctx, batch)
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
func copyRaw(ctx context.Context, e *engine, src, dst record.Token, r record.Range) (record.Range, bool, error) {
	session, err := e.ns.client.StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return r, false, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	from, err := placeOf(src)
	if err != nil {
		return r, false, err
	}
	to, err := placeOf(dst)
	if err != nil {
		return r, false, err
	}
	find := appendCommand(nil, "find", from)
	find, at := beginElement(find, bson.TypeEmbeddedDocument, "hint")
	find = endDocument(bsoncore.AppendInt32Element(find, "_id", 1), at)
	find = appendBound(appendBound(find, "min", r.From), "max", r.To)
	find = bsoncore.AppendInt32Element(find, "batchSize", benchPage)
	raw, err := e.ns.run(ctx, endDocument(find, 0))
	if err != nil {
		return r, false, err
	}
	reply, err := parseReply(raw)
	for err == nil {
		if len(reply.docs) > 5 {
			insert := appendCommand(make([]byte, 0, len(reply.docs)+256), "insert", to)
			insert = bsoncore.AppendHeader(insert, bsoncore.TypeArray, "documents")
			insert = append(insert, reply.docs...)
			insert = appendMajority(bsoncore.AppendBooleanElement(insert, "ordered", false))
			if _, err := e.ns.run(ctx, endDocument(insert, 0)); err != nil {
				return r, false, err
			}
		}
		if reply.id == 0 {
			return r, true, nil
		}
		reply, err = e.ns.getMore(ctx, from, reply.id, benchPage)
	}
	return r, false, err
}

// BenchmarkApply measures the guarded way: records that are there with a lower guard.
func BenchmarkApply(b *testing.B) {
	for _, fixed := range []bool{false, true} {
		b.Run(fmt.Sprintf("fixed=%t", fixed), func(b *testing.B) {
			e := newEngine(b)
			tok := e.collection("k", "k", fixed)
			doc := func(i int) record.Write {
				return put(b, "k", bson.D{{Key: "_id", Value: fmt.Sprintf("%06d", i)}, {Key: "text", Value: string(make([]byte, 450))}})
			}
			const groups = 500
			n := 0
			for v := uint64(1); b.Loop(); v++ {
				g, ctx := errgroup.WithContext(b.Context())
				for w := range benchWorkers {
					batch := record.Batch{Tokens: tokensOf(tok), Epoch: v}
					for i := range groups {
						batch.Groups = append(batch.Groups, group(1, doc(w*groups+i)))
					}
					g.Go(func() error { _, err := e.ns.Apply(ctx, batch); return err })
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
