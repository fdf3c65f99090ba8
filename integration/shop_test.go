package integration_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/page"
	"dbcontroller.dev/integration/workload"
)

// shopFiles are the lenses and the configuration that docs/mongoose.md shows, by file. The shop of
// clients/node/mongoose/shop.js, which that page shows too, and clients/python/scenario/shop.py has a
// unique index, subdocuments with an _id, references that are followed, timestamps, and for Mongoose
// __v.
func shopFiles(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/mongoose.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, b := range page.Blocks(string(text)) {
		if name, ok := b.File(); ok {
			files[name] = b.Text
		}
	}
	return files
}

// shopSettings are those of the page, with the files where a system of the tests has them. kinds are
// the last part of its configuration.
func shopSettings(t *testing.T) (set settings, orders string) {
	t.Helper()
	files := shopFiles(t)
	_, kinds, ok := strings.Cut(files["shop.yaml"], "\nkinds:\n")
	customers, orders := files["lenses/customers.yaml"], files["lenses/orders.yaml"]
	for shown, at := range map[string]string{"lenses/customers.yaml": "packages.yaml", "lenses/orders.yaml": "orders.yaml"} {
		if !ok || files[shown] == "" || strings.Count(kinds, shown) != 1 {
			t.Fatalf("mongoose.md does not show kinds of %s in shop.yaml, or not that lens", shown)
		}
		kinds = strings.Replace(kinds, shown, at, 1)
	}
	return settings{service: "shop", lens: customers, kinds: "\n" + kinds}, orders
}

// shopThereAndBack takes an application through a switch and back with its traffic going on. One
// process sleeps through each switch with a write in its hand, which the fence refuses and which is
// made again where the data is; one begins while the new version is served, and makes its indexes there.
func shopThereAndBack(t *testing.T, versioned bool, start func(part applicationPart) *exec.Cmd) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	set, orders := shopSettings(t)
	s := newSystem(ctx, t, set)
	s.write("orders.yaml", orders)
	a := applications{s: s, ledger: newLedger("record"), start: start}
	before := a.process("before")
	before.ends(ctx)
	controller := s.controller("controller", breakPoint{}).ready(ctx)
	api, _ := controller.addresses()
	one, asleep := a.process("one", api), a.process("asleep", api)
	cooperate := []*applicationProcess{one, asleep}
	for _, p := range cooperate {
		p.goesOn(ctx, "v1")
	}
	for _, to := range []string{"v2", "v1"} {
		asleep.fallsAsleep(ctx, map[string]string{"v2": orderUpdate, "v1": orderTransaction}[to])
		s.beginTo(ctx, to)
		d := s.await(ctx, "the flip to "+to, flipped(to))
		t.Logf("flip to %s: phases %v", to, d.LastSwitch.Millis)
		one.goesOn(ctx, to)
		asleep.wakes(ctx)
		if to == "v2" {
			cooperate = append(cooperate, a.process("latecomer", api))
		}
		for _, p := range cooperate {
			p.goesOn(ctx, to)
		}
	}
	for _, p := range cooperate {
		p.end(ctx)
	}
	s.report(a.ledger.failures())
	seen, err := a.lookAtShop(ctx, "v1", versioned)
	if err != nil {
		t.Fatal(err)
	}
	s.report(a.ledger.check("MongoDB", seen))
	if specs, err := s.db["v1"].Collection("customers").Indexes().ListSpecifications(ctx); err != nil || len(specs) != 2 ||
		specs[1].Name != "mail_1" || specs[1].Unique == nil || !*specs[1].Unique {
		t.Errorf("indexes of customers of v1: %v, %v", specs, err)
	}
	reads, retries := 0, asleep.count(&asleep.retries)
	for _, p := range cooperate {
		reads += p.count(&p.reads)
	}
	if reads == 0 || retries < 2 {
		t.Errorf("%d reads, %d writes were made again: too few", reads, retries)
	}
	t.Logf("%d records, %d reads, %d writes made again", len(seen), reads, retries)
}

