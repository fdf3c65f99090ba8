package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Collections of an application as a driver for Node.js makes them: ObjectIds, a reference,
// embedded documents and lists. In the new version users have names for keys.
const (
	applicationUsers = `lens: 1
key: {from: "{user:objectId}", to: "users/{user}"}
operations:
  - rename: {from: mail, to: email}
  - move: {from: address.city, to: city}
`
	applicationOrders = `lens: 1
operations:
  - reference: {field: userId, kind: users}
  - rename: {from: lines, to: items}
  - each: {field: items, in: list, operations: [rename: {from: count, to: quantity}]}
`
	applicationKinds = `
- {from: users, to: users, lens: packages.yaml, fence: %[1]s}
- {from: orders, to: orders, lens: orders.yaml, fence: %[1]s}
`
)

func userKey(version string, id bson.ObjectID) any {
	if version == "v1" {
		return id
	}
	return "users/" + id.Hex()
}

// userDoc is a user in a version; n is the operation that wrote it last.
func userDoc(version string, id bson.ObjectID, n int32) bson.M {
	name, mail := "user "+id.Hex(), id.Hex()+"@example.com"
	street, city := fmt.Sprintf("street %d", n), fmt.Sprintf("city %d", n)
	if version == "v1" {
		return bson.M{"_id": id, "name": name, "mail": mail, "address": bson.M{"street": street, "city": city}, "n": n}
	}
	return bson.M{"_id": userKey(version, id), "name": name, "email": mail, "address": bson.M{"street": street}, "city": city, "n": n}
}

// userSet is what an update changes.
func userSet(version string, n int32) bson.M {
	street, city := fmt.Sprintf("street %d", n), fmt.Sprintf("city %d", n)
	if version == "v1" {
		return bson.M{"n": n, "address.street": street, "address.city": city}
	}
	return bson.M{"n": n, "address.street": street, "city": city}
}

func orderDoc(version string, id, user bson.ObjectID, n int32) bson.M {
	sku := fmt.Sprintf("sku %d", n)
	if version == "v1" {
		return bson.M{"_id": id, "userId": user, "lines": bson.A{bson.M{"sku": sku, "count": n % 7}}, "n": n}
	}
	return bson.M{"_id": id, "userId": userKey(version, user), "items": bson.A{bson.M{"sku": sku, "quantity": n % 7}}, "n": n}
}

func applicationState(n int32) string { return fmt.Sprintf("operation %d", n) }

// told is one line of what a process of an application tells.
type told struct {
	Begin   string `json:"begin,omitempty"` // a write of this key to this state
	Ack     string `json:"ack,omitempty"`   // on this version
	Refused string `json:"refused,omitempty"`
	Unknown string `json:"unknown,omitempty"`
	Read    string `json:"read,omitempty"`   // this key was in this state
	Retry   string `json:"retry,omitempty"`  // a write is run again, at this version
	Asleep  bool   `json:"asleep,omitempty"` // it stands still within a write, before its first operation
	Fail    string `json:"fail,omitempty"`
	Gone    int    `json:"gone,omitempty"` // code of a read of what is no longer served
	State   string `json:"state,omitempty"`
	Version string `json:"version,omitempty"`
}

// applicationPart is what a process of an application is told. Without controllers it does
// not cooperate: it knows the old names and nothing else.
type applicationPart struct {
	Controllers []string `json:"controllers,omitempty"`
	URI         string   `json:"uri"`
	Database    string   `json:"database"`
	Name        string   `json:"name"`
	// Elsewhere has the connection strings of versions that are not at URI.
	Elsewhere map[string]string `json:"elsewhere,omitempty"`
	// Keep: it deletes nothing.
	Keep bool `json:"keep,omitempty"`
}

// What a process is ordered to stand still in, until the next line.
const (
	orderUpdate      = "update"
	orderTransaction = "transaction"
)

const applicationVariable = "APPLICATION"

// applicationProcess is a process of an application.
type applicationProcess struct {
	*child
	heard chan struct{} // closed when it tells nothing more

	mu      sync.Mutex
	acks    map[string]int // by version
	refused int
	gone    int
	reads   int
	retries int
	asleep  int
}

