package syncer_test

import (
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// The target of a copy is made with the indexes that refuse records. The others are only
// tried, so that one that cannot be built is found now, and leave nothing behind.
func TestProvisionOfATarget(t *testing.T) {
	t.Parallel()
	index := func(field string, more ...bson.E) bson.Raw {
		raw, err := bson.Marshal(append(bson.D{{Key: "key", Value: bson.D{{Key: field, Value: 1}}}, {Key: "name", Value: field + "_1"}}, more...))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	ttl := index("at", bson.E{Key: "expireAfterSeconds", Value: 60})
	unique := index("mail", bson.E{Key: "unique", Value: true})
	nameless, err := bson.Marshal(bson.D{{Key: "key", Value: "no document"}})
	if err != nil {
		t.Fatal(err)
	}
	d := upgradestate.New("services/s/deployments/d", "v1", 4)
	for _, c := range []struct {
		version string
		indexes []bson.Raw
		want    string // indexes there
		expiry  int64  // noted of at_1
		fails   bool
	}{
		{version: "v1", indexes: []bson.Raw{ttl, unique}, want: "at_1 mail_1"},
		{version: "v2", indexes: []bson.Raw{ttl, unique}, want: "mail_1", expiry: 60},
		{version: "v2", indexes: []bson.Raw{unique, nameless}, fails: true},
	} {
		store := memstore.New()
		spec := record.KindSpec{Name: "k", Shape: record.Shape{Indexes: c.indexes}}
		ns, err := syncer.Provision(t.Context(), store, d, c.version, "mem", []record.KindSpec{spec}, func(string) record.FenceClass { return "" })
		if trial := slices.ContainsFunc(store.Names(), func(n string) bool { return strings.HasPrefix(n, "dbc_") }); trial {
			t.Errorf("%s: %v is left", c.version, store.Names())
		}
		if c.fails {
			if err == nil {
				t.Errorf("%s: an index that cannot be built was taken", c.version)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := store.Describe(t.Context(), spec, ns.Kinds[0].Physical)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, ix := range info.Shape.Indexes {
			names = append(names, record.IndexName(ix))
		}
		if got := strings.Join(names, " "); got != c.want || ns.Kinds[0].Expiry["at_1"] != c.expiry {
			t.Errorf("%s: indexes %q, noted %v; want %q, %d", c.version, got, ns.Kinds[0].Expiry, c.want, c.expiry)
		}
	}
}
