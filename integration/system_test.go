package integration_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/examples/bbs"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdcoord"
	"dbcontroller.dev/upgradestate"
)

// ring is the number of shards of a system, small so that each has something to do.
const ring = 8

// patience bounds each test. It is many times what a test takes on an idle machine.
const patience = 10 * time.Minute

// unhurried is a switch that a slow machine gets to: it does not keep the lag that is
// expected of databases of one's own.
const unhurried = "{maxLag: 3s}"

// settings are how systems differ.
type settings struct {
	dbs      []string          // versions, maybe with locations, in order; empty: v1 and v2
	uris     map[string]string // of MongoDB, by version; those left out are the shared server
	records  map[string]string // the etcd section of versions whose records are in etcd; those left out are in MongoDB
	copy     string            // the copy section; empty: starts with the upgrade
	lens     string            // text; empty: that of the packages
	kinds    string            // the kinds section; empty: packages
	service  string            // empty: the BBS service
	oneWay   bool              // v1 is not kept in sync after the flip
	decide   bool              // where the deployment begins is not configured; otherwise at the first of dbs
	etcd     []string          // endpoints; empty: the shared etcd
	etcdTLS  *etcdTLS          // of etcd; nil: plain connections
	further  string            // sections of the configuration, as text
	toSwitch string            // the switch section; empty: unhurried
	run      string            // in the names of the deployment and its databases; empty: a random one
	// encryption is the section of that name, by version, in one line; others have none.
	encryption map[string]string
}

// system is a deployment with databases of its own, and the processes that a test starts.
type system struct {
	t      *testing.T
	name   string // of the deployment
	dir    string
	config string            // file
	env    []string          // for processes
	uris   map[string]string // by version
	db     map[string]*mongo.Database
	etcd   *etcdcoord.Store
	record *deployment.Store
	http   *http.Client
	// encrypted: records of managed kinds cannot be read in the database.
	encrypted bool

	mu          sync.Mutex
	controllers []*child // that were not killed
}

const defaultLens = `lens: 1
operations:
  - rename: {from: section, to: category}
  - add: {field: schema, value: 2}
`

// newSystem makes the configuration and the databases, which are removed with the test.
func newSystem(ctx context.Context, t *testing.T, set settings) *system {
	t.Helper()
	run := set.run
	if run == "" {
		run = strings.ToLower(rand.Text()[:10])
	}
	if set.service == "" {
		set.service = bbs.Service
	}
	s := &system{
		t: t, name: "services/" + set.service + "/deployments/it-" + run, dir: t.TempDir(),
		uris: map[string]string{}, db: map[string]*mongo.Database{},
		http:      &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}},
		encrypted: set.encryption != nil,
	}
	t.Cleanup(s.http.CloseIdleConnections)
	endpoints := set.etcd
	if endpoints == nil {
		endpoints = sharedEtcd.endpoints(t)
	}
	if set.dbs == nil {
		set.dbs = []string{"v1", "v2"}
	}
	dbs := ""
	for _, v := range set.dbs {
		if where := set.records[v]; where != "" {
			dbs += fmt.Sprintf("- {namespace: it/%s/%s, backend: etcd, apiVersion: %s, etcd: %s", run, v, v, where)
			if e := set.encryption[v]; e != "" {
				dbs += ", encryption: " + e
			}
			dbs += "}\n"
			continue
		}
		if s.uris[v] = set.uris[v]; s.uris[v] == "" {
			s.uris[v] = mongotest.Server(t).URI()
		}
		version, location, moved := strings.Cut(v, "@")
		name := strings.ReplaceAll(v, "@", "_")
		s.db[v] = database(t, s.uris[v], mongotest.DatabasePrefix+"it_"+run+"_"+name)
		s.env = append(s.env, "MONGO_"+strings.ToUpper(name)+"="+s.uris[v])
		dbs += fmt.Sprintf(`- namespace: it/%s/%s
  backend: mongo
  apiVersion: %s
  disabled: %t
  mongo: {endpoint: "$(MONGO_%s)", database: %s}
`, run, name, version, set.oneWay && v == "v1", strings.ToUpper(name), s.db[v].Name())
		if moved {
			dbs += "  location: " + location + "\n"
		}
		if e := set.encryption[v]; e != "" {
			dbs += "  encryption: " + e + "\n"
		}
	}
	if set.copy == "" {
		set.copy = "{auto: false, workers: 2}"
	}
	if set.lens == "" {
		set.lens = defaultLens
	}
	if set.kinds == "" {
		set.kinds = "[{from: packages, to: packages, lens: packages.yaml}]"
	}
	if set.toSwitch == "" {
		set.toSwitch = unhurried
	}
	login, how := "", etcdcoord.Config{Endpoints: endpoints}
	if f := set.etcdTLS; f != nil {
		login = fmt.Sprintf(", caFile: %s, certFile: %s, keyFile: %s", f.CA, f.ClientCert, f.ClientKey)
		how.TLS = f.config
	}
	initial := "initialVersion: " + set.dbs[0] + "\n"
	if set.decide {
		initial = ""
	}
	s.config = s.write("config.yaml", fmt.Sprintf(`deployment: %s
sharding: {ringSize: %d}
etcd: {endpoints: ["%s"]%s}
copy: %s
switch: %s
%sdbs:
%skinds: %s
%s`, s.name, ring, strings.Join(endpoints, `", "`), login, set.copy, set.toSwitch, initial, dbs, set.kinds, set.further))
	s.write("packages.yaml", set.lens)

	var err error
	if s.etcd, err = etcdcoord.Open(ctx, how); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.etcd.Close(); err != nil {
			t.Error(err)
		}
	})
	s.record = deployment.New(s.etcd, s.name, deployment.Config{})
	return s
}