// applications are the processes of one application, and what they were told.
type applications struct {
	s      *system
	ledger *ledger
	start  func(part applicationPart) *exec.Cmd
	// keep: nobody deletes who may do so behind the fence, which lets deletes pass.
	keep bool
	// uris of the application's own, by version; nil: those of the system, at one place.
	uris map[string]string
}

// process starts a process.
func (a applications) process(name string, controllers ...string) *applicationProcess {
	s := a.s
	s.t.Helper()
	part := applicationPart{Controllers: controllers, URI: s.uris["v1"], Database: s.db["v1"].Name(), Name: name, Keep: a.keep}
	if a.uris != nil {
		part.URI, part.Elsewhere = a.uris["v1"], map[string]string{"v2": a.uris["v2"]}
	}
	cmd := a.start(part)
	read, write, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer write.Close()
	cmd.Stdout = write
	p := &applicationProcess{heard: make(chan struct{}), acks: map[string]int{}}
	p.child = spawn(s.t, name, cmd)
	go func() {
		defer close(p.heard)
		defer read.Close()
		for lines := bufio.NewScanner(read); lines.Scan(); {
			var line told
			if json.Unmarshal(lines.Bytes(), &line) == nil { // the last one of a process that is killed may be a part
				a.hear(p, line)
			}
		}
	}()
	return p
}

func (a applications) hear(p *applicationProcess, line told) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch l := a.ledger; {
	case line.Begin != "":
		l.Begin(line.Begin, line.State)
	case line.Ack != "":
		l.Ack(line.Ack)
		p.acks[line.Version]++
	case line.Refused != "":
		l.Refuse(line.Refused)
		p.refused++
	case line.Unknown != "":
		l.Unknown(line.Unknown)
	case line.Read != "":
		if err := l.Read(line.Read).Check(line.State, shown); err != nil {
			l.fail("%s on %s: %w", p.name, line.Version, err)
		}
		p.reads++
	case line.Retry != "":
		p.retries++
	case line.Asleep:
		p.asleep++
	case line.Gone != 0:
		p.gone++
	case line.Fail != "":
		l.fail("%s: %s", p.name, line.Fail)
	}
}

// counts are how many writes were acknowledged on a version, and refused, and how many reads
// were told that the version is gone.
func (p *applicationProcess) counts(version string) (acks, refused, gone int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acks[version], p.refused, p.gone
}

// goesOn waits until a process has written some more on a version.
func (p *applicationProcess) goesOn(ctx context.Context, version string) {
	p.t.Helper()
	before, _, _ := p.counts(version)
	eventually(ctx, p.t, p.name+" writes on "+version, func() error {
		if now, _, _ := p.counts(version); now < before+5 {
			return errTooFew
		}
		return nil
	})
}

// isTold waits until a process that does not cooperate has been refused some more.
func (p *applicationProcess) isTold(ctx context.Context, gone bool) {
	p.t.Helper()
	_, before, _ := p.counts("")
	eventually(ctx, p.t, p.name+" is refused", func() error {
		if _, now, reads := p.counts(""); now < before+5 || gone && reads == 0 {
			return errTooFew
		}
		return nil
	})
}

// fallsAsleep stops a process that has a write in its hand, an update or a transaction, and has sent nothing of it.
func (p *applicationProcess) fallsAsleep(ctx context.Context, in string) {
	p.t.Helper()
	before := p.count(&p.asleep)
	p.order(in)
	eventually(ctx, p.t, p.name+" stands still within its "+in, func() error {
		if p.count(&p.asleep) == before {
			return errTooFew
		}
		return nil
	})
	p.signal(ctx, syscall.SIGSTOP)
}

// wakes has it go on, where its write is refused, and waits until it is made where the data is.
func (p *applicationProcess) wakes(ctx context.Context) {
	p.t.Helper()
	before := p.count(&p.retries)
	p.signal(ctx, syscall.SIGCONT)
	p.order("go on")
	eventually(ctx, p.t, p.name+" does its write again", func() error {
		if p.count(&p.retries) == before {
			return errTooFew
		}
		return nil
	})
}

