package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// fatal is what tests and their properties fail with.
type fatal interface {
	Helper()
	Fatal(args ...any)
}

// namespace is a version's, whose tokens never change.
type namespace struct {
	client record.Client
	tokens record.Tokens

	mu     sync.Mutex
	before func([]record.Mutation) error // runs before each write; an error refuses it
	writes [][]record.Mutation
	asked  []string // by commands
}

func (n *namespace) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, what)
}

var _ adapt.PagingStore = (*namespace)(nil)

// single is a Store that reads one record at a time.
type single struct{ adapt.Store }

// batched is a Store that cannot tell what has changed.
type batched struct{ adapt.BatchStore }

type database interface {
	record.Provisioner
	record.Client
}

func namespaceOn(t fatal, db database, kinds ...record.KindSpec) *namespace {
	t.Helper()
	n := &namespace{client: db, tokens: record.Tokens{}}
	for _, k := range kinds {
		tok, err := db.Provision(context.Background(), k, record.PhysicalName(k.Name, 1))
		if err != nil {
			t.Fatal(err)
		}
		n.tokens[k.Name] = tok
	}
	return n
}

func (n *namespace) Get(ctx context.Context, kind, key string) (record.Record, error) {
	n.note("get")
	return n.client.Get(ctx, n.tokens[kind], record.StringKey(key))
}

func (n *namespace) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	n.note("list")
	return n.client.List(ctx, record.ListRequest{Token: n.tokens[kind], Prefix: prefix, After: after, Limit: limit})
}

func (n *namespace) Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error) {
	n.note("select")
	return n.client.Select(ctx, record.SelectRequest{Tokens: n.tokens, Select: sels, AsList: asList})
}

func (n *namespace) ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error) {
	n.note("names")
	return n.client.ListNames(ctx, record.ListRequest{Token: n.tokens[kind], Prefix: prefix, After: after, Limit: limit})
}

func (n *namespace) ListWith(ctx context.Context, kind, prefix, after string, limit int, _ []string, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	n.note("together")
	return n.client.(record.Pager).ListWith(ctx, n.tokens, record.ListRequest{Token: n.tokens[kind], Prefix: prefix, After: after, Limit: limit}, also)
}

func (n *namespace) SelectAt(ctx context.Context, sels []record.Selector) (record.Snapshot, error) {
	n.note("select")
	return n.client.(record.Pager).SelectAt(ctx, record.SelectRequest{Tokens: n.tokens, Select: sels})
}

func (n *namespace) Since(ctx context.Context, after record.Position, kinds ...string) ([]record.Change, record.Position, error) {
	n.note("since")
	specs := make([]record.KindSpec, len(kinds))
	for i, k := range kinds {
		specs[i].Name = k
	}
	batch, err := n.client.(record.Pager).Since(ctx, specs, after)
	return batch.Changes, batch.Pos, err
}

func (n *namespace) Write(ctx context.Context, ms []record.Mutation) error {
	n.mu.Lock()
	n.writes = append(n.writes, ms)
	before := n.before
	n.mu.Unlock()
	if before != nil {
		if err := before(ms); err != nil {
			return err
		}
	}
	return n.client.Write(ctx, n.tokens, ms)
}

// onWrite makes f run before each write.
func (n *namespace) onWrite(f func([]record.Mutation) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before = f
}

// mongo is a database of a real MongoDB.
func mongo(t testing.TB) database {
	t.Helper()
	uri, name := mongotest.Database(t)
	ns, err := mongostore.Open(t.Context(), mongostore.Config{URI: uri, Database: name, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close(context.Background()) })
	return mongodb{ns, ns.Client(), name}
}

type mongodb struct {
	*mongostore.Namespace
	*mongostore.Client
	name string
}

// face is a pair of versions of which one is stored and the other is shown.
type face struct {
	adapter    *adapt.Adapter
	stored     *namespace
	show, keep transform.Direction
}

func newFace(t fatal, db database, reg *transform.Registry, stored, shown string, cfg adapt.Config) face {
	t.Helper()
	show, err := reg.Direction(stored, shown)
	if err != nil {
		t.Fatal(err)
	}
	keep, err := reg.Direction(shown, stored)
	if err != nil {
		t.Fatal(err)
	}
	f := face{stored: namespaceOn(t, db, show.SourceKinds()...), show: show, keep: keep}
	if f.adapter, err = adapt.New(f.stored, show, keep, cfg); err != nil {
		t.Fatal(err)
	}
	return f
}

