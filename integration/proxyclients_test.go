package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/integration/subprocess"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// clientsVariable makes TestUnmodifiedClients run, which takes minutes. Its value names the cases.
const clientsVariable = "DBCONTROLLER_CLIENTS"

// What unmodified clients find.
const (
	clientAccounts = 20
	clientRecords  = 10_000
	clientWorkers  = 2
	// stepsPerPlace is what each client does at each place before the next switch begins.
	stepsPerPlace = 15
)

// unmodifiedPart has the settings that the test gives to the program of one client.
type unmodifiedPart struct {
	Name     string `json:"name"`
	URI      string `json:"uri"` // of the proxies
	Database string `json:"database"`
	Workers  int    `json:"workers"`
	Accounts int    `json:"accounts"` // with the _id 0 and up, between which transactions move money
	Records  int    `json:"records"`
	Scan     int    `json:"scan"` // steps from one cursor over all records to the next
	// Killed: proxies are lost now and then. A cursor then ends as behind a router that is lost, and the client reads
	// again.
	Killed bool `json:"killed"`
}

// unmodified is a client that is switched without noticing. Its workers make the same steps, whatever the driver:
// they count by $inc, move money and insert in a transaction, make a bulk write with an upsert, find and modify,
// delete, and read what they wrote. Sometimes they read all records by a cursor, in many batches.
type unmodified struct {
	t     *testing.T
	name  string
	steps atomic.Int64
	again atomic.Int64

	mu     sync.Mutex
	failed bool
	made   map[string]int // steps of each worker that has ended
}

// line is one message that the program of a client writes to the test.
type clientLine struct {
	Step   int64  `json:"step"`
	Failed string `json:"failed"`
	Worker string `json:"worker"`
	Steps  int    `json:"steps"`
	Again  int64  `json:"again"` // cursors that ended with a proxy
}

func (u *unmodified) hear(l clientLine) {
	u.steps.Add(l.Step)
	u.again.Add(l.Again)
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.Failed != "" {
		u.failed = true
		u.t.Errorf("%s", l.Failed)
	}
	if l.Worker != "" {
		u.made[l.Worker] = l.Steps
	}
}

func (u *unmodified) hasFailed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failed
}

// clientPrograms are the commands of the clients that are programs of their own.
func clientPrograms(t *testing.T) map[string][]string {
	t.Helper()
	nodeClient(t)
	folder := filepath.Join("testdata", "clients")
	return map[string][]string{
		"pymongo":  {python(t), filepath.Join(folder, "pymongo_client.py")},
		"node":     {"node", filepath.Join(folder, "node_client.cjs")},
		"mongoose": {"node", filepath.Join(folder, "mongoose_client.cjs")},
	}
}

// run starts a program. It ends after stop.
func (u *unmodified) run(ctx context.Context, t *testing.T, args []string, part unmodifiedPart) (stop func()) {
	t.Helper()
	text, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := filepath.Abs(filepath.Join(nodeFolder, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "CLIENT="+string(text), "NODE_PATH="+modules, "PYTHONDONTWRITEBYTECODE=1")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	cmd.Stdout = write
	c := spawn(t, u.name, cmd)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		defer read.Close()
		for lines := bufio.NewScanner(read); lines.Scan(); {
			var l clientLine
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				l = clientLine{Failed: lines.Text()}
			}
			u.hear(l)
		}
	}()
	return func() {
		c.mu.Lock()
		c.ended = true // as it should
		c.mu.Unlock()
		_ = c.stdin.Close()
		select {
		case <-heard:
		case <-ctx.Done():
			t.Errorf("%s does not end: %v", u.name, ctx.Err())
			c.kill()
			<-heard
		}
		if code, err := c.Wait(); code != 0 {
			t.Errorf("%s: %v\n%s", u.name, err, c.output())
		}
	}
}

// proxyProcess starts the real program before the application of a system, and waits until it listens.
func (s *system) proxyProcess(ctx context.Context, address string, apis []string, collections ...string) *child {
	s.t.Helper()
	return s.proxyProcessWith(ctx, address, apis, nil, collections...)
}

