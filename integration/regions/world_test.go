package regions_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"dbcontroller.dev"
	"dbcontroller.dev/config"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	"dbcontroller.dev/gen/secrets/v2/secretsv2connect"
	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/integration/regions"
	"dbcontroller.dev/integration/subprocess"
)

func TestMain(m *testing.M) {
	if play() {
		return
	}
	code := mongotest.Run(m)
	localetcd.Remove()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// names of the regions.
var names = []string{"us", "eu", "asia"}

// region is one deployment: an etcd, a controller and servers as processes, and databases of its own.
type region struct {
	*world
	name       string
	config     string   // file
	others     string   // section of the configuration
	control    string   // address of the controller
	operators  []string // addresses of the servers' pages
	controller *program
	servers    []*program
	apis       []secretsv1connect.SecretServiceClient // of each server
	v1         secretsv1connect.SecretServiceClient   // of the first one
	v2         secretsv2connect.SecretServiceClient
	dbs        map[string]*mongo.Database
}

type world struct {
	t       *testing.T
	ctx     context.Context
	running context.Context // of all processes
	http    *http.Client
	regions map[string]*region
	lines   map[string][]*line // to and from a region, by its name; nil: they are direct
}

// start runs three regions with one server each. section is what each has in the section regions besides
// the regions.
func start(ctx context.Context, t *testing.T, section string) *world {
	t.Helper()
	return startWith(ctx, t, 1, section)
}

// startWith is start with one or two servers each. With two there are lines between the regions. Regions
// named by plain begin without the section regions.
func startWith(ctx context.Context, t *testing.T, servers int, section string, plain ...string) *world {
	t.Helper()
	return startOn(ctx, t, mongotest.Server(t).URI(), mongotest.Client(t), servers, section, plain...)
}

// startOn is startWith on a MongoDB server, with a client of it.
func startOn(ctx context.Context, t *testing.T, uri string, client *mongo.Client, servers int, section string, plain ...string) *world {
	t.Helper()
	w := &world{t: t, ctx: ctx, running: ctx, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}, regions: map[string]*region{}, lines: map[string][]*line{}}
	t.Setenv("MONGO_URI", uri)
	each := 1 + 2*servers
	ports, err := subprocess.FreePorts(each * len(names))
	if err != nil {
		t.Fatal(err)
	}
	at := func(region, n int) string { return fmt.Sprintf("127.0.0.1:%d", ports[each*region+n]) }
	t.Cleanup(func() {
		w.http.CloseIdleConnections()
		for _, r := range w.regions {
			for _, db := range r.dbs {
				if err := db.Drop(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i, name := range names {
		dir := t.TempDir()
		r := &region{world: w, name: name, control: at(i, 0), config: filepath.Join(dir, name+".yaml"), dbs: map[string]*mongo.Database{}}
		var text strings.Builder
		fmt.Fprintf(&text, "deployment: services/secrets/deployments/%s\nsharding: {ringSize: 4}\netcd: {endpoints: [%q]}\ndbs:\n", name, localetcd.Start(t, localetcd.Options{}))
		for _, v := range []string{"v1", "v2"} {
			namespace := fmt.Sprintf("regions%d-%s/%s", ports[0], name, v)
			fmt.Fprintf(&text, "  - {apiVersion: %s, namespace: %s, backend: mongo, mongo: {endpoint: \"$(MONGO_URI)\"}}\n", v, namespace)
			r.dbs[v] = client.Database(config.DatabaseName(namespace))
		}
		text.WriteString("initialVersion: v1\n")
		r.others = "regions:\n" + section + "  others:\n"
		for j, other := range names {
			if other == name {
				continue
			}
			to := at(j, 1)
			if servers > 1 {
				network := newLine(t, to, at(j, 2))
				w.lines[name], w.lines[other] = append(w.lines[name], network), append(w.lines[other], network)
				to = network.addr()
			}
			r.others += fmt.Sprintf("    - {name: %s, endpoint: \"http://%s\"}\n", other, to)
		}
		controls, serves := controllerRole, serverRole
		if slices.Contains(plain, name) {
			controls, serves = plainController, plainServer
		} else {
			text.WriteString(r.others)
		}
		if err := os.WriteFile(r.config, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		w.regions[name] = r
		process := func(id, role string, args ...string) *program {
			return run(t, id+" of "+name, role, filepath.Join(dir, id+".log"), append(args, "--id", id, "--config", r.config, "--log-level", "error")...)
		}
		r.controller = process("controller", controls, "run", "--api-listen", r.control, "--operator-listen", "127.0.0.1:0")
		for n := range servers {
			r.operators = append(r.operators, at(i, 1+servers+n))
			r.servers = append(r.servers, process(fmt.Sprintf("server-%d", n), serves, "--listen", at(i, 1+n), "--operator-listen", r.operators[n]))
			r.apis = append(r.apis, secretsv1connect.NewSecretServiceClient(w.http, "http://"+at(i, 1+n)))
		}
		r.v1, r.v2 = r.apis[0], secretsv2connect.NewSecretServiceClient(w.http, "http://"+at(i, 1))
	}
	for _, r := range w.regions {
		r.serves()
	}
	return w
}

// serves waits until all servers of a region answer.
func (r *region) serves() {
	r.t.Helper()
	r.eventually("region "+r.name+" serves", func() error {
		for _, server := range r.apis {
			if _, err := server.ListSecrets(r.ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{})); err != nil {
				return err
			}
		}
		return nil
	})
}

// stop ends the first server of a region, and start begins it again.
func (r *region) stop() { r.servers[0].stop() }

func (r *region) start(context.Context) { r.servers[0].start() }

// command runs the controller's program with arguments.
func (r *region) command(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	if err := dbcontroller.ControllerArgs(ctx, regions.Service(), args, &out, &out); err != nil {
		return fmt.Errorf("%s: %w %s", args[0], err, out.String())
	}
	return nil
}

// begin begins an upgrade, or a rollback to v1.
func (r *region) begin(to string) {
	r.t.Helper()
	args := []string{"begin-upgrade", "deployment", "--target-version", to}
	if to == "v1" {
		args = []string{"rollback"}
	}
	// The controller may have been killed a moment ago.
	r.eventually(fmt.Sprintf("%s is asked for %s", r.name, to), func() error {
		return r.command(r.ctx, append(args, "--server", r.control)...)
	})
}

// servedBy waits until all servers of a region answer by a version.
func (r *region) servedBy(version string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%s is served by %s", r.name, version), func() error {
		for _, server := range r.apis {
			res, err := server.ListSecrets(r.ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{PageSize: 1}))
			if err != nil {
				return err
			}
			if now := res.Header().Get(dbcontroller.VersionHeader); now != version {
				return fmt.Errorf("it is served by %s", now)
			}
		}
		return nil
	})
}

// get returns what operators see of a region.
func (r *region) get() (string, error) { return r.output("get", "deployment") }

// output returns what a command prints.
func (r *region) output(args ...string) (string, error) {
	var out bytes.Buffer
	if err := dbcontroller.ControllerArgs(r.ctx, regions.Service(), append(args, "--server", r.control), &out, &out); err != nil {
		return out.String(), fmt.Errorf("%s: %w %s", args[0], err, out.String())
	}
	return out.String(), nil
}

func (w *world) eventually(what string, try func() error) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}
