package app

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/program/databases"
)

const (
	controllerCount = 2
	serverCount     = 2
	// startPatience is the time for processes to become ready, on a busy machine.
	startPatience = time.Minute
)

// startBackends finds or starts MongoDB and etcd, and writes the demo's files.
func (r *run) startBackends(ctx context.Context) error {
	var err error
	if r.Keep {
		r.backends, r.host, err = keptBackends(ctx, r.Options, r.layout)
	} else {
		r.backends, err = startBackends(ctx, r.layout.dir, nil)
	}
	if err != nil {
		return err
	}
	if r.mongo, err = r.backends.connect(); err != nil {
		return err
	}
	if err := r.layout.write(r.backends.Etcd); err != nil {
		return err
	}
	// Load the files as the processes will, with the same variable for the connection string.
	for _, d := range r.deployments() {
		d.config, err = config.Load(r.layout.file(d.file), func(name string) (string, bool) {
			return r.backends.URI, name == uriVariable
		})
		if err != nil {
			return err
		}
	}
	r.say("MongoDB %s and etcd run; logs are in %s", r.backends.Version, r.layout.dir)
	return nil
}

// startProcesses starts controllers and servers, and waits until all are ready.
func (r *run) startProcesses(ctx context.Context) error {
	start := func(d *deployed, name, binary string, args ...string) (*child, error) {
		args = append(args, "--config", r.layout.file(d.file), "--id", name, "--operator-listen", "127.0.0.1:0")
		return spawn(name, binary, args, r.environment(), r.layout.file(name+".log"), r.Keep)
	}
	for _, d := range r.deployments() {
		for i := range controllerCount {
			c, err := start(d, fmt.Sprintf("%s-controller-%d", d.name, i+1), r.Binary, ControllerCommand, "run", "--api-listen", "127.0.0.1:0")
			if err != nil {
				return err
			}
			d.controllers = append(d.controllers, c)
		}
	}
	for i := range serverCount {
		s, err := start(r.services, fmt.Sprintf("server-%d", i+1), r.ServerBinary, "--listen", "127.0.0.1:0", "--converge", "1s")
		if err != nil {
			return err
		}
		r.servers = append(r.servers, s)
	}
	// All start at once; waiting for each in turn would take several times as long.
	g, gctx := errgroup.WithContext(ctx)
	for _, c := range slices.Concat(r.services.controllers, r.application.controllers, r.servers) {
		g.Go(func() error { return c.ready(gctx, startPatience) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	r.say("%d controllers each of the services and the application, and %d servers are ready", controllerCount, len(r.servers))
	r.say("watch both in a browser: http://%s/ui/", r.services.controllers[0].api)
	return r.startProxies(ctx)
}

// environment returns the variables of the processes.
func (r *run) environment() []string { return []string{uriVariable + "=" + r.backends.URI} }

// cleanUp stops and removes everything that the demo made, unless it is kept. A failed step does
// not skip the later ones.
func (r *run) cleanUp(ctx context.Context, kept bool) {
	complain := func(err error) {
		if err != nil {
			fmt.Fprintln(r.Stderr, "clean up:", err)
		}
	}
	// Connections that are still open would delay the end of the proxies.
	if r.app != nil {
		complain(disconnect(ctx, r.app))
	}
	if !kept {
		// Servers and controllers stop before the databases are dropped, or they would create
		// collections again. Proxies stop before their controllers, where they deregister.
		stopAll(slices.Concat(r.servers, r.proxies))
		stopAll(slices.Concat(r.services.controllers, r.application.controllers))
		if r.mongo != nil {
			complain(r.backends.drop(ctx, r.mongo, r.layout.databases()...))
		}
	}
	r.http.CloseIdleConnections()
	if r.etcd != nil {
		complain(r.etcd.Close())
	}
	if r.mongo != nil {
		complain(disconnect(ctx, r.mongo))
	}
	if kept {
		return
	}
	if r.backends != nil {
		complain(r.backends.stop(ctx))
	}
	if r.host != nil {
		r.host.stop()
	}
	complain(os.RemoveAll(r.layout.dir))
}

// disconnect closes the connections of a client, even if an interrupt has ended ctx.
func disconnect(ctx context.Context, c *mongo.Client) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return c.Disconnect(closing)
}

func stopAll(cs []*child) {
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(c.stop)
	}
	wg.Wait()
}

// lookAround prints commands to examine a demo that is kept.
func (r *run) lookAround() {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	api := r.services.controllers[0].api
	b.WriteString("\nEverything is left running. Look around:\n")
	for _, cmd := range []string{"get deployment", "watch deployment", "parked"} {
		line("%s %s %s --server %s", r.Binary, ControllerCommand, cmd, api)
	}
	line("%s %s get deployment --server %s   # of the application", r.Binary, ControllerCommand, r.application.controllers[0].api)
	line("curl -s -H 'Content-Type: application/json' -d '{}' http://%s/dbcontroller.v1.DeploymentService/GetDeployment", api)
	line("curl -s -H 'Content-Type: application/json' -d '{\"pageSize\": 2}' http://%s/bbs.v1.DesiredLRPService/ListDesiredLRPs", r.servers[0].api)
	line("curl -s -H 'Content-Type: application/json' -d '{\"pageSize\": 2}' http://%s/bbs.v2.LRPDeploymentService/ListLRPDeployments", r.servers[1].api)
	line("curl -s -H 'Content-Type: application/json' -d '{\"pageSize\": 2}' http://%s/secrets.v1.SecretService/ListSecrets", r.servers[0].api)
	line("curl -s -H 'Content-Type: application/json' -d '{\"pageSize\": 2}' http://%s/secrets.v2.SecretService/ListSecrets", r.servers[1].api)
	for _, c := range r.children() {
		if c.operator != "" {
			line("curl -s http://%s/metrics   # %s, process %d", c.operator, c.name, c.Pid())
		}
	}
	for _, d := range r.deployments() {
		for _, v := range []string{oldVersion, newVersion} {
			db, _ := d.config.DB(v)
			line("%s   # %s of the %s", databases.Shell(db), v, d.name)
		}
	}
	line("mongosh 'mongodb://%s/%s'   # as the application sees it, through the proxies", strings.Join(addresses(r.proxies), ","), r.layout.oldDB)
	line("etcdctl --endpoints %s get --prefix '' --keys-only   # both deployments", strings.Join(r.backends.Etcd, ","))
	line("ls %s   # configurations, lens, logs", r.layout.dir)
	pids := make([]string, 0, 9)
	for _, c := range r.children() {
		pids = append(pids, fmt.Sprint(c.Pid()))
	}
	line("kill %s   # ends all, and removes databases and folder", strings.Join(pids, " "))
	r.printing.Lock()
	defer r.printing.Unlock()
	fmt.Fprint(r.people, b.String())
}
