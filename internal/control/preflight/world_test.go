package preflight

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/upgradestate"
)

// proofWorld is an application's collection in one database, and the version that it is
// copied to in another.
type proofWorld struct {
	t        *testing.T
	raw      map[string]*mongo.Database
	db       map[string]*mongostore.Namespace
	registry *transform.Registry
	record   upgradestate.Deployment
}

const ordersLens = `lens: 1
operations:
  - rename: {from: section, to: category}
  - add: {field: schema, value: 2}
`

func ordersSpec(t *testing.T, text string) transform.Spec {
	t.Helper()
	l, err := lens.Parse("orders.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l.Spec("orders", "orders")
}

// newProofWorld fills the application's collection, and has the upgrade to v2 begun.
func newProofWorld(t *testing.T, create bson.D, indexes []mongo.IndexModel, docs []any, specs ...transform.Spec) *proofWorld {
	t.Helper()
	return newProofWorldOn(t, mongotest.Client(t), func() (string, string) { return mongotest.Database(t) }, create, indexes, docs, specs...)
}

func newProofWorldOn(t *testing.T, client *mongo.Client, database func() (uri, name string), create bson.D, indexes []mongo.IndexModel, docs []any, specs ...transform.Spec) *proofWorld {
	t.Helper()
	w := &proofWorld{t: t, raw: map[string]*mongo.Database{}, db: map[string]*mongostore.Namespace{}, registry: transform.NewRegistry("shop")}
	ctx := t.Context()
	for _, v := range []string{"v1", "v2"} {
		uri, name := database()
		ns, err := mongostore.Open(ctx, mongostore.Config{URI: uri, Database: name})
		w.check(err)
		t.Cleanup(func() { w.check(ns.Close(context.WithoutCancel(ctx))) })
		w.db[v], w.raw[v] = ns, client.Database(name)
	}
	w.check(w.raw["v1"].RunCommand(ctx, append(bson.D{{Key: "create", Value: "orders"}}, create...)).Err())
	if len(indexes) > 0 {
		_, err := w.raw["v1"].Collection("orders").Indexes().CreateMany(ctx, indexes)
		w.check(err)
	}
	if len(docs) > 0 {
		_, err := w.raw["v1"].Collection("orders").InsertMany(ctx, docs, options.InsertMany().SetBypassDocumentValidation(true))
		w.check(err)
	}
	w.check(w.registry.Add("v1", "v2", specs...))
	store := deployment.New(memcoord.New(), "services/shop/deployments/d", deployment.Config{})
	d, err := store.Create(ctx, "v1", 4)
	w.check(err)
	up, err := w.registry.Direction("v1", "v2")
	w.check(err)
	for v, kinds := range map[string][]record.KindSpec{"v1": up.SourceKinds(), "v2": up.TargetKinds()} {
		ns, err := syncer.Provision(ctx, w.db[v], d, v, "mongo:"+v, kinds, func(string) record.FenceClass { return "" })
		w.check(err)
		d, err = store.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns})
		w.check(err)
	}
	_, err = store.Apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h"}})
	w.check(err)
	w.record, err = store.Apply(ctx, upgradestate.Begin{ID: "u1", TargetVersion: "v2"})
	w.check(err)
	return w
}

func (w *proofWorld) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// proof is a proof of the world's rollback, over namespaces that a test may wrap.
func (w *proofWorld) proof(wrap func(version string, ns Space) Space) *proof {
	w.t.Helper()
	proofs := Proofs{Registry: w.registry, Quiet: func(v string) Space {
		var ns Space = w.db[v].Quietly()
		if wrap != nil {
			ns = wrap(v, ns)
		}
		return ns
	}}
	p, err := proofs.proof(w.record, "v2", false)
	w.check(err)
	return p
}

// scratches are the scratch collections, side collections, gates and marks that are there.
func (w *proofWorld) scratches() []string {
	w.t.Helper()
	var left []string
	for v, db := range w.raw {
		names, err := db.ListCollectionNames(w.t.Context(), bson.D{{Key: "name", Value: bson.Regex{Pattern: proofPrefix + "|" + planPrefix + "|dbc_selftest"}}})
		w.check(err)
		cursor, err := db.Collection("dbc_marks").Find(w.t.Context(), bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "_id", Value: bson.Regex{Pattern: proofPrefix + "|" + planPrefix}}},
			bson.D{{Key: "name", Value: bson.Regex{Pattern: proofPrefix + "|" + planPrefix}}},
		}}})
		w.check(err)
		var marks []bson.Raw
		w.check(cursor.All(w.t.Context(), &marks))
		for _, m := range marks {
			names = append(names, "mark "+m.String())
		}
		for _, n := range names {
			left = append(left, v+"."+n)
		}
	}
	return left
}

// data is every document of the application's collection, and how often it was written.
func (w *proofWorld) data() (docs []string, writes int64) {
	w.t.Helper()
	db := w.raw["v1"]
	cursor, err := db.Collection("orders").Find(w.t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	w.check(err)
	var found []bson.Raw
	w.check(cursor.All(w.t.Context(), &found))
	for _, d := range found {
		docs = append(docs, d.String())
	}
	writes, err = db.Client().Database("local").Collection("oplog.rs").CountDocuments(w.t.Context(), bson.D{
		{Key: "ns", Value: bson.D{{Key: "$in", Value: bson.A{db.Name() + ".orders", w.raw["v2"].Name() + ".orders.n1"}}}},
	})
	w.check(err)
	return docs, writes
}

func orders(n int) []any {
	docs := make([]any, n)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: fmt.Sprintf("o-%03d", i)}, {Key: "section", Value: fmt.Sprint("s", i)}, {Key: "n", Value: int32(i)}}
	}
	return docs
}

var (
	sectionUnique   = []mongo.IndexModel{{Keys: bson.D{{Key: "section", Value: 1}}, Options: options.Index().SetUnique(true)}}
	sectionRequired = bson.D{{Key: "validator", Value: bson.D{{Key: "section", Value: bson.D{{Key: "$type", Value: "string"}}}}}}
)

// document is {_id: key, of: of}.
func document(key, of string) bson.Raw {
	b, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: "of", Value: of}})
	if err != nil {
		panic(err)
	}
	return b
}
