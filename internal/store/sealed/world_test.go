package sealed_test

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

const canary = "canary-4711-of-a-customer"

// world is a namespace with one kind, its State, and what encrypts it.
type world struct {
	t      *testing.T
	store  *memstore.Store
	notes  *recordtest.Notes
	keys   *sealed.Keys
	sealer *sealed.Sealer
	ns     *sealed.Namespace
	client *sealed.Client
	tok    record.Token
}

func newWorld(t *testing.T, keys *sealed.Keys, shape record.Shape) *world {
	t.Helper()
	w := &world{t: t, store: memstore.NewCluster(memstore.Options{}).Open("v1"), notes: &recordtest.Notes{}, keys: keys}
	w.sealer = sealed.New("v1", func() *sealed.Keys { return w.keys }, w.notes)
	w.ns, w.client = w.sealer.Namespace(w.store), w.sealer.Client(w.store)
	w.notes.Begin(t, w.sealer)
	var err error
	w.tok, err = w.ns.Provision(t.Context(), record.KindSpec{Name: "users", Shape: shape}, record.PhysicalName("users", 0))
	w.check(err)
	return w
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func docOf(t testing.TB, id string, more ...bson.E) bson.Raw {
	t.Helper()
	doc, err := bson.Marshal(append(bson.D{{Key: "_id", Value: id}}, more...))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func (w *world) put(id string, more ...bson.E) bson.Raw {
	w.t.Helper()
	doc := docOf(w.t, id, more...)
	w.check(w.write(record.Mutation{Kind: "users", Key: record.StringKey(id), Doc: doc}))
	return doc
}

func (w *world) write(ms ...record.Mutation) error {
	return w.client.Write(w.t.Context(), record.Tokens{"users": w.tok}, ms)
}

// stored is a record as it is in the database.
func (w *world) stored(id string) bson.Raw {
	w.t.Helper()
	r, err := w.store.Get(w.t.Context(), w.tok, record.StringKey(id))
	w.check(err)
	return r.Doc
}

func (w *world) get(id string) (bson.Raw, error) {
	r, err := w.client.Get(w.t.Context(), w.tok, record.StringKey(id))
	return r.Doc, err
}

// turn has everybody write under a key, after whatever run there was, and the database keep out
// who does not.
func (w *world) turn(run, key string) {
	w.t.Helper()
	st, err := w.sealer.State(w.t.Context())
	w.check(err)
	w.check(w.ns.Hold(w.t.Context(), []record.Token{w.tok}, key))
	w.check(w.sealer.Turn(w.t.Context(), st.Run, run, key, nil))
	w.check(w.ns.Hold(w.t.Context(), []record.Token{w.tok}))
}

func (w *world) adopt(s *sealed.Sealer) {
	w.t.Helper()
	if adopted, err := s.Adopt(w.t.Context()); err != nil || !adopted {
		w.t.Fatalf("plain records are vouched for: %t, %v", adopted, err)
	}
}

// bring puts all records under the key of the run, as a controller does with package backfill.
func (w *world) bring() {
	w.t.Helper()
	st, err := w.sealer.State(w.t.Context())
	w.check(err)
	w.check(record.ScanPages(w.t.Context(), w.store, w.tok, 0, func(p record.Page) error {
		for _, r := range p.Records {
			doc, err := w.sealer.Again(w.t.Context(), st.Run, w.tok, r)
			if err != nil {
				return err
			}
			if doc == nil {
				continue
			}
			rs, err := w.store.Swap(w.t.Context(), w.tok, []record.Swap{{Key: r.Key, Was: r.Doc, Doc: doc}})
			if err != nil || rs[0].Outcome != record.Applied {
				return fmt.Errorf("swap of %s: %v, %w", r.Key, rs, err)
			}
		}
		return nil
	}))
}