// proxyProcessWith is proxyProcess with further keys of the configuration.
func (s *system) proxyProcessWith(ctx context.Context, address string, apis []string, further map[string]any, collections ...string) *child {
	s.t.Helper()
	kinds := map[string]string{}
	for _, c := range collections {
		kinds[c] = c
	}
	config := map[string]any{
		"listen": address, "upstream": s.uris["v1"],
		"deployments": []any{map[string]any{
			"application": "proxy", "controllers": apis, "database": s.db["v1"].Name(), "collections": kinds, "uris": s.uris,
		}},
	}
	maps.Copy(config, further)
	text, err := json.Marshal(config)
	if err != nil {
		s.t.Fatal(err)
	}
	name := "proxy-" + strings.TrimPrefix(address, "127.0.0.1:")
	c := spawn(s.t, name, program(built.path(s.t), []string{"proxy", "--config", s.write(name+".yaml", string(text))}, nil))
	eventually(ctx, s.t, name+" listens", func() error {
		if !c.Running() {
			s.t.Fatalf("%s ended: %v\n%s", name, c.err(), c.output())
		}
		if !strings.Contains(c.output(), `"proxy listens"`) {
			return errors.New("it has not told its address")
		}
		return nil
	})
	return c
}

// TestUnmodifiedClients: clients that know nothing of dbcontroller work behind two proxies, while their collections go
// there and back twice. Nothing fails, nothing is lost, and nothing is done twice.
func TestUnmodifiedClients(t *testing.T) { //nolint:paralleltest // each one needs the machine
	cases := strings.Fields(os.Getenv(clientsVariable))
	if len(cases) == 0 {
		t.Skip("it takes minutes: run 'make clients'")
	}
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var cluster *mongotest.Cluster
			own := ""
			if name == "sharded" {
				cluster = mongotest.Sharded(t)
				own = cluster.URI()
			} else {
				own = start(ctx, t, localmongo.Options{Own: true}).URI()
			}
			uris := map[string]string{"v1": own, "v2": own}
			switch name {
			case "one", "sharded":
			case "two", "killed", "restarted", "cut", "controllers":
				uris["v2"] = start(ctx, t, localmongo.Options{Own: true}).URI()
			default:
				t.Fatalf("%s=%s: want one (cluster), two, killed, restarted, cut, controllers or sharded", clientsVariable, name)
			}
			thereAndBackTwice(ctx, t, name, uris, cluster)
		})
	}
}

