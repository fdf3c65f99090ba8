package integration_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// changes are what an application makes of the shape of its collection, one kind for each. A change
// says what the application of this version has after it, and what the other version must have.
var changes = map[string]func(x *shapes, k string){
	"created": func(x *shapes, k string) { x.create(k, ix{key: x.round("new")}, everywhere) },
	"created on a renamed field": func(x *shapes, k string) {
		x.create(k, ix{key: "section," + x.round("new")}, everywhere)
	},
	"dropped":        func(x *shapes, k string) { x.drop(k, x.round("plain"), x.version == "v1") },
	"dropped unique": func(x *shapes, k string) { x.drop(k, x.round("unique"), true) },
	"hidden": func(x *shapes, k string) {
		name := x.name(x.version, x.round("plain")+"_1")
		x.mod(k, bson.D{{Key: "index", Value: bson.D{{Key: "name", Value: name}, {Key: "hidden", Value: true}}}})
		x.note(k, x.round("plain"), func(have *ix) { have.hidden = true }, x.version == "v1")
	},
	"made unique": func(x *shapes, k string) {
		x.drop(k, x.round("plain"), true)
		x.create(k, ix{key: x.round("plain"), unique: true}, everywhere)
	},
	"made to expire":    func(x *shapes, k string) { x.create(k, ix{key: x.round("at"), expires: 100000}, everywhere) },
	"expires otherwise": func(x *shapes, k string) { x.expire(k, x.round("ttl"), 200000) },
	"expires no longer": func(x *shapes, k string) {
		name := x.name(x.version, x.round("ttl")+"_1")
		x.ok(x.db[x.version].Collection(k).Indexes().DropOne(x.ctx, name))
		x.note(k, x.round("ttl"), nil, x.version == "v1")
		if x.version != "v1" { // what is left of it in v1 deletes nothing
			x.indexes["v1"][k][x.round("ttl")] = ix{expires: 1<<31 - 1}
		}
	},
	"validator": func(x *shapes, k string) {
		v := bson.D{{Key: "n", Value: bson.D{{Key: "$gte", Value: -x.n}}}}
		x.mod(k, bson.D{{Key: "validator", Value: v}, {Key: "validationLevel", Value: "moderate"}})
		x.set(k, fmt.Sprintf("validator n >= -%d, moderate", x.n))
	},
	"pre-images": func(x *shapes, k string) {
		x.mod(k, bson.D{{Key: "changeStreamPreAndPostImages", Value: bson.D{{Key: "enabled", Value: x.n%2 == 1}}}})
		x.set(k, fmt.Sprintf("pre-images %t", x.n%2 == 1))
	},
}

// behindValidators are the changes whose collections keep their names in a switch, behind a validator.
var behindValidators = map[string]bool{"created on a renamed field": true, "hidden": true, "expires otherwise": true}

// ix is an index of one field more or less, by v1's names.
type ix struct {
	key            string // fields, with commas
	unique, hidden bool
	expires        int64 // seconds; 0: not at all
}

// everywhere: the other version gets it too.
const everywhere = true

// shapes is an application that changes its collections, and what both versions must have of it.
type shapes struct {
	*system
	ctx     context.Context
	version string                              // that the application uses
	n       int                                 // of the round, from 1
	indexes map[string]map[string]map[string]ix // by version, kind and key
	options map[string]string                   // by kind
	writers *replacing                          // that write meanwhile, and what they were told
}

func (x *shapes) ok(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *shapes) round(field string) string { return fmt.Sprintf("%s%d", field, x.n) }

// name is a field, a list of them or the name of an index, as a version has it.
func (x *shapes) name(version, v1 string) string {
	if version == "v2" {
		return strings.ReplaceAll(v1, "section", "category")
	}
	return v1
}

func indexName(key string) string { return strings.ReplaceAll(key, ",", "_1_") + "_1" }

func (x *shapes) create(k string, i ix, other bool) {
	x.t.Helper()
	var key bson.D
	for _, field := range strings.Split(x.name(x.version, i.key), ",") {
		key = append(key, bson.E{Key: field, Value: 1})
	}
	how := options.Index()
	if i.unique {
		how.SetUnique(true).SetSparse(true)
	}
	if i.expires > 0 {
		how.SetExpireAfterSeconds(int32(i.expires))
	}
	_, err := x.db[x.version].Collection(k).Indexes().CreateOne(x.ctx, mongo.IndexModel{Keys: key, Options: how})
	x.ok(err)
	x.note(k, i.key, func(have *ix) { *have = i }, other)
}