func (s *system) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// edit changes the configuration of processes that are started from now on.
func (s *system) edit(by func(text string) string) {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("config.yaml", by(string(text)))
}

func (s *system) part(p part) []string {
	s.t.Helper()
	p.Config = s.config
	text, err := json.Marshal(p)
	if err != nil {
		s.t.Fatal(err)
	}
	return append(slices.Clone(s.env), partVariable+"="+string(text))
}

// controller starts a controller that stands still at a place.
func (s *system) controller(id string, at breakPoint) *child {
	s.t.Helper()
	return s.adopt(spawn(s.t, id, command(s.t, roleController, nil, s.part(part{ID: id, Break: at}))))
}

// adopt makes a controller's API one of those that clients ask.
func (s *system) adopt(c *child) *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controllers = append(s.controllers, c)
	return c
}

// stepping starts a controller that stands still after each step of a switch that it
// enters, until it is told to go on.
func (s *system) stepping(id string) *child {
	s.t.Helper()
	return s.adopt(spawn(s.t, id, command(s.t, roleController, nil, s.part(part{ID: id, Steps: true}))))
}

// server starts an API server that holds so many writes once it is armed.
func (s *system) server(id string, hold int) *child {
	s.t.Helper()
	return spawn(s.t, id, command(s.t, roleServer, nil, s.part(part{ID: id, Hold: hold})))
}

// kill kills a controller; nobody asks it any longer.
func (s *system) kill(c *child) {
	s.t.Helper()
	c.kill()
	s.forget(c)
}

// forget has nobody ask a controller any longer.
func (s *system) forget(c *child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controllers = slices.DeleteFunc(s.controllers, func(o *child) bool { return o == c })
}

// apis are the Deployment APIs of the controllers that listen.
func (s *system) apis() []dbcontrollerv1connect.DeploymentServiceClient {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []dbcontrollerv1connect.DeploymentServiceClient
	for _, c := range s.controllers {
		if api, _ := c.addresses(); api != "" {
			out = append(out, dbcontrollerv1connect.NewDeploymentServiceClient(s.http, "http://"+api))
		}
	}
	return out
}

// begin begins the upgrade to v2, at whichever controller answers.
func (s *system) begin(ctx context.Context) {
	s.t.Helper()
	s.beginTo(ctx, "v2")
}

func (s *system) beginTo(ctx context.Context, version string) {
	s.t.Helper()
	eventually(ctx, s.t, "the upgrade to "+version+" begins", func() error {
		err := errors.New("no controller listens")
		for _, api := range s.apis() {
			if _, err = api.BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{TargetVersion: version, TotalShardsCount: ring})); err == nil {
				return nil
			}
		}
		return err
	})
}

// await waits until the record satisfies ok.
func (s *system) await(ctx context.Context, what string, ok func(upgradestate.Deployment) bool) upgradestate.Deployment {
	s.t.Helper()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var last upgradestate.Deployment
	for d := range s.record.Watch(watching) {
		if last = d; ok(d) {
			return d
		}
	}
	progress, err := s.record.Progress(context.WithoutCancel(ctx))
	s.t.Fatalf("%s did not come: %v; upgrade %+v\nprogress (%v): %+v", what, ctx.Err(), last.Upgrade, err, progress)
	return last
}

// flipped says that a version is active and nothing of the switch is left to be done.
func flipped(version string) func(upgradestate.Deployment) bool {
	return func(d upgradestate.Deployment) bool {
		_, places := upgradestate.WritePlaces(d)
		return d.CurrentVersion == version && d.Upgrade == nil && len(places) > 0
	}
}

// owners are the controllers that own shards.
func (s *system) owners(ctx context.Context) map[string]string {
	s.t.Helper()
	kvs, _, err := s.etcd.List(ctx, s.record.Root()+"/shards/")
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range kvs {
		out[strings.TrimPrefix(kv.Key, s.record.Root()+"/shards/")] = string(kv.Value)
	}
	return out
}

// leader is the controller that drives switches, or "".
func (s *system) leader(ctx context.Context) string {
	s.t.Helper()
	kv, err := s.etcd.Get(ctx, s.record.DriverKey())
	if err != nil && !errors.Is(err, coord.ErrNotFound) {
		s.t.Fatal(err)
	}
	return string(kv.Value)
}

// awaitShards waits until each controller owns its part of the ring.
func (s *system) awaitShards(ctx context.Context, controllers ...string) {
	s.t.Helper()
	eventually(ctx, s.t, "shards are spread", func() error {
		owned := map[string]int{}
		for _, id := range s.owners(ctx) {
			owned[id]++
		}
		for _, id := range controllers {
			if owned[id] != ring/len(controllers) {
				return fmt.Errorf("owned: %v", owned)
			}
		}
		return nil
	})
}

// awaitSync waits until every shard is copied, compared and follows.
func (s *system) awaitSync(ctx context.Context) {
	s.t.Helper()
	eventually(ctx, s.t, "every shard is in sync", func() error {
		ps, err := s.record.Progress(ctx)
		if err != nil {
			return err
		}
		for _, p := range ps {
			if p.State != "ready" {
				return fmt.Errorf("shard %d is %s, waits for %s; %s", p.Shard, p.State, p.WaitsFor, p.LastError)
			}
		}
		if len(ps) < ring {
			return fmt.Errorf("%d shards of %d are owned", len(ps), ring)
		}
		return nil
	})
}