// thereAndBackTwice runs one case. In the cases killed and restarted it ends one proxy in each switch to v2, and the
// other one after each switch. In the case controllers it kills controllers instead. In the case cut the replies of the
// proxies break off now and then.
func thereAndBackTwice(ctx context.Context, t *testing.T, name string, uris map[string]string, cluster *mongotest.Cluster) {
	t.Helper()
	lost := name == "killed" || name == "restarted" || name == "cut" // routers, now and then
	names := []string{"accounts", "entries", "records", "restored"}
	kinds := ""
	for _, name := range names {
		kinds += fmt.Sprintf("- {from: %s, to: %s, lens: packages.yaml}\n", name, name)
	}
	setup := settings{service: "shop", lens: "lens: 1\noperations: []\n", kinds: "\n" + kinds, uris: uris}
	if cluster != nil {
		setup.toSwitch = "{deadline: 30s, maxLag: 5s}"
	}
	s := newSystem(ctx, t, setup)
	for _, name := range names {
		// Not accounts: it has a unique index.
		if cluster != nil && (name == "entries" || name == "records") {
			cluster.ShardHashed(t, s.db["v1"].Name(), name)
			cluster.ShardHashed(t, s.db["v2"].Name(), record.PhysicalName(name, 1))
			continue
		}
		if err := s.db["v1"].CreateCollection(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	ports, err := subprocess.FreePorts(4)
	if err != nil {
		t.Fatal(err)
	}
	// The proxies know the controllers by these addresses, also after a restart.
	apis := []string{fmt.Sprint("127.0.0.1:", ports[2]), fmt.Sprint("127.0.0.1:", ports[3])}
	control := func(i int) *child {
		id := fmt.Sprint("controller-", i)
		return s.adopt(spawn(t, id, program(built.path(t), []string{
			"run", "--config", s.config, "--id", id, "--api-listen", apis[i], "--operator-listen", "127.0.0.1:0",
		}, s.env))).ready(ctx)
	}
	controllers := []*child{control(0), control(1)}
	var proxies [2]*child
	addresses := []string{fmt.Sprint("127.0.0.1:", ports[0]), fmt.Sprint("127.0.0.1:", ports[1])}
	for i := range proxies {
		proxies[i] = s.proxyProcess(ctx, addresses[i], apis, names...)
	}
	// end ends a proxy or a controller, and starts another one at its address.
	end := func(i int) {
		switch name {
		case "controllers":
			s.kill(controllers[i])
			controllers[i] = control(i)
			return
		case "killed":
			proxies[i].kill()
		case "restarted":
			if code := proxies[i].terminate(proxyEnds); code != 0 {
				t.Errorf("proxy %d ended with %d after SIGTERM", i, code)
			}
		default:
			return
		}
		proxies[i] = s.proxyProcess(ctx, addresses[i], apis, names...)
	}
	parameters := ""
	if cluster != nil {
		parameters = "?retryWrites=false" // the page of the proxy says so
	}
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + strings.Join(addresses, ",") + "/" + parameters))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the test ends
	cuts := &cuts{}
	if name == "cut" {
		for i := range addresses {
			addresses[i] = cuts.before(ctx, t, addresses[i])
		}
	}
	uri := "mongodb://" + strings.Join(addresses, ",") + "/" + parameters
	part := unmodifiedPart{
		URI: uri, Database: s.db["v1"].Name(), Workers: clientWorkers, Accounts: clientAccounts, Records: clientRecords, Scan: 5, Killed: lost,
	}
	db := client.Database(part.Database)
	fillForClients(ctx, t, db)

	var clients []*unmodified
	var stops []func()
	add := func(name string, run func(u *unmodified, part unmodifiedPart) (stop func())) {
		u := &unmodified{t: t, name: name, made: map[string]int{}}
		part := part
		part.Name = name
		clients, stops = append(clients, u), append(stops, run(u, part))
	}
	for name, args := range clientPrograms(t) {
		add(name, func(u *unmodified, part unmodifiedPart) func() { return u.run(ctx, t, args, part) })
	}
	add("go", func(u *unmodified, part unmodifiedPart) func() { return u.runGo(ctx, part) })
	dumps := &dumps{stop: func() {}}
	if !lost { // they do not try again
		dumps = startDumps(ctx, t, uri, part.Database)
	}
	stop := sync.OnceFunc(func() {
		var g sync.WaitGroup
		for _, stop := range append(stops, dumps.stop) {
			g.Go(stop)
		}
		g.Wait()
	})
	defer stop()
	goesOn := func(what string) {
		t.Helper()
		for _, u := range clients {
			before := u.steps.Load()
			eventually(ctx, t, u.name+" works "+what, func() error {
				if n := u.steps.Load() - before; n < stepsPerPlace && !u.hasFailed() {
					return fmt.Errorf("%d steps", n)
				}
				return nil
			})
		}
	}
	goesOn("at the start")
	cuts.on.Store(true)
	for _, version := range []string{"v2", "v1", "v2", "v1"} {
		s.beginTo(ctx, version)
		s.await(ctx, "the switch to "+version, func(d upgradestate.Deployment) bool {
			return d.CurrentVersion == version || d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
		})
		if version == "v2" {
			end(0)
		}
		s.await(ctx, "the flip to "+version, flipped(version))
		d, err := s.record.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("switch to %s: %v ms", version, d.LastSwitch.Millis)
		// A proxy that was killed before the switch must not keep its registration.
		if held := d.LastSwitch.Millis["hold"]; version == "v1" && held >= 1000 {
			t.Errorf("the switch back to %s held writes for %d ms: it waited for a process that is gone", version, held)
		}
		all, err := db.ListCollectionNames(ctx, bson.D{})
		if slices.Sort(all); err != nil || !slices.Equal(all, names) {
			t.Errorf("at %s the collections are %v, want %v: %v", version, all, names, err)
		}
		goesOn("at " + version)
		// Not sooner: drivers repeat a command once, and it may have met the end of the other proxy.
		end(1)
		goesOn("with another proxy at " + version)
	}
	cuts.on.Store(false) // no client tries its end again
	stop()
	if n := cuts.made.Load(); name == "cut" && n == 0 {
		t.Error("no reply was cut")
	} else if n > 0 {
		t.Logf("%d replies were cut", n)
	}
	for _, u := range clients {
		t.Logf("%s: %d steps, %d cursors ended with a proxy", u.name, u.steps.Load(), u.again.Load())
		u.check(ctx, t, db)
	}
	dumps.check(ctx, t, db)
	checkMoney(ctx, t, db)
}