func (x *shapes) drop(k, key string, other bool) {
	x.t.Helper()
	x.ok(x.db[x.version].Collection(k).Indexes().DropOne(x.ctx, x.name(x.version, indexName(key))))
	x.note(k, key, nil, other)
}

func (x *shapes) expire(k, key string, seconds int64) {
	x.t.Helper()
	x.mod(k, bson.D{{Key: "index", Value: bson.D{{Key: "name", Value: indexName(key)}, {Key: "expireAfterSeconds", Value: seconds}}}})
	x.note(k, key, func(have *ix) { have.expires = seconds }, everywhere)
}

func (x *shapes) mod(k string, change bson.D) {
	x.t.Helper()
	x.ok(x.db[x.version].RunCommand(x.ctx, append(bson.D{{Key: "collMod", Value: k}}, change...)).Err())
}

// note changes what is expected in the version that is used, and in the other one if that follows;
// a nil change takes the index away.
func (x *shapes) note(k, key string, change func(*ix), other bool) {
	for version, kinds := range x.indexes {
		if version != x.version && !other {
			continue
		}
		if kinds[k] == nil {
			kinds[k] = map[string]ix{}
		}
		if change == nil {
			delete(kinds[k], key)
			continue
		}
		i := kinds[k][key]
		change(&i)
		kinds[k][key] = i
	}
}

func (x *shapes) set(k, options string) { x.options[k] = options }

// change makes all changes, each to its kind.
func (x *shapes) change(phase string) {
	x.t.Helper()
	x.n++
	for k, change := range changes {
		change(x, collectionOf(k))
	}
	x.t.Logf("%s: %d changes", phase, len(changes))
}

func collectionOf(k string) string { return strings.ReplaceAll(k, " ", "_") }

// follows waits until both versions have what they must, and a comparison says so.
func (x *shapes) follows(phase string) {
	x.t.Helper()
	began := time.Now()
	x.writers.follow(phase)
	x.writers.mu.Lock() // a comparison of what nobody changes
	defer x.writers.mu.Unlock()
	eventually(x.ctx, x.t, phase+": both versions have the application's shapes", func() error {
		d, err := x.record.Get(x.ctx)
		if err != nil {
			return err
		}
		for version, kinds := range x.indexes {
			ns, _ := d.Namespace(version)
			for k := range changes {
				at, _ := ns.Kind(collectionOf(k))
				if err := x.compare(d, version, at, kinds[at.Kind]); err != nil {
					return fmt.Errorf("%s in %s: %w", k, version, err)
				}
			}
		}
		report, err := x.verify()
		if err != nil {
			return err
		}
		if !report.GetEqual() || len(report.GetShapes())+len(report.GetRollbackLacks()) > 0 {
			return fmt.Errorf("verify: %v", report)
		}
		return nil
	})
	x.t.Logf("%s: followed after %v", phase, time.Since(began).Round(time.Millisecond))
}

