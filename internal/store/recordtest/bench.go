package recordtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// bench is the namespace of one topic, with the helpers of the tests.
type bench struct {
	Backend
	made int
}

// setup creates a namespace. It checks the first one of a suite, since all are on the same server.
// Like a controller, it retries while the database is unavailable.
func setup(t *testing.T, f Factory, checked *sync.Once) *bench {
	t.Helper()
	b := &bench{Backend: f(t)}
	checked.Do(func() {
		check := func() error {
			err := b.Namespace.Check(t.Context())
			// Retry only while the server is unavailable. Other refusals are final.
			if !errors.Is(err, record.ErrUnavailable) {
				return backoff.Permanent(err)
			}
			return err
		}
		if err := backoff.Retry(check, backoff.WithMaxRetries(backoff.NewExponentialBackOff(), 8)); err != nil {
			t.Fatalf("check: %v", err)
		}
	})
	return b
}

// kind is a kind under test, with its current token.
type kind struct {
	b    *bench
	spec record.KindSpec
	tok  record.Token
	seq  uint64
}

// managed creates a new managed kind.
func (b *bench) managed(t *testing.T, shape ...record.Shape) *kind {
	t.Helper()
	return b.provision(t, record.KindSpec{}, true, shape)
}

// fixed creates a new fixed-name kind under its own name.
func (b *bench) fixed(t *testing.T, shape ...record.Shape) *kind {
	t.Helper()
	if b.App == nil {
		t.Fatal("suite: a test of fixed-name kinds without an App")
	}
	return b.provision(t, record.KindSpec{Fixed: true}, false, shape)
}

// hidden creates a new fixed-name kind under a hidden name, like a target.
func (b *bench) hidden(t *testing.T, shape ...record.Shape) *kind {
	t.Helper()
	return b.provision(t, record.KindSpec{Fixed: true}, true, shape)
}

func (b *bench) provision(t *testing.T, spec record.KindSpec, epochName bool, shape []record.Shape) *kind {
	t.Helper()
	b.made++
	spec.Name = fmt.Sprintf("kind%d", b.made)
	if len(shape) > 0 {
		spec.Shape = shape[0]
	}
	// A managed kind and a hidden target have an epoch name.
	name := spec.Name
	if epochName {
		name = record.PhysicalName(spec.Name, 0)
	}
	k := &kind{b: b, spec: spec}
	tok, err := b.Namespace.Provision(t.Context(), k.spec, name)
	if err != nil {
		t.Fatalf("provision %s: %v", name, err)
	}
	k.tok = tok
	return k
}

// flavours runs a test for a managed kind and, if the backend has them, for a fixed-name kind.
func flavours(run func(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind)) func(*testing.T, *bench) {
	return func(t *testing.T, b *bench) {
		t.Run("managed", func(t *testing.T) { run(t, b, b.managed) })
		if b.App == nil {
			t.Log("left out: the backend has no fixed-name kinds")
			return
		}
		t.Run("fixed", func(t *testing.T) { run(t, b, b.fixed) })
	}
}

// withClient skips a test if the backend has no client.
func withClient(run func(*testing.T, *bench)) func(*testing.T, *bench) {
	return func(t *testing.T, b *bench) {
		if b.Client == nil {
			t.Log("left out: the backend has no client")
			return
		}
		run(t, b)
	}
}

// withApp skips a test if the backend has no fixed-name kinds.
func withApp(run func(*testing.T, *bench)) func(*testing.T, *bench) {
	return func(t *testing.T, b *bench) {
		if b.App == nil {
			t.Log("left out: the backend has no fixed-name kinds")
			return
		}
		run(t, b)
	}
}

func tokens(ks ...*kind) record.Tokens {
	toks := record.Tokens{}
	for _, k := range ks {
		toks[k.spec.Name] = k.tok
	}
	return toks
}

// doc returns a small document with the state n.
func doc(name string, n int) bson.Raw {
	return raw(bson.D{{Key: "_id", Value: name}, {Key: "n", Value: int32(n)}, {Key: "text", Value: fmt.Sprintf("state %d", n)}})
}

