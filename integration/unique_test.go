package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/record"
)

// parkedKeys are what is parked, each of which must name the index.
func (s *system) parkedKeys(ctx context.Context, index string) ([]string, error) {
	ps, err := s.record.ParkedNow(ctx)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, p := range ps {
		if !strings.Contains(p.Error, index) || !strings.Contains(p.Error, record.ErrConflict.Error()) {
			return nil, fmt.Errorf("%s is parked for %q, want the index %s", p.Key, p.Error, index)
		}
		keys = append(keys, p.Key)
	}
	slices.Sort(keys)
	return keys, nil
}

func (s *system) awaitParked(ctx context.Context, index string, want int) {
	s.t.Helper()
	eventually(ctx, s.t, fmt.Sprintf("%d records are parked", want), func() error {
		keys, err := s.parkedKeys(ctx, index)
		if err == nil && len(keys) != want {
			err = fmt.Errorf("parked are %v", keys)
		}
		return err
	})
}

// TestUniqueness: what breaks a declared unique index is parked with its name, whether the
// copy or a change would apply it, blocks the switch, and is applied once it is corrected
// at the source.
func TestUniqueness(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{
		copy:  "{auto: true, workers: 2}",
		kinds: "[{from: packages, to: packages, lens: packages.yaml, indexes: {packages: [{key: {name: 1}, unique: true}, {key: {n: 1}}]}}]",
	})
	source := s.db["v1"].Collection(packagesKind)
	insert := func(id, name string) {
		t.Helper()
		if _, err := source.InsertOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "name", Value: name}, {Key: "section", Value: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(id, name string) {
		t.Helper()
		if _, err := source.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: bson.D{{Key: "name", Value: name}}}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		insert(fmt.Sprintf("p%02d", i), fmt.Sprintf("name %d", i/2*2+i%2*min(1, i/6))) // the first six agree in pairs
	}
	s.controller("first", breakPoint{}).ready(ctx)
	s.controller("second", breakPoint{}).ready(ctx)
	s.awaitParked(ctx, "name_1", 3)
	insert("late", "name 30") // by a change
	s.awaitParked(ctx, "name_1", 4)
	s.begin(ctx)
	rename("late", "name 100")
	s.awaitParked(ctx, "name_1", 3)
	d, err := s.record.Get(ctx)
	if err != nil || d.Upgrade == nil || len(d.Upgrade.ReadyShards) == ring {
		t.Errorf("parked records do not block: %+v, %v", d.Upgrade, err)
	}
	for i := range 3 {
		rename(fmt.Sprintf("p%02d", 2*i+1), fmt.Sprintf("own %d", i))
	}
	s.await(ctx, "the flip", flipped("v2"))
	s.sameNames(ctx)
	indexes, err := s.indexNames(ctx, "v2")
	if err != nil || !slices.Contains(indexes, "n_1") {
		t.Errorf("indexes %v, %v", indexes, err)
	}
}

// TestSpecialIndexes: records that a geographic or a text index does not take are parked one by
// one, those of a page and those that change, while all others come through; corrected at the
// source, they do too, and the indexes are there at the flip.
func TestSpecialIndexes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{
		copy:  "{auto: true, workers: 2}",
		kinds: "[{from: packages, to: packages, lens: packages.yaml, indexes: {packages: [{key: {loc: 2dsphere}}, {key: {name: text}}, {key: {n: 1}}]}}]",
	})
	source := s.db["v1"].Collection(packagesKind)
	set := func(id string, fields ...bson.E) {
		t.Helper()
		update := bson.D{{Key: "$set", Value: append(bson.D{{Key: "name", Value: "name " + id}, {Key: "section", Value: "x"}}, fields...)}}
		if _, err := source.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, update, options.UpdateOne().SetUpsert(true)); err != nil {
			t.Fatal(err)
		}
	}
	good, bad := bson.E{Key: "loc", Value: bson.A{5.0, 5.0}}, bson.E{Key: "loc", Value: bson.A{200.0, 95.0}}
	name := func(i int) string { return fmt.Sprintf("p%02d", i) }
	for i := range 40 {
		switch {
		case i%10 == 3:
			set(name(i), bad)
		case i == 7:
			set(name(i), good, bson.E{Key: "language", Value: "klingon"})
		default:
			set(name(i), good)
		}
	}
	s.controller("first", breakPoint{}).ready(ctx)
	s.controller("second", breakPoint{}).ready(ctx)
	parked := func(geo, text int) {
		t.Helper()
		eventually(ctx, t, fmt.Sprintf("%d and %d records are parked", geo, text), func() error {
			ps, err := s.record.ParkedNow(ctx)
			have := [2]int{}
			for _, p := range ps {
				switch {
				case strings.Contains(p.Error, "field loc (index loc_2dsphere)"):
					have[0]++
				case strings.Contains(p.Error, "language override unsupported"):
					have[1]++
				}
			}
			if err == nil && (have != [2]int{geo, text} || len(ps) != geo+text) {
				err = fmt.Errorf("parked are %v", ps)
			}
			return err
		})
	}
	parked(4, 1)
	set(name(20), bad) // by a change
	parked(5, 1)
	s.begin(ctx)
	set(name(21), bson.E{Key: "n", Value: 7}) // what comes after it is not held up
	for _, i := range []int{3, 13, 20, 23, 33} {
		set(name(i), good)
	}
	set(name(7), bson.E{Key: "language", Value: "english"})
	s.await(ctx, "the flip", flipped("v2"))
	s.sameNames(ctx)
	indexes, err := s.indexNames(ctx, "v2")
	for _, want := range []string{"loc_2dsphere", "name_text", "n_1"} {
		if err != nil || !slices.Contains(indexes, want) {
			t.Errorf("indexes %v, %v, want %s", indexes, err, want)
		}
	}
}

