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
	"time"

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
	clientWorkers  = 4
	// stepsPerPlace is what each client does at each place before the next switch begins.
	stepsPerPlace = 40
	// stepsPerScan is the number of steps from one cursor over all records to the next. Such a cursor costs as much as
	// ten steps.
	stepsPerScan = 20
)

// commandsPerStep is the number of commands of a step in the ordinary case, without those of cursors over all records.
var commandsPerStep = map[string]int64{"go": 11, "pymongo": 11, "node": 11, "mongoose": 14}

// unmodifiedPart has the settings that the test gives to the program of one client.
type unmodifiedPart struct {
	Name     string `json:"name"`
	URI      string `json:"uri"` // of the proxies
	Database string `json:"database"`
	Workers  int    `json:"workers"`
	Accounts int    `json:"accounts"` // with the _id 0 and up, between which transactions move money
	Records  int    `json:"records"`
	Scan     int    `json:"scan"` // stepsPerScan
	// Killed: proxies are lost now and then. A cursor then ends as behind a router that is lost, and the client reads
	// again.
	Killed bool `json:"killed"`
}

// unmodified is a client that is switched without noticing. Its workers make the same steps, whatever the driver:
// they count by $inc, move money and insert in a transaction, make a bulk write with an upsert, find and modify,
// delete, and read what they wrote. Sometimes they read all records by a cursor, in many batches.
type unmodified struct {
	t       *testing.T
	name    string
	workers int
	steps   atomic.Int64
	again   atomic.Int64

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
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			own := func(nodes int) *localmongo.Server { return start(ctx, t, localmongo.Options{Nodes: nodes, Own: true}) }
			switch name {
			case "one":
				uri := own(1).URI()
				thereAndBackTwice(ctx, t, name, map[string]string{"v1": uri, "v2": uri}, nil)
			case "sharded":
				cluster := mongotest.Sharded(t)
				thereAndBackTwice(ctx, t, name, map[string]string{"v1": cluster.URI(), "v2": cluster.URI()}, cluster)
			case "two", "killed", "restarted", "cut", "controllers":
				thereAndBackTwice(ctx, t, name, map[string]string{"v1": own(1).URI(), "v2": own(1).URI()}, nil)
			case "steps":
				faultsInEachStep(ctx, t, map[string]string{"v1": own(1).URI(), "v2": own(1).URI()})
			case "primary":
				nodes := own(3)
				primaryInEachStep(ctx, t, map[string]string{"v1": nodes.URI(), "v2": nodes.URI()}, nodes)
			default:
				t.Fatalf("%s=%s: want one (cluster), two, killed, restarted, cut, controllers, sharded, steps or primary", clientsVariable, name)
			}
		})
	}
}

// behind is a system whose clients work behind two proxies.
type behind struct {
	*system
	cluster   *mongotest.Cluster // nil: replica sets
	names     []string           // of the collections
	apis      []string           // of the controllers; the proxies know them also after a restart
	addresses []string           // of the proxies
	proxies   [2]*child
	cuts      *cuts         // before the proxies; nil: none
	uri       string        // of the clients
	poll      bool          // clients in JavaScript learn only from their commands that a proxy is gone
	client    *mongo.Client // of the test, through the proxies
	db        *mongo.Database
	clients   []*unmodified
	dumps     *dumps
	began     time.Time
	stop      func() // ends the clients
}