func fillForClients(ctx context.Context, t *testing.T, db *mongo.Database) {
	t.Helper()
	var accounts, records []any
	for i := range clientAccounts {
		accounts = append(accounts, bson.D{{Key: "_id", Value: i}, {Key: "money", Value: 100}})
	}
	for i := range clientRecords {
		records = append(records, bson.D{{Key: "_id", Value: i}, {Key: "n", Value: i}, {Key: "text", Value: strings.Repeat("x", 100)}})
	}
	for name, docs := range map[string][]any{"accounts": accounts, "records": records} {
		if _, err := db.Collection(name).InsertMany(ctx, docs); err != nil {
			t.Fatal(err)
		}
	}
}

func checkMoney(ctx context.Context, t *testing.T, db *mongo.Database) {
	t.Helper()
	var all []struct {
		Money int64 `bson:"money"`
	}
	found, err := db.Collection("accounts").Find(ctx, bson.D{})
	if err == nil {
		err = found.All(ctx, &all)
	}
	sum := int64(0)
	for _, a := range all {
		sum += a.Money
	}
	if err != nil || sum != 100*clientAccounts {
		t.Errorf("the accounts have %d in all, want %d: %v", sum, 100*clientAccounts, err)
	}
}

// check compares the data with the writes that the database acknowledged to a client.
func (u *unmodified) check(ctx context.Context, t *testing.T, db *mongo.Database) {
	t.Helper()
	if len(u.made) != clientWorkers {
		t.Errorf("%s: %d workers have told their end, want %d", u.name, len(u.made), clientWorkers)
	}
	// The last step of a worker that failed may have been made in part.
	exact := !u.failed
	for worker, steps := range u.made {
		var account, tally bson.M
		if err := db.Collection("accounts").FindOne(ctx, bson.D{{Key: "_id", Value: worker}}).Decode(&account); err != nil {
			t.Errorf("%s: %v", worker, err)
		}
		if err := db.Collection("entries").FindOne(ctx, bson.D{{Key: "_id", Value: worker + "-tally"}}).Decode(&tally); err != nil {
			t.Errorf("%s: %v", worker, err)
		}
		count := func(suffix string) int64 {
			pattern := bson.Regex{Pattern: "^" + worker + "-[0-9]+-" + suffix}
			n, err := db.Collection("entries").CountDocuments(ctx, bson.D{{Key: "_id", Value: pattern}})
			if err != nil {
				t.Errorf("%s: %v", worker, err)
			}
			return n
		}
		for what, is := range map[string][2]any{
			"counted":             {account["n"], steps},
			"found and modified":  {account["found"], steps},
			"upserted in bulks":   {tally["n"], steps},
			"made transactions":   {count("t"), steps},
			"inserted in bulks":   {count("b"), 2 * steps},
			"deleted not in bulk": {count("b0"), 0},
		} {
			if exact && fmt.Sprint(is[0]) != fmt.Sprint(is[1]) {
				t.Errorf("%s %s %v times, want %v", worker, what, is[0], is[1])
			}
		}
	}
}