func (p *applicationProcess) count(of *int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *of
}

// end asks a process to end and waits for all that it told.
func (p *applicationProcess) end(ctx context.Context) {
	p.t.Helper()
	if code := p.terminate(patience); code != 0 {
		p.t.Errorf("%s ends with code %d", p.name, code)
	}
	<-p.heard
}

// twoRoundTrips takes an application of four processes through two round trips, forward once
// more, and completes the old version behind views: one process sleeps through switches, a
// rollback too, with a write in its hand that the fence refuses, one is killed,
// one does not cooperate, and a controller is killed. No acknowledged write is lost or there
// twice, and no read finds nothing where there is something.
func twoRoundTrips(t *testing.T, fence record.FenceClass, start func(part applicationPart) *exec.Cmd) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{service: "shop", lens: applicationUsers, kinds: fmt.Sprintf(applicationKinds, fence)})
	s.write("orders.yaml", applicationOrders)
	a := applications{s: s, ledger: newLedger("record"), start: start, keep: fence == record.FenceValidator}
	a.fill(ctx)
	first, second := s.controller("first", breakPoint{}).ready(ctx), s.controller("second", breakPoint{}).ready(ctx)
	api1, _ := first.addresses()
	api2, _ := second.addresses()
	const nobody = "127.0.0.1:1"
	one, asleep := a.process("one", api1, nobody, api2), a.process("asleep", api2, api1)
	dies, alone := a.process("dies", nobody, api1, api2), a.process("alone")
	for _, p := range []*applicationProcess{one, asleep, dies, alone} {
		p.goesOn(ctx, "v1")
	}
	cooperate := []*applicationProcess{one, asleep, dies}
	var d upgradestate.Deployment
	for i, to := range []string{"v2", "v1", "v2", "v1", "v2"} {
		sleeps := i != 1
		switch {
		case i == 1:
			dies.kill()
			cooperate[2] = a.process("replaces", api1, api2)
			cooperate[2].goesOn(ctx, "v2")
			s.awaitClients(ctx, 3)
		case i == 3:
			s.kill(first)
			asleep.fallsAsleep(ctx, orderUpdate) // through a rollback
		default:
			asleep.fallsAsleep(ctx, []string{orderTransaction, orderUpdate, orderTransaction}[i/2])
		}
		s.beginTo(ctx, to)
		d = s.await(ctx, fmt.Sprintf("flip %d, to %s", i+1, to), flipped(to))
		t.Logf("flip %d to %s: phases %v", i+1, to, d.LastSwitch.Millis)
		if sleeps {
			one.goesOn(ctx, to)
			asleep.wakes(ctx)
		}
		for _, p := range cooperate {
			p.goesOn(ctx, to)
		}
		if to == "v1" {
			alone.goesOn(ctx, "v1")
		} else {
			alone.isTold(ctx, false)
		}
	}
	// Where names are free for a moment then, one that does not cooperate finds that.
	if fence == record.FenceView {
		s.complete(ctx, d, "v1", 0)
		s.await(ctx, "the end of v1", func(d upgradestate.Deployment) bool { return slices.Contains(d.Retired, "v1") })
		alone.isTold(ctx, true)
	}
	for _, p := range append(cooperate, alone) {
		p.end(ctx)
	}
	servers, err := s.record.Servers(ctx)
	if err != nil || len(servers) > 0 {
		t.Errorf("after they ended %d are registered: %v, %v", len(servers), servers, err)
	}
	<-dies.heard
	a.check(ctx, "v2", one, asleep, dies, alone)
}

// check compares what processes were told with what there is.
func (a applications) check(ctx context.Context, version string, processes ...*applicationProcess) {
	t := a.s.t
	t.Helper()
	seen, err := a.look(ctx, version)
	if err != nil {
		t.Fatal(err)
	}
	a.s.report(a.ledger.check("MongoDB", seen))
	a.s.report(a.ledger.failures())
	reads := 0
	for _, p := range processes {
		if p.reads == 0 {
			t.Errorf("%s has read nothing", p.name)
		}
		reads += p.reads
	}
	t.Logf("%d records, %d reads", len(seen), reads)
}