func (x *shapes) verify() (*dbv1.VerifyReport, error) {
	stream, err := x.apis()[0].Verify(x.ctx, connect.NewRequest(&dbv1.VerifyRequest{}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		if r := stream.Msg().GetReport(); r != nil {
			return r, nil
		}
	}
	return nil, stream.Err()
}

// compare compares a collection with what a version must have. TTL indexes of one that is not
// served delete nothing, and the record has what they do when it is.
func (x *shapes) compare(d upgradestate.Deployment, version string, at upgradestate.Kind, want map[string]ix) error {
	cursor, err := x.db[version].Collection(at.Physical).Indexes().List(x.ctx)
	if err != nil {
		return err
	}
	var listed []struct {
		Name    string
		Unique  bool
		Hidden  bool
		Expires int64 `bson:"expireAfterSeconds"`
	}
	if err := cursor.All(x.ctx, &listed); err != nil {
		return err
	}
	var have, must []string
	text := func(name string, i ix) string {
		return fmt.Sprintf("%s unique=%t hidden=%t expires=%d", name, i.unique, i.hidden, i.expires)
	}
	for _, i := range listed {
		if i.Name == "_id_" {
			continue
		}
		if noted, ok := at.Expiry[i.Name]; ok && i.Expires == 1<<31-1 {
			i.Expires = noted
		}
		have = append(have, text(i.Name, ix{unique: i.Unique, hidden: i.Hidden, expires: i.Expires}))
	}
	for key, i := range want {
		must = append(must, text(x.name(version, indexName(key)), i))
	}
	slices.Sort(have)
	slices.Sort(must)
	if !slices.Equal(have, must) {
		return fmt.Errorf("it has %q, and must have %q", have, must)
	}
	infos, err := x.db[version].ListCollectionSpecifications(x.ctx, bson.D{{Key: "name", Value: at.Physical}})
	if err != nil || len(infos) != 1 {
		return fmt.Errorf("%d collections, %w", len(infos), err)
	}
	var o struct {
		Validator struct {
			N struct {
				Least int `bson:"$gte"`
			}
		}
		Level  string                 `bson:"validationLevel"`
		Images struct{ Enabled bool } `bson:"changeStreamPreAndPostImages"`
	}
	if err := bson.Unmarshal(infos[0].Options, &o); err != nil {
		return err
	}
	got := ""
	switch expected := x.options[at.Kind]; {
	case strings.HasPrefix(expected, "validator"):
		got = fmt.Sprintf("validator n >= %d, %s", o.Validator.N.Least, o.Level)
	case strings.HasPrefix(expected, "pre-images"):
		got = fmt.Sprintf("pre-images %t", o.Images.Enabled)
	}
	if got != x.options[at.Kind] {
		return fmt.Errorf("it has %q, and must have %q", got, x.options[at.Kind])
	}
	return nil
}

// flipped has the application use another version from now on.
func (x *shapes) flipped(version string) {
	x.writers.mu.Lock()
	defer x.writers.mu.Unlock()
	x.version, x.writers.version = version, version
}

// namesViews makes a view over a collection that moves, and waits until the deployment's status names
// it.
func (x *shapes) namesViews() {
	x.t.Helper()
	at := collectionOf("created")
	x.ok(x.db["v1"].RunCommand(x.ctx, bson.D{{Key: "create", Value: "late_view"}, {Key: "viewOn", Value: at}, {Key: "pipeline", Value: bson.A{}}}).Err())
	eventually(x.ctx, x.t, "the view is named", func() error {
		d, err := x.apis()[0].GetDeployment(x.ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err == nil && !strings.Contains(d.Msg.GetViews(), "late_view") {
			err = fmt.Errorf("views: %q", d.Msg.GetViews())
		}
		return err
	})
	x.ok(x.db["v1"].Collection("late_view").Drop(x.ctx))
}

const (
	shapeDocuments = 50
	shapePhases    = 8
)

// TestShapeChanges: an application changes the shape of its collections in each way, in each phase of
// an upgrade there and back (some of them in make soak) and while no controller runs, under its own writes. The version that is not
// served follows each change, a comparison names what does not, and no write that was acknowledged is
// lost. Changes right before the fence end the attempt, and the next one takes them along.
func TestShapeChanges(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	kinds := []string{}
	for _, k := range slices.Sorted(maps.Keys(changes)) {
		class := record.FenceView
		if behindValidators[k] {
			class = record.FenceValidator
		}
		kinds = append(kinds, fmt.Sprintf("{from: %s, to: %[1]s, lens: packages.yaml, fence: %s}", collectionOf(k), class))
	}
	x := &shapes{ctx: ctx, version: "v1", indexes: map[string]map[string]map[string]ix{"v1": {}, "v2": {}}, options: map[string]string{}}
	x.system = newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}", toSwitch: "{deadline: 5m, maxLag: 3s}", kinds: "[" + strings.Join(kinds, ", ") + "]"})
	w := &replacing{system: x.system, ctx: ctx, version: "v1", has: map[string]map[string]int{}, keeps: true}
	x.writers = w
	for k := range changes {
		docs := map[string]int{}
		for i := range shapeDocuments {
			docs[fmt.Sprintf("d%03d", i)] = i
		}
		w.has[collectionOf(k)] = docs
		w.insert(collectionOf(k), docs)
		x.ok(x.prepare(k))
	}
	controller := x.system.controller("controller", breakPoint{}).ready(ctx)
	defer w.writes()()
	x.change("copy")
	x.follows("copy")
	if soaks() {
		x.change("tail")
		x.follows("tail")
	}
	if code := controller.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	x.forget(controller)
	x.change("between two runs")
	controller = x.stepping("again").ready(ctx)
	x.follows("between two runs")

	x.beginHolding(ctx, "v2")
	ready := func(d upgradestate.Deployment) bool { return d.Upgrade != nil && len(d.Upgrade.ReadyShards) == ring }
	x.await(ctx, "readiness", ready)
	x.namesViews()
	x.change("held at ready")
	x.goOn(ctx) // which waits for what the target has to follow
	for controller.awaitReached(ctx) != string(upgradestate.StepHold) {
		controller.order(orderStep)
	}
	x.change("during the switch") // after the last look at the source, and before its fence
	controller.order(orderRun)
	d := x.await(ctx, "the attempt to be given up", func(d upgradestate.Deployment) bool { return d.Upgrade == nil || d.Upgrade.Failures > 0 })
	if !endedForChanges(d) {
		t.Fatalf("the attempt did not end for the changes: %+v, %+v", d.Upgrade, d.History)
	}
	x.await(ctx, "the flip", func(d upgradestate.Deployment) bool {
		if d.Upgrade == nil && d.CurrentVersion == "v1" {
			t.Fatalf("the upgrade has ended: %+v", d.History)
		}
		return flipped("v2")(d)
	})
	x.flipped("v2")
	x.await(ctx, "the old version to follow", func(d upgradestate.Deployment) bool {
		to, ok := upgradestate.Followed(d)
		return ok && to.TargetVersion == "v1"
	})
	x.follows("after the switch")
	x.change("after the switch")
	x.follows("after the switch, changed")
	if soaks() {
		x.change("before a rollback")
		x.follows("before a rollback")
	}

	// In the rollback's switch, where only the deletes of TTL indexes hold it up.
	x.kill(controller)
	controller = x.stepping("back").ready(ctx)
	x.beginTo(ctx, "v1")
	for controller.awaitReached(ctx) != string(upgradestate.StepHold) {
		controller.order(orderStep)
	}
	x.n++
	for _, k := range []string{"expires otherwise", "expires no longer"} {
		changes[k](x, collectionOf(k))
	}
	controller.order(orderRun)
	d = x.await(ctx, "the rollback's attempt to be given up", func(d upgradestate.Deployment) bool { return d.Upgrade == nil || d.Upgrade.Failures > 0 })
	if !endedForChanges(d) {
		t.Fatalf("the rollback's attempt did not end for the changes: %+v", d.Upgrade)
	}
	x.await(ctx, "the flip back", flipped("v1"))
	x.flipped("v1")
	x.indexes["v2"] = maps.Clone(x.indexes["v1"]) // v2 follows v1 again, in what v1 has kept too
	x.follows("after the rollback")
}

// endedForChanges reports whether an attempt ended because the target lacks a change of shape. A busy
// server can end a fence halfway, and a writer of this test takes the kind's name then. That ends the
// attempt before the comparison of the shapes. The next one begins after the change has followed, and
// the comparison at the end shows that it took the writer's documents along.
func endedForChanges(d upgradestate.Deployment) bool {
	return d.Upgrade != nil && (strings.Contains(d.Upgrade.LastFailure, "the next attempt begins after the target has the change too") ||
		strings.Contains(d.Upgrade.LastFailure, record.ErrTaken.Error()))
}

// prepare makes the indexes that the rounds change.
func (x *shapes) prepare(k string) error {
	for x.n = 1; x.n <= shapePhases; x.n++ {
		switch k {
		case "dropped", "hidden", "made unique":
			x.create(collectionOf(k), ix{key: x.round("plain")}, everywhere)
		case "dropped unique":
			x.create(collectionOf(k), ix{key: x.round("unique"), unique: true}, everywhere)
		case "expires otherwise", "expires no longer":
			x.create(collectionOf(k), ix{key: x.round("ttl"), expires: 100000}, everywhere)
		}
	}
	x.n = 0
	return nil
}
