package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/integration/subprocess"
	"dbcontroller.dev/upgradestate"
)

// proxyEnds is the time in which a proxy ends after SIGTERM, with some room for a busy machine.
const proxyEnds = 30 * time.Second

// TestProxyStops: two proxies are restarted in turn by SIGTERM, in each step of a switch. An unmodified application
// goes on behind them. No call fails but those for a cursor that a lost router ends, nothing is lost, and nothing is
// done twice.
func TestProxyStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	own := start(ctx, t, localmongo.Options{Own: true}).URI()
	names := []string{"accounts", "entries", "records"}
	kinds := ""
	for _, name := range names {
		kinds += fmt.Sprintf("\n- {from: %s, to: %s, lens: packages.yaml}", name, name)
	}
	s := newSystem(ctx, t, settings{service: "shop", lens: "lens: 1\noperations: []\n", kinds: kinds, uris: map[string]string{"v1": own, "v2": own}})
	for _, name := range names {
		if err := s.db["v1"].CreateCollection(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	controller := s.stepping("controller").ready(ctx)
	api, _ := controller.addresses()
	ports, err := subprocess.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	var proxies [2]*child
	var addresses [2]string
	for i := range proxies {
		addresses[i] = fmt.Sprint("127.0.0.1:", ports[i])
		proxies[i] = s.proxyProcess(ctx, addresses[i], []string{api}, names...)
	}
	uri := "mongodb://" + strings.Join(addresses[:], ",") + "/"
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the test ends
	db := client.Database(s.db["v1"].Name())
	fillForClients(ctx, t, db)
	u := &unmodified{t: t, name: "go", workers: 2, made: map[string]int{}}
	stop := sync.OnceFunc(u.runGo(ctx, unmodifiedPart{
		Name: "go", URI: uri, Database: db.Name(), Workers: u.workers, Accounts: clientAccounts, Records: clientRecords, Scan: 5, Killed: true,
	}))
	defer stop()
	plain := &unretried{db: db}
	if err := plain.open(ctx); err != nil {
		t.Fatal(err)
	}
	working, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- plain.work(ctx, working) }()
	goesOn := func(what string) {
		t.Helper()
		before := u.steps.Load()
		eventually(ctx, t, "the application works "+what, func() error {
			if n := u.steps.Load() - before; n < int64(3*u.workers) && !u.hasFailed() {
				return fmt.Errorf("%d steps", n)
			}
			return nil
		})
	}
	// restart ends a proxy and starts it again. Meanwhile the switch goes on.
	restart := func(i int, meanwhile func()) {
		t.Helper()
		began := time.Now()
		proxies[i].end(syscall.SIGTERM)
		meanwhile()
		if code := proxies[i].terminate(proxyEnds); code != 0 {
			t.Errorf("proxy %d ended with %d after SIGTERM:\n%s", i, code, proxies[i].output())
		}
		t.Logf("proxy %d ended in %v", i, time.Since(began))
		proxies[i] = s.proxyProcess(ctx, addresses[i], []string{api}, names...)
	}
	nothing := func() {}
	goesOn("at the start")
	restart(0, nothing)
	restart(1, nothing)
	goesOn("before a switch")
	for round, version := range []string{"v2", "v1"} {
		s.beginTo(ctx, version)
		// Whoever is restarted in one step comes back in the next one. A switch whose time is over begins again, so a
		// step can come more than once.
		var held, fenced bool
		for step := s.nextStep(ctx, controller, version); step != ""; step = s.nextStep(ctx, controller, version) {
			goOn := func() { controller.order(orderStep) }
			switch {
			case step == string(upgradestate.StepHold) && !held:
				held = true
				restart(round, nothing)
			case step == string(upgradestate.StepDrain) && !fenced:
				fenced = true
				restart(1-round, goOn)
				continue
			}
			goOn()
		}
		if !held || !fenced {
			t.Errorf("the switch to %s was not struck: held %v, fenced %v", version, held, fenced)
		}
		restart(round, nothing)
		goesOn("at " + version)
	}
	stop()
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	plain.check(ctx, t)
	t.Logf("%d steps, %d cursors ended with a proxy", u.steps.Load(), u.again.Load())
	u.check(ctx, t, db)
	checkMoney(ctx, t, db)
	if n, err := db.Collection("records").CountDocuments(ctx, bson.D{}); err != nil || n != clientRecords {
		t.Errorf("%d records, want %d: %v", n, clientRecords, err)
	}
}

// unretried makes updates that no driver repeats. A router that ends in order lets them end.
type unretried struct {
	db           *mongo.Database
	made, unsent int
}

func (u *unretried) open(ctx context.Context) error {
	_, err := u.db.Collection("entries").InsertOne(ctx, bson.D{{Key: "_id", Value: "many"}, {Key: "n", Value: 0}})
	return err
}

func (u *unretried) work(ctx, working context.Context) error {
	for working.Err() == nil {
		_, err := u.db.Collection("entries").UpdateMany(ctx, byID("many"), increment("n", 1))
		switch {
		case err == nil:
			u.made++
		// As behind a mongos: the connection was not open yet when the driver heard of the end.
		case strings.Contains(err.Error(), "shuts down"), clearedPool(err):
			u.unsent++
		default:
			return fmt.Errorf("update %d: %w", u.made+1, err)
		}
	}
	return nil
}

func (u *unretried) check(ctx context.Context, t *testing.T) {
	t.Helper()
	var many struct{ N int }
	if err := u.db.Collection("entries").FindOne(ctx, byID("many")).Decode(&many); err != nil || many.N != u.made {
		t.Errorf("%d updates were acknowledged, and the data has %d: %v", u.made, many.N, err)
	}
	t.Logf("%d updates, %d were not sent", u.made, u.unsent)
}
