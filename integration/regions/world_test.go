package regions_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

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

// region is one deployment: an etcd, a controller, a server and databases of its own.
type region struct {
	*world
	name    string
	config  string
	control string // address of the controller
	api     string // address of the server
	v1      secretsv1connect.SecretServiceClient
	v2      secretsv2connect.SecretServiceClient
	dbs     map[string]*mongo.Database
	stop    func() // ends the server; start begins it again
}

type world struct {
	t       *testing.T
	ctx     context.Context
	running context.Context // of all processes
	http    *http.Client
	regions map[string]*region
	all     errgroup.Group
}

// start runs three regions. section is what each has in the section regions besides the regions.
func start(ctx context.Context, t *testing.T, section string) *world {
	t.Helper()
	w := &world{t: t, ctx: ctx, http: &http.Client{Transport: &http.Transport{}}, regions: map[string]*region{}}
	uri := mongotest.Server(t).URI()
	t.Setenv("MONGO_URI", uri)
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(ctx)) })
	ports, err := subprocess.FreePorts(2 * len(names))
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	running, stop := context.WithCancel(ctx)
	w.running = running
	t.Cleanup(func() {
		stop()
		w.http.CloseIdleConnections()
		if err := w.all.Wait(); err != nil {
			t.Error(err)
		}
		for _, r := range w.regions {
			for _, db := range r.dbs {
				if err := db.Drop(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i, name := range names {
		r := &region{world: w, name: name, control: at(2 * i), api: at(2*i + 1), config: filepath.Join(t.TempDir(), name+".yaml"), dbs: map[string]*mongo.Database{}}
		var text strings.Builder
		fmt.Fprintf(&text, "deployment: services/secrets/deployments/%s\nsharding: {ringSize: 4}\netcd: {endpoints: [%q]}\ndbs:\n", name, localetcd.Start(t, localetcd.Options{}))
		for _, v := range []string{"v1", "v2"} {
			namespace := fmt.Sprintf("regions%d-%s/%s", ports[0], name, v)
			fmt.Fprintf(&text, "  - {apiVersion: %s, namespace: %s, backend: mongo, mongo: {endpoint: \"$(MONGO_URI)\"}}\n", v, namespace)
			r.dbs[v] = client.Database(config.DatabaseName(namespace))
		}
		text.WriteString("initialVersion: v1\nregions:\n" + section + "  others:\n")
		for j, other := range names {
			if other != name {
				fmt.Fprintf(&text, "    - {name: %s, endpoint: \"http://%s\"}\n", other, at(2*j+1))
			}
		}
		if err := os.WriteFile(r.config, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		w.regions[name] = r
		w.all.Go(func() error {
			return r.command(running, "run", "--config", r.config, "--id", "controller", "--api-listen", r.control, "--operator-listen", "127.0.0.1:0", "--log-level", "error")
		})
		r.v1 = secretsv1connect.NewSecretServiceClient(w.http, "http://"+r.api)
		r.v2 = secretsv2connect.NewSecretServiceClient(w.http, "http://"+r.api)
		r.start(running)
	}
	for _, r := range w.regions {
		r.serves()
	}
	return w
}

// start starts the server of a region.
func (r *region) start(ctx context.Context) {
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	r.stop = func() {
		stop()
		ended <- <-ended
	}
	r.all.Go(func() error {
		err := dbcontroller.ServeArgs(serving, regions.Service(), []string{"--config", r.config, "--id", "server", "--listen", r.api, "--operator-listen", "127.0.0.1:0", "--log-level", "error"})
		ended <- err
		return err
	})
}

// serves waits until a region answers.
func (r *region) serves() {
	r.t.Helper()
	r.eventually("region "+r.name+" serves", func() error {
		_, err := r.v1.ListSecrets(r.ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{}))
		return err
	})
}

// command runs the controller's program with arguments.
func (r *region) command(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	if err := dbcontroller.ControllerArgs(ctx, regions.Service(), args, &out, &out); err != nil {
		return fmt.Errorf("%s: %w %s", args[0], err, out.String())
	}
	return nil
}

// get returns what operators see of a region.
func (r *region) get() (string, error) { return r.output("get", "deployment", "--server", r.control) }

// output returns what a command prints.
func (r *region) output(args ...string) (string, error) {
	var out bytes.Buffer
	err := dbcontroller.ControllerArgs(r.ctx, regions.Service(), args, &out, &out)
	return out.String(), err
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