// newBehind makes the collections. toSwitch is the section switch of the configuration; empty: unhurried.
func newBehind(ctx context.Context, t *testing.T, uris map[string]string, cluster *mongotest.Cluster, toSwitch string) *behind {
	t.Helper()
	b := &behind{cluster: cluster, names: []string{"accounts", "entries", "records", "restored"}}
	kinds := ""
	for _, name := range b.names {
		kinds += fmt.Sprintf("- {from: %s, to: %s, lens: packages.yaml}\n", name, name)
	}
	b.system = newSystem(ctx, t, settings{service: "shop", lens: "lens: 1\noperations: []\n", kinds: "\n" + kinds, uris: uris, toSwitch: toSwitch})
	for _, name := range b.names {
		// Not accounts: it has a unique index.
		if cluster != nil && (name == "entries" || name == "records") {
			cluster.ShardHashed(t, b.system.db["v1"].Name(), name)
			cluster.ShardHashed(t, b.system.db["v2"].Name(), record.PhysicalName(name, 1))
			continue
		}
		if err := b.system.db["v1"].CreateCollection(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	ports, err := subprocess.FreePorts(4)
	if err != nil {
		t.Fatal(err)
	}
	address := func(i int) string { return fmt.Sprint("127.0.0.1:", ports[i]) }
	b.addresses, b.apis = []string{address(0), address(1)}, []string{address(2), address(3)}
	return b
}

// startProxy starts a proxy, also again at its address.
func (b *behind) startProxy(ctx context.Context, i int) {
	b.t.Helper()
	b.proxies[i] = b.proxyProcess(ctx, b.addresses[i], b.apis, b.names...)
}

// parameters are those of connection strings of the proxies.
func (b *behind) parameters() string {
	if b.cluster != nil {
		return "?retryWrites=false" // the page of the proxy says so
	}
	return ""
}

// start starts the proxies and the clients. Controllers must be there. lost: proxies or servers are lost now and then.
func (b *behind) start(ctx context.Context, lost bool) {
	t := b.t
	t.Helper()
	for i := range b.proxies {
		b.startProxy(ctx, i)
	}
	var err error
	if b.client, err = mongo.Connect(options.Client().ApplyURI("mongodb://" + strings.Join(b.addresses, ",") + "/" + b.parameters())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.client.Disconnect(context.WithoutCancel(ctx)) }) // the test ends
	to := slices.Clone(b.addresses)
	if b.cuts != nil {
		for i := range to {
			to[i] = b.cuts.before(ctx, t, to[i])
		}
	}
	b.uri = "mongodb://" + strings.Join(to, ",") + "/" + b.parameters()
	part := unmodifiedPart{
		URI: b.uri, Database: b.system.db["v1"].Name(), Workers: clientWorkers, Accounts: clientAccounts, Records: clientRecords,
		Scan: stepsPerScan, Killed: lost,
	}
	b.db = b.client.Database(part.Database)
	fillForClients(ctx, t, b.db)

	var stops []func()
	add := func(name string, run func(u *unmodified, part unmodifiedPart) (stop func())) {
		u := &unmodified{t: t, name: name, workers: clientWorkers, made: map[string]int{}}
		part := part
		part.Name = name
		// If the monitor of this driver notices a lost router before a command does, the driver does not repeat the
		// command.
		if b.poll && (name == "node" || name == "mongoose") {
			part.URI += "?serverMonitoringMode=poll"
		}
		b.clients, stops = append(b.clients, u), append(stops, run(u, part))
	}
	b.began = time.Now()
	for name, args := range clientPrograms(t) {
		add(name, func(u *unmodified, part unmodifiedPart) func() { return u.run(ctx, t, args, part) })
	}
	add("go", func(u *unmodified, part unmodifiedPart) func() { return u.runGo(ctx, part) })
	b.dumps = &dumps{stop: func() {}}
	if !lost { // they do not try again
		b.dumps = startDumps(ctx, t, b.uri, part.Database)
	}
	b.stop = sync.OnceFunc(func() {
		var g sync.WaitGroup
		for _, stop := range append(stops, b.dumps.stop) {
			g.Go(stop)
		}
		g.Wait()
	})
}

// goesOn waits until each client has made some steps.
func (b *behind) goesOn(ctx context.Context, what string) {
	b.t.Helper()
	for _, u := range b.clients {
		before := u.steps.Load()
		eventually(ctx, b.t, u.name+" works "+what, func() error {
			if n := u.steps.Load() - before; n < stepsPerPlace && !u.hasFailed() {
				return fmt.Errorf("%d steps", n)
			}
			return nil
		})
	}
}

// listsAll compares the names of the collections that clients see with those of the application.
func (b *behind) listsAll(ctx context.Context, where string) {
	b.t.Helper()
	all, err := b.db.ListCollectionNames(ctx, bson.D{})
	if slices.Sort(all); err != nil || !slices.Equal(all, b.names) {
		b.t.Errorf("%s the collections are %v, want %v: %v", where, all, b.names, err)
	}
}

// end stops the clients, and compares the data with what they were told.
func (b *behind) end(ctx context.Context) {
	t := b.t
	t.Helper()
	b.stop()
	took, all := time.Since(b.began).Seconds(), 0.0
	for _, u := range b.clients {
		rate := float64(u.steps.Load()*commandsPerStep[u.name]) / took
		all += rate
		t.Logf("%s: %d steps, %.0f commands/s, %d cursors ended with a proxy", u.name, u.steps.Load(), rate, u.again.Load())
		u.check(ctx, t, b.db)
	}
	t.Logf("%.0f commands/s in all, in %.0f s", all, took)
	b.dumps.check(ctx, t, b.db)
	checkMoney(ctx, t, b.db)
}

// thereAndBackTwice runs one case. In the cases killed and restarted it ends one proxy in each switch to v2, and the
// other one after each switch. In the case controllers it kills controllers instead. In the case cut the replies of the
// proxies break off now and then.
func thereAndBackTwice(ctx context.Context, t *testing.T, name string, uris map[string]string, cluster *mongotest.Cluster) {
	t.Helper()
	toSwitch := ""
	if cluster != nil {
		toSwitch = "{deadline: 30s, maxLag: 5s}"
	}
	b := newBehind(ctx, t, uris, cluster, toSwitch)
	control := func(i int) *child {
		id := fmt.Sprint("controller-", i)
		return b.adopt(spawn(t, id, program(built.path(t), []string{
			"run", "--config", b.config, "--id", id, "--api-listen", b.apis[i], "--operator-listen", "127.0.0.1:0",
		}, b.env))).ready(ctx)
	}
	controllers := []*child{control(0), control(1)}
	if name == "cut" {
		b.cuts = &cuts{}
	}
	b.start(ctx, name == "killed" || name == "restarted" || name == "cut")
	defer b.stop()
	// end ends a proxy or a controller, and starts another one at its address.
	end := func(i int) {
		switch name {
		case "controllers":
			b.kill(controllers[i])
			controllers[i] = control(i)
			return
		case "killed":
			b.proxies[i].kill()
		case "restarted":
			if code := b.proxies[i].terminate(proxyEnds); code != 0 {
				t.Errorf("proxy %d ended with %d after SIGTERM", i, code)
			}
		default:
			return
		}
		b.startProxy(ctx, i)
	}
	b.goesOn(ctx, "at the start")
	b.cuts.turn(true)
	for _, version := range []string{"v2", "v1", "v2", "v1"} {
		b.beginTo(ctx, version)
		b.await(ctx, "the switch to "+version, func(d upgradestate.Deployment) bool {
			return d.CurrentVersion == version || d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
		})
		if version == "v2" {
			end(0)
		}
		b.await(ctx, "the flip to "+version, flipped(version))
		d, err := b.record.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("switch to %s: %v ms", version, d.LastSwitch.Millis)
		// A proxy that was killed before the switch must not keep its registration.
		if held := d.LastSwitch.Millis["hold"]; version == "v1" && held >= 1000 {
			t.Errorf("the switch back to %s held writes for %d ms: it waited for a process that is gone", version, held)
		}
		b.listsAll(ctx, "at "+version)
		b.goesOn(ctx, "at "+version)
		// Not sooner: drivers repeat a command once, and it may have met the end of the other proxy.
		end(1)
		b.goesOn(ctx, "with another proxy at "+version)
	}
	b.cuts.turn(false) // no client tries its end again
	b.stop()
	if name == "cut" {
		t.Logf("%d replies were cut", b.cuts.made.Load())
		if b.cuts.made.Load() == 0 {
			t.Error("no reply was cut")
		}
	}
	b.end(ctx)
}