// awaitClients waits until so many clients are registered.
func (s *system) awaitClients(ctx context.Context, n int) {
	s.t.Helper()
	eventually(ctx, s.t, "the end of a dead process's registration", func() error {
		servers, err := s.record.Servers(ctx)
		if err == nil && len(servers) != n {
			err = fmt.Errorf("%d are registered", len(servers))
		}
		return err
	})
}

// fill makes the collections, with some documents that nobody writes.
func (a applications) fill(ctx context.Context) {
	a.s.t.Helper()
	var users, orders []any
	for range 50 {
		user, order := bson.NewObjectID(), bson.NewObjectID()
		users, orders = append(users, userDoc("v1", user, 0)), append(orders, orderDoc("v1", order, user, 0))
		a.ledger.Put("users/"+user.Hex(), applicationState(0))
		a.ledger.Put("orders/"+order.Hex(), applicationState(0))
	}
	for kind, docs := range map[string][]any{"users": users, "orders": orders} {
		if _, err := a.s.db["v1"].Collection(kind).InsertMany(ctx, docs); err != nil {
			a.s.t.Fatal(err)
		}
	}
}

// look sees all documents of a version.
func (a applications) look(ctx context.Context, version string) (workload.Seen, error) {
	seen := workload.Seen{}
	all := func(kind string, see func(doc bson.M, n int32) (key string, want bson.M)) error {
		cursor, err := a.s.db[version].Collection(kind).Find(ctx, bson.D{})
		if err != nil {
			return err
		}
		var docs []bson.M
		if err := cursor.All(ctx, &docs); err != nil {
			return err
		}
		for _, doc := range docs {
			n, _ := doc["n"].(int32)
			key, want := see(doc, n)
			state := applicationState(n)
			if !same(doc, want) {
				state += fmt.Sprintf(" in %v", doc)
			}
			seen.Add(key, state)
		}
		return nil
	}
	hex := func(v any) bson.ObjectID {
		if id, ok := v.(bson.ObjectID); ok {
			return id
		}
		text, _ := v.(string)
		id, _ := bson.ObjectIDFromHex(text[min(len(text), len("users/")):])
		return id
	}
	if err := all("users", func(doc bson.M, n int32) (string, bson.M) {
		id := hex(doc["_id"])
		return "users/" + id.Hex(), userDoc(version, id, n)
	}); err != nil {
		return nil, err
	}
	return seen, all("orders", func(doc bson.M, n int32) (string, bson.M) {
		id := hex(doc["_id"])
		return "orders/" + id.Hex(), orderDoc(version, id, hex(doc["userId"]), n)
	})
}

// same compares documents, whatever the order of their fields.
func same(a, b bson.M) bool {
	normal := func(m bson.M) (out bson.M) {
		text, err := bson.Marshal(m)
		if err == nil {
			err = bson.Unmarshal(text, &out)
		}
		if err != nil {
			return bson.M{"error": err.Error()}
		}
		for k, v := range out {
			out[k] = unordered(v)
		}
		return out
	}
	return reflect.DeepEqual(normal(a), normal(b))
}

func unordered(v any) any {
	switch v := v.(type) {
	case bson.D:
		m := bson.M{}
		for _, e := range v {
			m[e.Key] = unordered(e.Value)
		}
		return m
	case bson.A:
		for i := range v {
			v[i] = unordered(v[i])
		}
	}
	return v
}

// TestGoApplication: an application in Go, with package appclient.
func TestGoApplication(t *testing.T) {
	t.Parallel()
	twoRoundTrips(t, record.FenceView, inGo(t))
}

// TestNodeApplication: an application in JavaScript, with clients/node and the official driver.
func TestNodeApplication(t *testing.T) {
	t.Parallel()
	twoRoundTrips(t, record.FenceView, inNode(t))
}