// ends waits until a process has ended by itself, and for all that it told.
func (p *applicationProcess) ends(ctx context.Context) {
	p.t.Helper()
	select {
	case <-ctx.Done():
		p.t.Fatalf("%s does not end\n%s", p.name, p.output())
	case <-p.heard:
	}
	if err := p.err(); err != nil {
		p.t.Fatalf("%s ends with %v\n%s", p.name, err, p.output())
	}
	p.child.mu.Lock()
	defer p.child.mu.Unlock()
	p.ended = true // and nobody is to wonder
}

// lookAtShop sees all documents of a version, with what is not as the application wrote it.
func (a applications) lookAtShop(ctx context.Context, version string, versioned bool) (workload.Seen, error) {
	seen := workload.Seen{}
	for _, kind := range []string{"customers", "orders"} {
		cursor, err := a.s.db[version].Collection(kind).Find(ctx, bson.D{}, options.Find())
		if err != nil {
			return nil, err
		}
		var docs []bson.M
		if err := cursor.All(ctx, &docs); err != nil {
			return nil, err
		}
		for _, doc := range docs {
			id, _ := doc["_id"].(bson.ObjectID)
			n, _ := doc["n"].(int32)
			state := applicationState(n)
			if odd := oddInShop(kind, doc, id, n, versioned); odd != "" {
				state += fmt.Sprintf(", but %s: %v", odd, doc)
			}
			seen.Add(kind+"/"+id.Hex(), state)
		}
	}
	return seen, nil
}

// oddInShop tells what of a document of v1 is not as the application writes it.
func oddInShop(kind string, doc bson.M, id bson.ObjectID, n int32, versioned bool) string {
	for _, stamp := range []string{"createdAt", "updatedAt"} {
		if _, ok := doc[stamp].(bson.DateTime); !ok {
			return "without " + stamp
		}
		delete(doc, stamp)
	}
	if _, ok := doc["__v"].(int32); ok != versioned {
		return "__v"
	}
	delete(doc, "__v")
	want := bson.M{
		"_id": id, "name": "customer " + id.Hex(), "mail": id.Hex() + "@example.com", "n": n,
		"address": bson.M{"street": fmt.Sprintf("street %d", n), "city": fmt.Sprintf("city %d", n)},
	}
	if kind == "orders" {
		lines, _ := doc["lines"].(bson.A)
		if len(lines) != 2 {
			return "lines"
		}
		ids := make([]bson.ObjectID, 2)
		for i, line := range lines {
			l, _ := line.(bson.D)
			for _, e := range l {
				if e.Key == "_id" {
					ids[i], _ = e.Value.(bson.ObjectID)
				}
			}
		}
		if ids[1].IsZero() {
			return "a line without _id"
		}
		want = bson.M{"_id": id, "customer": doc["customer"], "n": n, "first": ids[0].Hex(), "lines": bson.A{
			bson.M{"_id": ids[0], "sku": fmt.Sprintf("sku %d", n), "count": n % 7}, bson.M{"_id": ids[1], "sku": "more", "count": int32(1)},
		}}
		if _, ok := doc["customer"].(bson.ObjectID); !ok {
			return "customer"
		}
	}
	if !same(doc, want) {
		return fmt.Sprintf("not %v", want)
	}
	return ""
}

// TestMongooseApplication: models with autoIndex, subdocuments, populate, save and transactions.
func TestMongooseApplication(t *testing.T) {
	t.Parallel()
	nodeClient(t)
	shopThereAndBack(t, true, func(part applicationPart) *exec.Cmd {
		cmd := exec.Command("node", nodeFolder+"/scenario/mongoose.js")
		cmd.Env = append(os.Environ(), applicationVariable+"="+part.text(t))
		return cmd
	})
}

// TestPyMongoApplication: the same in Python, by two threads over one client.
func TestPyMongoApplication(t *testing.T) {
	t.Parallel()
	shopThereAndBack(t, false, inPython(t))
}