func raw(d bson.D) bson.Raw {
	b, err := bson.Marshal(d)
	if err != nil {
		panic(err) // cannot fail: the suite's own literals
	}
	return b
}

// filled returns a document with a name, a number and a filler of the given size. It allocates the
// buffer once. Encoders copy their buffer at each doubling, which dominates tests of large
// documents.
func filled(name string, n int64, size int) bson.Raw {
	at, doc := bsoncore.AppendDocumentStart(make([]byte, 0, size+len(name)+64))
	doc = bsoncore.AppendStringElement(doc, "_id", name)
	doc = bsoncore.AppendInt64Element(doc, "n", n)
	doc = bsoncore.AppendBinaryElement(doc, "filler", bson.TypeBinaryGeneric, make([]byte, size))
	doc, err := bsoncore.AppendDocumentEnd(doc, at)
	if err != nil {
		panic(err) // cannot fail: the suite's own names
	}
	return doc
}

func valueOf(v any) bson.RawValue {
	t, b, err := bson.MarshalValue(v)
	if err != nil {
		panic(err) // cannot fail: the suite's own literals
	}
	return bson.RawValue{Type: t, Value: b}
}

func number(t *testing.T, d bson.Raw) int {
	t.Helper()
	n, ok := d.Lookup("n").AsInt64OK()
	if !ok {
		t.Fatalf("document without n: %s", d)
	}
	return int(n)
}

func version(n int) record.Version {
	var v record.Version
	binary.BigEndian.PutUint64(v[:], uint64(n))
	return v
}

func guard(epoch uint64, n int) record.Guard {
	return record.Guard{Epoch: epoch, Version: version(n)}
}

// set returns a write of the document with state n. A negative n writes a tombstone.
func (k *kind) set(name string, n int) record.Write {
	w := record.Write{Kind: k.spec.Name, Key: record.StringKey(name)}
	if n >= 0 {
		w.Doc = doc(name, n)
	}
	return w
}

func group(v int, ws ...record.Write) record.GroupWrite {
	return record.GroupWrite{Group: ws[0].Key.String(), Version: version(v), Writes: ws}
}

// apply sends groups in one batch and returns the results.
func (b *bench) apply(t *testing.T, toks record.Tokens, epoch uint64, gs ...record.GroupWrite) []record.Result {
	t.Helper()
	res, err := b.Namespace.Apply(t.Context(), record.Batch{Tokens: toks, Epoch: epoch, Groups: gs})
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	checkResults(t, res, len(gs))
	return res
}

func (b *bench) load(t *testing.T, toks record.Tokens, epoch uint64, gs ...record.GroupWrite) []record.Result {
	t.Helper()
	res, err := b.Namespace.Load(t.Context(), record.Batch{Tokens: toks, Epoch: epoch, Groups: gs})
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	checkResults(t, res, len(gs))
	return res
}

func checkResults(t *testing.T, res []record.Result, want int) {
	t.Helper()
	if len(res) != want {
		t.Fatalf("%d results for %d groups", len(res), want)
	}
	for i, r := range res {
		if (r.Err != nil) != (r.Outcome == record.Refused) {
			t.Errorf("group %d: outcome %s with error %v", i, r.Outcome, r.Err)
		}
	}
}

func wantOutcomes(t *testing.T, res []record.Result, want ...record.Outcome) {
	t.Helper()
	if len(res) != len(want) {
		t.Errorf("%d results, want %d", len(res), len(want))
		return
	}
	for i, r := range res {
		if r.Outcome != want[i] {
			t.Errorf("group %d: %s (%v), want %s", i, r.Outcome, r.Err, want[i])
		}
	}
}

// put applies documents with string names, at version 1 of epoch 1.
func (k *kind) put(t *testing.T, names ...string) {
	t.Helper()
	for chunk := range slices.Chunk(names, 100) {
		var gs []record.GroupWrite
		for i, name := range chunk {
			gs = append(gs, group(1, k.set(name, i)))
		}
		for _, r := range k.b.apply(t, tokens(k), 1, gs...) {
			if r.Outcome != record.Applied {
				t.Fatalf("put: %s (%v)", r.Outcome, r.Err)
			}
		}
	}
}

