package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/upgradestate"
)

// TestElections takes the primary of three nodes away under traffic, again and again: in
// the copy, in the tail, and in each step of SWITCHING, there and back (in make soak: there
// again). It steps down, is killed, or is stopped and comes back later; twice it takes writes
// with it that no majority had, and once a fence. Both versions are on these nodes, so that source
// and target lose it together. Nothing that was acknowledged is lost, duplicated or
// resurrected, and nothing that was rolled back is found anywhere.
func TestElections(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 7*patience)
	defer cancel()
	e := newElections(ctx, t)
	e.traffic.start(ctx, e.server("server", 0).ready(ctx))
	e.traffic.awaitWrites(ctx, "v1", 10)

	e.pace(ctx, 20) // minutes, for four faults
	e.beginHolding(ctx, "v2")
	for _, f := range inTurn(e.kill, e.rollBack, e.stepDown, e.stop) {
		e.inCopy(ctx, f)
	}
	e.pace(ctx, 0)
	e.awaitSync(ctx)
	for _, f := range inTurn(e.stop, e.rollBack, e.stepDown, e.kill) {
		e.inTail(ctx, f)
	}
	var d upgradestate.Deployment
	to, other := "v1", "v2"
	for _, faults := range inTurn(
		map[upgradestate.Step]fault{
			upgradestate.StepHold: e.stop, upgradestate.StepFence: e.rollBackFence, upgradestate.StepDrain: e.kill,
			upgradestate.StepSealTarget: e.stepDown, upgradestate.StepSealSource: e.kill,
		},
		map[upgradestate.Step]fault{
			upgradestate.StepHold: e.kill, upgradestate.StepFence: e.stop, upgradestate.StepDrain: e.stepDown,
			upgradestate.StepSealTarget: e.kill, upgradestate.StepSealSource: e.stop,
		},
		map[upgradestate.Step]fault{
			upgradestate.StepHold: e.stepDown, upgradestate.StepFence: e.kill, upgradestate.StepDrain: e.stop,
			upgradestate.StepSealTarget: e.stop, upgradestate.StepSealSource: e.stepDown,
		},
	) {
		to, other = other, to
		d = e.switchTo(ctx, to, faults)
	}
	e.traffic.settle(ctx, d)
	for _, l := range []*ledger{e.traffic.processes, e.traffic.packages} {
		t.Logf("%d writes of a %s are acknowledged, %d calls failed: %v", len(l.acks), l.Name, len(l.unknown), l.unknown[:min(3, len(l.unknown))])
	}
	e.inSync(ctx, e.traffic, other)
}

// elections is a system on three nodes of its own.
type elections struct {
	*system
	traffic    *traffic
	nodes      *localmongo.Server
	controller *child
	phantoms   int
}

// fault takes the primary away, calls struck when it is gone, and returns when there is
// another one. heal brings back what is missing.
type fault func(ctx context.Context, struck func()) (what string, heal func())

func newElections(ctx context.Context, t *testing.T) *elections {
	t.Helper()
	nodes := start(ctx, t, localmongo.Options{Nodes: 3, Own: true, TestCommands: true})
	// A node that stands still is given up soon, and the deadline does not end a switch
	// before all of its steps were met.
	uri := nodes.URI() + "&connectTimeoutMS=2000&heartbeatFrequencyMS=500"
	s := newSystem(ctx, t, settings{
		uris: map[string]string{"v1": uri, "v2": uri}, copy: "{auto: false, workers: 2}", toSwitch: "{deadline: 5m, maxLag: 3s}",
	})
	e := &elections{system: s, nodes: nodes, traffic: newTraffic(ctx, s, documents)}
	e.traffic.processes.excused, e.traffic.packages.excused = true, true
	e.controller = s.stepping("controller").ready(ctx)
	return e
}

// do strikes, lets what is wanted happen without the old primary, and brings it back.
func (e *elections) do(ctx context.Context, phase string, f fault, struck, meanwhile func()) {
	e.t.Helper()
	since := time.Now()
	what, heal := f(ctx, struck)
	elected := time.Since(since)
	meanwhile()
	took := time.Since(since)
	heal()
	e.must(e.nodes.AwaitMembers(ctx))
	e.awaitReplicated(ctx)
	e.t.Logf("ELECTION in %s: %s; there is another primary after %s, it went on after %s, all is well after %s", phase, what,
		elected.Round(time.Millisecond), took.Round(time.Millisecond), time.Since(since).Round(time.Millisecond))
}

