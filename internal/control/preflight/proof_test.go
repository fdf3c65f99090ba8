package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// TestProof: real records go there and back, nothing of it stays, and the data are not
// touched.
func TestProof(t *testing.T) {
	t.Parallel()
	ttl := mongo.IndexModel{Keys: bson.D{{Key: "at", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(1)}
	w := newProofWorld(t, sectionRequired, append(slices.Clone(sectionUnique), ttl), orders(600), ordersSpec(t, ordersLens))
	docs, writes := w.data()
	found, err := w.proof(nil).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found.records != tripGroups || found.kinds != 1 || found.skipped != 0 {
		t.Errorf("proved %+v", found)
	}
	if found.fence <= 0 || found.sealTarget <= 0 || found.last <= 0 || found.write <= 0 {
		t.Errorf("measured %+v", found)
	}
	if left := w.scratches(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if docsNow, writesNow := w.data(); !slices.Equal(docs, docsNow) || writes != writesNow {
		t.Errorf("the data were touched: %d entries of the oplog, %d before", writesNow, writes)
	}
}

// TestProofOfInnerIDs: list items become records under their own _id, which is not their first field.
// The database moves it there, and that is no difference. Some of these values, and of those of the
// records, are symbols.
func TestProofOfInnerIDs(t *testing.T) {
	t.Parallel()
	docs := make([]any, 20)
	for i := range docs {
		id := []any{i, bson.Symbol(fmt.Sprint(i))}[i%2]
		docs[i] = bson.D{{Key: "_id", Value: id}, {Key: "lines", Value: bson.A{
			bson.D{{Key: "n", Value: 1}, {Key: "_id", Value: fmt.Sprint(i, " last")}},
			bson.D{{Key: "_id", Value: bson.Symbol(fmt.Sprint(i, " first"))}, {Key: "n", Value: 2}},
		}}}
	}
	w := newProofWorld(t, nil, nil, docs, ordersSpec(t, `lens: 1
operations:
  - fanOut: {field: lines, as: list, kind: lines, key: "{id}", id: _id, parent: order, order: at}
`))
	if found, err := w.proof(nil).run(t.Context()); err != nil || found.records != len(docs) || found.skipped != 0 {
		t.Errorf("proved %+v: %v", found, err)
	}
}

// TestProofWithoutRecords still opens the stream and does the renames.
func TestProofWithoutRecords(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t, nil, nil, nil, ordersSpec(t, ordersLens))
	found, err := w.proof(nil).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found.records != 0 || !strings.Contains(found.String(), "no records") {
		t.Errorf("proved %+v: %s", found, found)
	}
}

// TestProofFails says what does not come back, and leaves nothing behind.
func TestProofFails(t *testing.T) {
	t.Parallel()
	down := func(f transform.Func) transform.Spec {
		s := ordersSpec(t, ordersLens)
		s.Revision, s.Down = "broken", f
		return s
	}
	lossy := ordersSpec(t, "lens: 1\noperations:\n  - remove: {field: section}\n")
	invalid := orders(3)
	invalid[1] = bson.D{{Key: "_id", Value: "o-001"}, {Key: "n", Value: int32(7)}}
	for _, tc := range []struct {
		name    string
		create  bson.D
		indexes []mongo.IndexModel
		docs    []any
		spec    transform.Spec
		want    []string
	}{
		{"unique index", nil, sectionUnique, orders(30), lossy, []string{"could not be migrated back", "section_1", "correct the transformer"}},
		{"validator", sectionRequired, nil, orders(30), lossy, []string{"could not be migrated back", "validat"}},
		{"a record that its own validator refuses", sectionRequired, nil, invalid, ordersSpec(t, ordersLens), []string{"could not be migrated back", "o-001"}},
		{"down fails", nil, nil, orders(3), down(func(transform.Group, transform.Group) ([]record.Record, error) {
			return nil, errors.New("no idea")
		}), []string{"could not be migrated back", "no idea", "o-000"}},
		{"down panics", nil, nil, orders(3), down(func(transform.Group, transform.Group) ([]record.Record, error) {
			panic("no idea")
		}), []string{"could not be migrated back", "no idea"}},
		{"down loses", nil, nil, orders(3), down(func(src, _ transform.Group) ([]record.Record, error) {
			return []record.Record{{Kind: "orders", Key: src.Records[0].Key, Doc: lookupID(src.Records[0].Doc)}}, nil
		}), []string{"differ after they are migrated there and back", "orders o-000 has changed"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newProofWorld(t, tc.create, tc.indexes, tc.docs, tc.spec)
			docs, writes := w.data()
			_, err := w.proof(nil).run(t.Context())
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
			if left := w.scratches(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if docsNow, writesNow := w.data(); !slices.Equal(docs, docsNow) || writes != writesNow {
				t.Error("the data were touched")
			}
		})
	}
}

// lookupID is a document with the _id of another one alone.
func lookupID(doc bson.Raw) bson.Raw {
	b, _ := bson.Marshal(bson.D{{Key: "_id", Value: doc.Lookup("_id")}})
	return b
}

// TestProofKeepsTheComplement: what v2 does not know is lost for what is created there, and
// no reason not to switch as long as nothing refuses it.
func TestProofKeepsTheComplement(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t, nil, nil, orders(30), ordersSpec(t, "lens: 1\noperations:\n  - remove: {field: section}\n"))
	if _, err := w.proof(nil).run(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestProofSkipsWhatIsParked: what cannot be migrated stays where it is, and needs no
// rollback.
func TestProofSkipsWhatIsParked(t *testing.T) {
	t.Parallel()
	spec := ordersSpec(t, ordersLens)
	up := spec.Up
	spec.Up = func(src, have transform.Group) ([]record.Record, error) {
		if strings.Contains(src.Records[0].Key.String(), "o-001") {
			return nil, errors.New("too odd")
		}
		return up(src, have)
	}
	w := newProofWorld(t, nil, nil, orders(3), spec)
	found, err := w.proof(nil).run(t.Context())
	if err != nil || found.records != 2 || found.skipped != 1 {
		t.Errorf("proved %+v: %v", found, err)
	}
}

// refusing is a namespace whose user lacks privileges.
type refusing struct {
	Space
	fence, watch, apply error
}

func (r refusing) Fence(ctx context.Context, f record.Fence) error {
	if r.fence != nil {
		return r.fence
	}
	return r.Space.Fence(ctx, f)
}

func (r refusing) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	if r.watch != nil {
		return nil, r.watch
	}
	return r.Space.Watch(ctx, from, kinds)
}

func (r refusing) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	if r.apply != nil {
		return nil, r.apply
	}
	return r.Space.Apply(ctx, b)
}

// TestProofNeedsPrivileges of both databases, those of the rollback.
func TestProofNeedsPrivileges(t *testing.T) {
	t.Parallel()
	denied := errors.New("not authorized")
	for name, tc := range map[string]struct {
		version string
		lacks   refusing
	}{
		"writes to the old database":   {"v1", refusing{apply: denied}},
		"renames in the old database":  {"v1", refusing{fence: denied}},
		"renames in the new database":  {"v2", refusing{fence: denied}},
		"change stream of the new one": {"v2", refusing{watch: denied}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newProofWorld(t, nil, nil, orders(3), ordersSpec(t, ordersLens))
			_, err := w.proof(func(v string, ns Space) Space {
				if v != tc.version {
					return ns
				}
				lacks := tc.lacks
				lacks.Space = ns
				return lacks
			}).run(t.Context())
			if !errors.Is(err, denied) {
				t.Errorf("error %v", err)
			}
			if left := w.scratches(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// dying is a namespace whose process dies at a place: nothing that is sent after it has
// any effect.
type dying struct {
	Space
	dead *bool
}

var errDead = errors.New("this process is dead")

func (d dying) Fence(ctx context.Context, f record.Fence) error {
	if *d.dead {
		return errDead
	}
	err := d.Space.Fence(ctx, f)
	*d.dead = true
	return err
}

func (d dying) Sweep(ctx context.Context, prefix string) error {
	if *d.dead {
		return errDead
	}
	return d.Space.Sweep(ctx, prefix)
}

// TestProofAfterAKill removes what the one that was killed has left, and nothing else.
func TestProofAfterAKill(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t, nil, nil, orders(3), ordersSpec(t, ordersLens))
	w.check(w.raw["v1"].CreateCollection(t.Context(), "dbc_proofreading"))
	dead := false
	if _, err := w.proof(func(_ string, ns Space) Space { return dying{ns, &dead} }).run(t.Context()); !errors.Is(err, errDead) {
		t.Fatalf("error %v", err)
	}
	if left := w.scratches(); len(left) < 3 {
		t.Fatalf("a killed proof left %v", left)
	}
	if _, err := w.proof(nil).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := w.scratches(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	names, err := w.raw["v1"].ListCollectionNames(t.Context(), bson.D{{Key: "name", Value: "dbc_proofreading"}})
	if err != nil || len(names) != 1 {
		t.Errorf("a foreign collection is gone: %v, %v", names, err)
	}
}

// TestProofDoesNotHang when the changes say nothing.
func TestProofDoesNotHang(t *testing.T) {
	t.Parallel()
	up := emptyDirection(t)
	p := &proof{newPrefix: newPrefix(proofPrefix), up: up, down: up, newer: silentSpace{}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.seen(ctx, record.Position{}, nil); err == nil || !strings.Contains(err.Error(), "did not deliver the test changes") {
		t.Errorf("error %v", err)
	}
}

// unread is a database of whose kinds no change may be read: a copy may be under way there.
type unread struct {
	Space
	t *testing.T
}

func (u unread) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	s, err := u.Space.Watch(ctx, from, kinds)
	if slices.ContainsFunc(kinds, func(k record.KindSpec) bool { return !strings.HasPrefix(k.Name, proofPrefix) }) {
		return unreadStream{s, u.t}, err
	}
	return s, err
}

type unreadStream struct {
	record.Stream
	t *testing.T
}

func (s unreadStream) Next(ctx context.Context) (record.ChangeBatch, error) {
	s.t.Error("the proof reads the changes of kinds")
	return s.Stream.Next(ctx)
}

// TestProofReadsWhatIsItsOwn of the changes: those of the kinds it opens, and no more.
func TestProofReadsWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t, nil, nil, orders(3), ordersSpec(t, ordersLens))
	if _, err := w.proof(func(_ string, ns Space) Space { return unread{ns, t} }).run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func emptyDirection(t *testing.T) transform.Direction {
	t.Helper()
	r := transform.NewRegistry("shop")
	if err := r.Add("v1", "v2", ordersSpec(t, ordersLens)); err != nil {
		t.Fatal(err)
	}
	d, err := r.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// silentSpace is a database whose changes are silent.
type silentSpace struct{ Space }

func (silentSpace) Watch(context.Context, record.Position, []record.KindSpec) (record.Stream, error) {
	return silent{}, nil
}

// silent is a stream on which nothing happens.
type silent struct{ record.Stream }

func (silent) Close(context.Context) error { return nil }

func (silent) Next(ctx context.Context) (record.ChangeBatch, error) {
	<-ctx.Done()
	return record.ChangeBatch{}, ctx.Err()
}