// now returns a position after all acknowledged writes.
func (b *bench) now(t *testing.T) record.Position {
	t.Helper()
	pos, err := b.Namespace.Position(t.Context())
	if err != nil {
		t.Fatalf("position: %v", err)
	}
	return pos
}

// all scans a whole kind, including guards and tombstones.
func (k *kind) all(t *testing.T) map[record.Key]record.Record {
	t.Helper()
	recs := map[record.Key]record.Record{}
	for _, r := range k.scan(t, record.ScanRequest{Limit: 1000, Guards: true}) {
		recs[r.Key] = r
	}
	return recs
}

// scan reads all pages of the request's range.
func (k *kind) scan(t *testing.T, req record.ScanRequest) []record.Record {
	t.Helper()
	req.Token = k.tok
	if req.NotBefore.IsZero() {
		req.NotBefore = k.b.now(t).At
	}
	var recs []record.Record
	for pages := 0; ; pages++ {
		page, err := k.b.Namespace.Scan(t.Context(), req)
		if err != nil {
			t.Fatalf("scan: %v", err)
		}
		if page.Version.Compare(req.NotBefore) < 0 {
			t.Errorf("page of %s, not before %s", page.Version, req.NotBefore)
		}
		if req.Limit > 0 && len(page.Records) > req.Limit {
			t.Fatalf("a page of %d records, limit %d", len(page.Records), req.Limit)
		}
		recs = append(recs, page.Records...)
		if page.Done {
			return recs
		}
		// A scan that stands still would never end.
		if pages > 10_000 || bytes.Equal(page.Next, req.Range.From) {
			t.Fatalf("scan does not advance beyond %x", page.Next)
		}
		req.Range.From = page.Next
	}
}

// wantState compares the documents and guards of a whole kind, byte for byte. A wanted record
// without a document is a tombstone.
func (k *kind) wantState(t *testing.T, want map[string]record.Record) {
	t.Helper()
	have := k.all(t)
	for name, w := range want {
		h, ok := have[record.StringKey(name)]
		switch {
		case !ok:
			t.Errorf("%s is absent", name)
		case !bytes.Equal(h.Doc, w.Doc):
			t.Errorf("%s holds %s, want %s", name, h.Doc, w.Doc)
		case h.Guard != w.Guard:
			t.Errorf("%s has guard %v, want %v", name, h.Guard, w.Guard)
		case h.Tombstone != (w.Doc == nil):
			t.Errorf("%s: tombstone is %t", name, h.Tombstone)
		}
		// Records that remain at the end were not expected.
		delete(have, record.StringKey(name))
	}
	for key, h := range have {
		t.Errorf("%s should be absent, holds %s", key, h.Doc)
	}
}

// at returns a record for wantState. A negative n means a tombstone.
func at(name string, n int, g record.Guard) record.Record {
	if n < 0 {
		return record.Record{Guard: g}
	}
	return record.Record{Doc: doc(name, n), Guard: g}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// bounded returns the test's context with a time limit.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// prepare calls Prepare up to three times. A backend tries for about a minute and may not finish on
// a server that other tests keep busy. That does not mean that it lacks the class.
func (b *bench) prepare(t *testing.T, tok record.Token, class record.FenceClass) (have record.FenceClass, restore string, err error) {
	t.Helper()
	for range 3 {
		have, restore, err = b.Namespace.Prepare(t.Context(), tok, class)
		var unsupported *record.UnsupportedError
		if err == nil || errors.As(err, &unsupported) {
			break
		}
		t.Logf("prepare: %v", err)
	}
	return have, restore, err
}

// together returns a group for goroutines of a test, with a time limit. It ends them before the
// test ends. Otherwise their late errors would hide the real reason of a failure.
func together(t *testing.T) (*errgroup.Group, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	g, ctx := errgroup.WithContext(ctx)
	t.Cleanup(func() {
		cancel()
		_ = g.Wait()
	})
	return g, ctx
}