// split has a whole in v1 that is a head with parts, one of them active, in v2:
//
//	v1  wholes  <name>       {n, body}
//	v2  heads   <name>       {n, active}
//	    parts   <name>/<id>  {body}
func split(t fatal) *transform.Registry {
	t.Helper()
	partKey := func(k record.Key) (head, id string, err error) {
		name, _ := k.Name()
		head, id, ok := strings.Cut(name, "/")
		if !ok || strings.Contains(id, "/") {
			return "", "", fmt.Errorf("%q is not <head>/<id>", name)
		}
		return head, id, nil
	}
	reg := transform.NewRegistry("split")
	err := reg.Add("v1", "v2", transform.Spec{
		Name: "wholes", Revision: "1", UpNeedsHave: true,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "wholes"}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: "heads"}},
			{
				KindSpec: record.KindSpec{Name: "parts"},
				GroupOf: func(k record.Key) (string, error) {
					head, _, err := partKey(k)
					return string(record.StringKey(head)), err
				},
				Select: func(group string) record.Selector {
					name, _ := record.Key(group).Name()
					return record.Selector{Key: record.StringKey(name + "/"), Prefix: true}
				},
			},
		}},
		Up: func(src, have transform.Group) (out []record.Record, err error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			name, _ := src.Records[0].Key.Name()
			active := "main"
			for _, r := range have.Records {
				if r.Kind == "heads" {
					active = r.Doc.Lookup("active").StringValue()
				}
			}
			for _, r := range have.Records {
				if name, _ := r.Key.Name(); r.Kind == "parts" && !strings.HasSuffix(name, "/"+active) {
					out = append(out, r)
				}
			}
			var head bson.D
			if err := bson.Unmarshal(src.Records[0].Doc, &head); err != nil {
				return nil, err
			}
			i := slices.IndexFunc(head, func(e bson.E) bool { return e.Key == "body" })
			if i < 0 {
				return nil, errors.New("no body")
			}
			part := bson.D{{Key: "_id", Value: name + "/" + active}, head[i]}
			head = append(slices.Delete(head, i, i+1), bson.E{Key: "active", Value: active})
			return append(out, made("heads", head), made("parts", part)), nil
		},
		Down: func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			var whole bson.D
			if src.Records[0].Kind != "heads" {
				return nil, errors.New("parts without a head")
			}
			if err := bson.Unmarshal(src.Records[0].Doc, &whole); err != nil {
				return nil, err
			}
			i := slices.IndexFunc(whole, func(e bson.E) bool { return e.Key == "active" })
			if i < 0 {
				return nil, errors.New("no active part")
			}
			for _, r := range src.Records[1:] {
				if _, id, _ := partKey(r.Key); id == whole[i].Value {
					body := bson.E{Key: "body", Value: r.Doc.Lookup("body")}
					return []record.Record{made("wholes", append(slices.Delete(whole, i, i+1), body))}, nil
				}
			}
			return nil, errors.New("the active part is not there")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// made is a record of a document.
func made(kind string, d bson.D) record.Record {
	doc, err := bson.Marshal(d)
	if err != nil {
		panic(err)
	}
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		panic(err)
	}
	return record.Record{Kind: kind, Key: key, Doc: doc}
}

// wholesOverV2 shows v1 of split over v2 data.
func wholesOverV2(t fatal) face {
	return newFace(t, memstore.New(), split(t), "v2", "v1", adapt.Config{Leads: map[string]string{"wholes": "heads"}})
}

// swapped has names "a/b" in v1 that are "b/a" in v2, so that their orders differ, and a
// field that only v2 has.
func swapped(t fatal) *transform.Registry {
	t.Helper()
	swap := func(name string) (string, error) {
		a, b, ok := strings.Cut(name, "/")
		if !ok {
			return "", errors.New("the name is not a/b")
		}
		return b + "/" + a, nil
	}
	one := func(kind string, edit func(d bson.D, have bson.Raw) bson.D) transform.Func {
		return func(src, have transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			name, _ := src.Records[0].Key.Name()
			name, err := swap(name)
			if err != nil {
				return nil, err
			}
			var d bson.D
			if err := bson.Unmarshal(src.Records[0].Doc, &d); err != nil {
				return nil, err
			}
			d[0].Value = name
			var held bson.Raw
			if len(have.Records) > 0 {
				held = have.Records[0].Doc
			}
			doc, err := bson.Marshal(edit(d, held))
			return []record.Record{{Kind: kind, Key: record.StringKey(name), Doc: doc}}, err
		}
	}
	reg := transform.NewRegistry("swap")
	err := reg.Add("v1", "v2", transform.Spec{
		Name: "things", Revision: "1", UpNeedsHave: true,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "things"}}}},
		New: transform.Side{
			Kinds: []transform.GroupedKind{{
				KindSpec: record.KindSpec{Name: "items"},
				GroupOf: func(k record.Key) (string, error) {
					name, _ := k.Name()
					name, err := swap(name)
					return string(record.StringKey(name)), err
				},
				Select: func(group string) record.Selector {
					name, _ := record.Key(group).Name()
					name, _ = swap(name)
					return record.Selector{Key: record.StringKey(name)}
				},
			}},
			Anchor: func(group string) (string, record.Key) {
				name, _ := record.Key(group).Name()
				name, _ = swap(name)
				return "items", record.StringKey(name)
			},
		},
		Up: one("items", func(d bson.D, have bson.Raw) bson.D {
			kept := bson.D{}
			for _, e := range d {
				if e.Key != "dropped" { // v2 has no such field
					kept = append(kept, e)
				}
			}
			if extra, err := have.LookupErr("extra"); err == nil {
				kept = append(kept, bson.E{Key: "extra", Value: extra})
			}
			return kept
		}),
		Down: one("things", func(d bson.D, _ bson.Raw) bson.D {
			kept := bson.D{}
			for _, e := range d {
				if e.Key != "extra" {
					kept = append(kept, e)
				}
			}
			return kept
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

func raw(t fatal, d bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t fatal, s adapt.Store, kind string, d bson.D) {
	t.Helper()
	doc := raw(t, d)
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(context.Background(), []record.Mutation{{Kind: kind, Key: key, Doc: doc}}); err != nil {
		t.Fatal(err)
	}
}

func names(recs []record.Record) string {
	var out []string
	for _, r := range recs {
		out = append(out, r.Key.String())
	}
	return strings.Join(out, " ")
}

// whole is a v1 record of split.
func whole(name string, n int, body string) bson.D {
	return bson.D{{Key: "_id", Value: name}, {Key: "n", Value: int32(n)}, {Key: "body", Value: bson.D{{Key: "text", Value: body}}}}
}