// TestApplicationsBehindValidators: processes in both languages, where the database refuses by validators.
func TestApplicationsBehindValidators(t *testing.T) {
	t.Parallel()
	twoRoundTrips(t, record.FenceValidator, inBoth(t))
}

// TestApplicationsBehindAWriteBlock: the block stands for all of a cluster, so that each version
// has one of its own, and processes in both languages change their servers with each switch.
func TestApplicationsBehindAWriteBlock(t *testing.T) {
	t.Parallel()
	start := inBoth(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	uris, own := map[string]string{}, map[string]string{}
	for _, v := range []string{"v1", "v2"} {
		uris[v] = authServer(ctx, t).URI()
		own[v] = withLogin(uris[v], "shop:"+secret)
	}
	s := newSystem(ctx, t, settings{service: "shop", lens: applicationUsers, kinds: fmt.Sprintf(applicationKinds, record.FenceWriteBlock), uris: uris})
	s.write("orders.yaml", applicationOrders)
	for _, v := range []string{"v1", "v2"} {
		roles := bson.A{bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: s.db[v].Name()}}}
		if err := s.db[v].Client().Database("admin").RunCommand(ctx, bson.D{
			{Key: "createUser", Value: "shop"}, {Key: "pwd", Value: secret}, {Key: "roles", Value: roles},
		}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a := applications{s: s, ledger: newLedger("record"), start: start, uris: own}
	a.fill(ctx)
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	one, asleep, alone := a.process("one", api), a.process("asleep", api), a.process("alone")
	for _, p := range []*applicationProcess{one, asleep, alone} {
		p.goesOn(ctx, "v1")
	}
	for _, to := range []string{"v2", "v1"} {
		asleep.fallsAsleep(ctx, map[string]string{"v2": orderUpdate, "v1": orderTransaction}[to])
		s.beginTo(ctx, to)
		d := s.await(ctx, "the flip to "+to, flipped(to))
		t.Logf("flip to %s: phases %v", to, d.LastSwitch.Millis)
		one.goesOn(ctx, to)
		asleep.wakes(ctx)
		asleep.goesOn(ctx, to)
		if to == "v1" {
			alone.goesOn(ctx, "v1")
		} else {
			alone.isTold(ctx, false)
		}
	}
	for _, p := range []*applicationProcess{one, asleep, alone} {
		p.end(ctx)
	}
	a.check(ctx, "v1", one, asleep, alone)
}

func inGo(t *testing.T) func(part applicationPart) *exec.Cmd {
	return func(part applicationPart) *exec.Cmd {
		return command(t, self(t), roleApplication, nil, []string{applicationVariable + "=" + part.text(t)})
	}
}

func inNode(t *testing.T) func(part applicationPart) *exec.Cmd {
	t.Helper()
	script := nodeClient(t)
	return func(part applicationPart) *exec.Cmd {
		cmd := exec.Command("node", script)
		cmd.Env = append(os.Environ(), applicationVariable+"="+part.text(t))
		return cmd
	}
}

// inBoth starts processes in one language and the other by turns.
func inBoth(t *testing.T) func(part applicationPart) *exec.Cmd {
	t.Helper()
	one, other := inGo(t), inNode(t)
	return func(part applicationPart) *exec.Cmd {
		one, other = other, one
		return one(part)
	}
}

func (p applicationPart) text(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// nodeClient installs what the client needs, and returns the application's script.
func nodeClient(t *testing.T) string {
	t.Helper()
	const folder = "../clients/node"
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: this test needs Node.js 20.19 or later, with npm", err)
		}
	}
	nodeOnce.Do(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			errNode = fmt.Errorf("npm ci in clients/node: %w\n%s", err, out)
		}
	})
	if errNode != nil {
		t.Fatal(errNode)
	}
	return folder + "/scenario/application.js"
}

var (
	nodeOnce sync.Once
	errNode  error
)

// TestNodeClient runs the client's own tests.
func TestNodeClient(t *testing.T) {
	t.Parallel()
	nodeClient(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "test")
	cmd.Dir = "../clients/node"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("npm test: %v\n%s", err, out)
	}
}

func connectApplication(uri, name string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(uri).SetAppName(name))
}