// awaitReplicated waits until all nodes have the same history. One that has just come back
// may have to roll its own back first, and until then there is no majority without the
// next node that goes.
func (e *elections) awaitReplicated(ctx context.Context) {
	e.t.Helper()
	all := options.Database().SetWriteConcern(&writeconcern.WriteConcern{W: len(e.nodes.Nodes())})
	eventually(ctx, e.t, "all nodes have a write", func() error {
		_, err := e.db["v1"].Client().Database(ownDatabase, all).Collection("all").InsertOne(ctx, bson.D{})
		return err
	})
}

// ownDatabase is where the test itself writes on the nodes.
const ownDatabase = "elections"

// inCopy strikes while records are copied.
func (e *elections) inCopy(ctx context.Context, f fault) {
	e.t.Helper()
	e.inTheCopy(ctx, documents)
	e.do(ctx, "copy", f, func() {}, e.clientsWrite(ctx, "v1"))
}

// inTail strikes while changes are followed.
func (e *elections) inTail(ctx context.Context, f fault) {
	e.t.Helper()
	e.do(ctx, "tail", f, func() {}, e.clientsWrite(ctx, "v1"))
	e.awaitSync(ctx)
}

// clientsWrite waits until each path has made a few writes more.
func (e *elections) clientsWrite(ctx context.Context, version string) func() {
	return func() {
		const few = 5
		for _, l := range []*ledger{e.traffic.processes, e.traffic.packages} {
			e.traffic.await(ctx, version, l.count(version)+few, l)
		}
	}
}

// switchTo begins an upgrade and strikes in each step of its switch.
func (e *elections) switchTo(ctx context.Context, to string, faults map[upgradestate.Step]fault) upgradestate.Deployment {
	e.t.Helper()
	if d, err := e.record.Get(ctx); err == nil && d.Upgrade == nil {
		e.beginTo(ctx, to)
	} else {
		e.must(err)
		e.goOn(ctx)
	}
	for place := e.nextPlace(ctx, to); place != ""; {
		f := faults[upgradestate.Step(place)]
		if f == nil { // an attempt that was given up is tried again by itself
			e.t.Logf("the switch to %s is in step %s once more", to, place)
			e.controller.order(orderStep)
			place = e.nextPlace(ctx, to)
			continue
		}
		delete(faults, upgradestate.Step(place))
		e.do(ctx, fmt.Sprintf("%s to %s", place, to), f, func() { e.controller.order(orderStep) }, func() { place = e.nextPlace(ctx, to) })
	}
	if len(faults) > 0 {
		e.t.Errorf("the switch to %s was not struck in %v", to, slices.Collect(maps.Keys(faults)))
	}
	e.clientsWrite(ctx, to)()
	d, err := e.record.Get(ctx)
	if err != nil {
		e.t.Fatal(err)
	}
	return d
}

// nextPlace waits until the controller stands in the next step of a switch, or until that
// is over: "".
func (e *elections) nextPlace(ctx context.Context, to string) (place string) {
	e.t.Helper()
	return e.nextStep(ctx, e.controller, to)
}

// nextStep is nextPlace for a controller of the system.
func (s *system) nextStep(ctx context.Context, stepping *child, to string) (step string) {
	s.t.Helper()
	eventually(ctx, s.t, "the next step of the switch to "+to, func() error {
		select {
		case step = <-stepping.reached:
			return nil
		default:
		}
		d, err := s.record.Get(ctx)
		if err == nil && d.Upgrade == nil && d.CurrentVersion != to {
			s.t.Fatalf("the upgrade to %s has ended without a switch: %+v", to, d.History[len(d.History)-1])
		}
		if err == nil && !flipped(to)(d) {
			err = errors.New("there is none yet")
		}
		return err
	})
	return step
}

func (e *elections) primary(ctx context.Context) *localmongo.Node {
	e.t.Helper()
	n, err := e.nodes.Primary(ctx)
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}

func (e *elections) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// others are the nodes but one.
func (e *elections) others(than *localmongo.Node) (others []*localmongo.Node) {
	for _, n := range e.nodes.Nodes() {
		if n != than {
			others = append(others, n)
		}
	}
	return others
}

// stepDown has the primary give up its office.
func (e *elections) stepDown(ctx context.Context, struck func()) (string, func()) {
	old := e.primary(ctx)
	e.must(old.StepDown(ctx))
	struck()
	e.primary(ctx)
	return "step-down", func() {}
}

