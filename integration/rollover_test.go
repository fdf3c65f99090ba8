package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
)

// TestOplogRollsOverInATransaction: a transaction of the application stays open until the
// oplog reaches back to nothing that was there when it began, and is larger than the oplog
// when it commits. Once the controller follows all the time; the second time it stands
// still meanwhile, has lost the history when it goes on, and compares everything again.
// What the transactions wrote is in the new version, and so is everything else.
func TestOplogRollsOverInATransaction(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	server := start(ctx, t, localmongo.Options{OplogMB: oplogMB, CheckpointEvery: 1, CacheGB: 1, Own: true})
	s := newSystem(ctx, t, settings{service: "shop", kinds: viewed, uris: map[string]string{"v1": server.URI()}})
	r := &rollover{system: s, traffic: newTraffic(ctx, s, 4*appClients*ownDocuments)}
	admin := s.db["v1"].Client().Database("admin")
	// Only this machine's other work should not decide how long a transaction may last.
	if err := admin.RunCommand(ctx, bson.D{{Key: "setParameter", Value: 1}, {Key: "transactionLifetimeLimitSeconds", Value: 600}}).Err(); err != nil {
		t.Fatal(err)
	}
	controller := s.controller("controller", breakPoint{}).ready(ctx)
	r.applications(ctx)
	s.beginHolding(ctx, "v2")
	s.awaitSync(ctx)

	r.transaction(ctx, appClients*ownDocuments)
	s.awaitSync(ctx)
	losses := func() int { return strings.Count(controller.output(), "the change history of the source is lost") }
	before := losses()
	t.Logf("the controller that followed all the time has lost the history %d times", before)
	controller.signal(ctx, syscall.SIGSTOP)
	r.transaction(ctx, 2*appClients*ownDocuments)
	controller.signal(ctx, syscall.SIGCONT)
	eventually(ctx, t, "the controller notes that it has lost the history", func() error {
		if losses() == before {
			return errors.New("its log says nothing of it")
		}
		return nil
	})
	s.awaitSync(ctx)
	s.goOn(ctx)
	d := s.await(ctx, "the flip", flipped("v2"))
	r.traffic.finish()
	r.traffic.settlePackages(ctx, d.CurrentVersion)
}

// viewed is fenced by a view, which ends the transactions that are in its way. The proof
// before a switch must not.
const viewed = "[{from: packages, to: packages, lens: packages.yaml, fence: view}]"

// oplogMB is the least that a mongod rolls over in steps that a test can make.
const oplogMB = 16

// rollover is a system whose source has a small oplog.
type rollover struct {
	*system
	traffic *traffic
}

// applications write their own documents until the test ends.
func (r *rollover) applications(ctx context.Context) {
	ctx, r.traffic.stop = context.WithCancel(ctx)
	r.t.Cleanup(r.traffic.finish)
	for i := range appClients {
		w := &packageWriter{system: r.system, ledger: r.traffic.packages, rng: rand.New(rand.NewPCG(4, uint64(i)))}
		for j := range ownDocuments {
			w.live = append(w.live, packageKey(i*ownDocuments+j))
		}
		r.traffic.drive(ctx, func() { w.step(ctx) })
	}
}

// transaction writes documents from the given one on, rolls the oplog over, writes more than
// the oplog holds and the next documents, and commits.
func (r *rollover) transaction(ctx context.Context, first int) {
	t := r.t
	t.Helper()
	const each = 10 // documents, before and after
	client := r.db["v1"].Client()
	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(ctx)
	junk := r.db["v1"].Collection("junk")                    // of no kind
	if _, err := junk.InsertOne(ctx, bson.D{}); err != nil { // made before the transaction
		t.Fatal(err)
	}
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	inside := mongo.NewSessionContext(ctx, session)
	update := func(from int) {
		t.Helper()
		for i := range each {
			res, err := r.db["v1"].Collection(packagesKind).UpdateByID(inside, packageKey(from+i), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int64(from)}}}})
			if err != nil || res.MatchedCount != 1 {
				t.Fatalf("update in the transaction: %v, %v", res, err)
			}
		}
	}
	update(first)
	r.rollOver(ctx, junk)
	for range 2 * oplogMB {
		if _, err := junk.InsertOne(inside, bson.D{{Key: "big", Value: megabyte}}); err != nil {
			t.Fatal(err)
		}
	}
	update(first + each)
	for i := first; i < first+2*each; i++ {
		r.traffic.packages.Begin(packageKey(i), packageState(int64(first+(i-first)/each*each)))
	}
	if err := session.CommitTransaction(inside); err != nil {
		t.Fatal(err)
	}
	for i := first; i < first+2*each; i++ {
		r.traffic.packages.Ack(packageKey(i))
	}
	r.rollOver(ctx, junk)
}

var megabyte = strings.Repeat("x", 1<<20)

// rollOver writes until the changes from now on can no longer be read.
func (r *rollover) rollOver(ctx context.Context, junk *mongo.Collection) {
	t := r.t
	t.Helper()
	if _, err := junk.InsertOne(ctx, bson.D{}); err != nil {
		t.Fatal(err)
	}
	var hello struct {
		OperationTime bson.Timestamp `bson:"operationTime"`
	}
	if err := junk.Database().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the oplog rolls over", func() error {
		for range oplogMB / 2 {
			if _, err := junk.InsertOne(ctx, bson.D{{Key: "big", Value: megabyte}}); err != nil {
				return err
			}
		}
		stream, err := junk.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetStartAtOperationTime(&hello.OperationTime))
		if err == nil {
			return errors.Join(errors.New("the changes are all there"), stream.Close(ctx))
		}
		var lost mongo.CommandError
		if !errors.As(err, &lost) || lost.Name != "ChangeStreamHistoryLost" && lost.Name != "CappedPositionLost" {
			t.Fatal(fmt.Errorf("watch from before: %w", err))
		}
		return nil
	})
	if _, err := junk.DeleteMany(ctx, bson.D{}); err != nil {
		t.Fatal(err)
	}
}