// indexNames lists the indexes of the application's collection where it is.
func (s *system) indexNames(ctx context.Context, version string) ([]string, error) {
	specs, err := s.db[version].Collection(packagesKind).Indexes().ListSpecifications(ctx)
	var names []string
	for _, ix := range specs {
		names = append(names, ix.Name)
	}
	return names, err
}

// sameNames compares the names of all packages in both versions.
func (s *system) sameNames(ctx context.Context) {
	s.t.Helper()
	d, err := s.record.Get(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	eventually(ctx, s.t, "the versions agree", func() error {
		names := map[string]map[string]string{}
		for _, v := range []string{"v1", "v2"} {
			ns, _ := d.Namespace(v)
			k, _ := ns.Kind(packagesKind)
			cursor, err := s.db[v].Collection(k.Physical).Find(ctx, bson.D{})
			if err != nil {
				return err
			}
			var docs []struct {
				ID   string `bson:"_id"`
				Name string `bson:"name"`
			}
			if err := cursor.All(ctx, &docs); err != nil {
				return err
			}
			names[v] = map[string]string{}
			for _, doc := range docs {
				names[v][doc.ID] = doc.Name
			}
		}
		if fmt.Sprint(names["v1"]) != fmt.Sprint(names["v2"]) {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
}

// TestUniqueValuesChangePlaces: records exchange values of a unique index that is carried
// over, under the eyes of two controllers. None stays parked. Indexes that come and go
// meanwhile are there after the switch.
func TestUniqueValuesChangePlaces(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}"})
	source := s.db["v1"].Collection(packagesKind)
	if _, err := source.Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: bson.D{{Key: "name", Value: 1}}, Options: options.Index().SetUnique(true)}, {Keys: bson.D{{Key: "section", Value: 1}}},
	}); err != nil {
		t.Fatal(err)
	}
	const documents = 40
	for i := range documents {
		if _, err := source.InsertOne(ctx, bson.D{{Key: "_id", Value: fmt.Sprintf("p%02d", i)}, {Key: "name", Value: fmt.Sprintf("name %d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	s.controller("first", breakPoint{}).ready(ctx)
	s.controller("second", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "first", "second")
	s.awaitSync(ctx)
	set := func(i int, name string) error {
		res, err := source.UpdateOne(ctx, bson.D{{Key: "_id", Value: fmt.Sprintf("p%02d", i)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "name", Value: name}}}})
		if err == nil && res.MatchedCount != 1 {
			err = errors.New("no such document")
		}
		return err
	}
	for round := range 3 {
		for i := range documents / 2 {
			j := documents - 1 - i
			a, b := fmt.Sprintf("name %d", i), fmt.Sprintf("name %d", j)
			if round%2 == 1 {
				a, b = b, a
			}
			if err := errors.Join(set(i, "between"), set(j, a), set(i, b)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Meanwhile somebody drops an index of the target, and the application makes one.
	d, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ns, _ := d.Namespace("v2")
	hidden, _ := ns.Kind(packagesKind)
	if err := s.db["v2"].Collection(hidden.Physical).Indexes().DropOne(ctx, "category_1"); err != nil {
		t.Fatal(err)
	}
	if _, err := source.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "text", Value: -1}}}); err != nil {
		t.Fatal(err)
	}
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	s.sameNames(ctx)
	if keys, err := s.parkedKeys(ctx, "name_1"); err != nil || len(keys) != 0 {
		t.Errorf("parked are %v, %v", keys, err)
	}
	indexes, err := s.indexNames(ctx, "v2")
	for _, name := range []string{"category_1", "text_-1"} {
		if err != nil || !slices.Contains(indexes, name) {
			t.Errorf("indexes %v, want %s (%v)", indexes, name, err)
		}
	}
	if _, err := s.db["v2"].Collection(packagesKind).InsertOne(ctx, bson.D{{Key: "_id", Value: "x"}, {Key: "name", Value: "name 1"}}); !mongo.IsDuplicateKeyError(err) {
		t.Errorf("the index was not carried over: %v", err)
	}
}