// kill ends the primary with SIGKILL.
func (e *elections) kill(ctx context.Context, struck func()) (string, func()) {
	old := e.primary(ctx)
	old.Kill()
	struck()
	e.primary(ctx)
	return "SIGKILL", func() { e.must(old.Start(ctx)) }
}

// stop has the primary stand still, with every connection open, until all is over. It then
// still believes in its office.
func (e *elections) stop(ctx context.Context, struck func()) (string, func()) {
	old := e.primary(ctx)
	e.must(old.Pause())
	struck()
	e.primary(ctx)
	return "SIGSTOP", func() { e.must(old.Resume()) }
}

// rollBack kills both secondaries, has the primary acknowledge writes that nobody else has,
// kills it, and starts the others: these writes never were.
func (e *elections) rollBack(ctx context.Context, struck func()) (string, func()) {
	old := e.primary(ctx)
	others := e.others(old)
	for _, n := range others {
		n.Kill()
	}
	heal := e.buries(ctx, old, struck, func(c *mongo.Client) {
		e.phantoms++
		for _, key := range []string{"a phantom %d", "z phantom %d"} { // at both ends of the index
			_, err := c.Database(e.db["v1"].Name()).Collection(packagesKind).InsertOne(ctx, packageDoc("v1", fmt.Sprintf(key, e.phantoms), 0))
			e.must(err)
		}
	})
	for _, n := range others {
		e.must(n.Start(ctx))
	}
	e.primary(ctx)
	return "rolled-back writes", heal
}

// rollBackFence is the same with the fences in place of writes: the first node that has
// them loses them. The secondaries go on without fetching, which leaves the primary its
// office for as long as the fences take.
func (e *elections) rollBackFence(ctx context.Context, struck func()) (string, func()) {
	d, err := e.record.Get(ctx)
	e.must(err)
	ns, _ := d.Namespace(d.CurrentVersion)
	names := bson.A{}
	for _, k := range ns.Kinds {
		if k.Pending != nil {
			names = append(names, k.Pending.To)
		}
	}
	old := e.primary(ctx)
	for _, n := range e.others(old) {
		e.fetches(ctx, n, false)
	}
	heal := e.buries(ctx, old, struck, func(c *mongo.Client) {
		eventually(ctx, e.t, "a fence is on the primary", func() error {
			found, err := c.Database(e.db[d.CurrentVersion].Name()).ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}})
			if err == nil && len(found) == 0 {
				err = fmt.Errorf("there is none of %v", names)
			}
			return err
		})
	})
	for _, n := range e.others(old) {
		e.fetches(ctx, n, true)
	}
	e.primary(ctx)
	return "rolled-back fence", heal
}

// buries has a primary do something alone, and take it to its grave.
func (e *elections) buries(ctx context.Context, old *localmongo.Node, struck func(), alone func(*mongo.Client)) (heal func()) {
	c, before := e.direct(old), e.rollBacks(old)
	struck()
	alone(c)
	_, err := c.Database(ownDatabase).Collection("alone").InsertOne(ctx, bson.D{})
	e.must(err) // it, and all before it, would be there after a restart
	old.Kill()
	return func() {
		e.must(old.Start(ctx))
		eventually(ctx, e.t, "the old primary rolls back", func() error {
			if e.rollBacks(old) == before {
				return errors.New("its log does not say so")
			}
			return nil
		})
	}
}

// direct is a client of one node, whatever its role.
func (e *elections) direct(n *localmongo.Node) *mongo.Client {
	e.t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + n.Addr() + "/?directConnection=true").SetWriteConcern(onDisk))
	e.must(err)
	e.t.Cleanup(func() { _ = c.Disconnect(context.Background()) }) // its node may be gone
	return c
}

// fetches has a secondary fetch what the primary writes, or not.
func (e *elections) fetches(ctx context.Context, n *localmongo.Node, on bool) {
	e.t.Helper()
	mode := "alwaysOn"
	if on {
		mode = "off"
	}
	e.must(e.direct(n).Database("admin").RunCommand(ctx, bson.D{{Key: "configureFailPoint", Value: "stopReplProducer"}, {Key: "mode", Value: mode}}).Err())
}

// onDisk is the weakest write concern whose writes outlive a kill.
var onDisk = &writeconcern.WriteConcern{W: 1, Journal: new(true)}

// rollBacks is how often a node gave up writes which the others do not have.
func (e *elections) rollBacks(n *localmongo.Node) int {
	e.t.Helper()
	log, err := os.ReadFile(n.LogPath())
	e.must(err)
	return strings.Count(string(log), "Rollback complete")
}
