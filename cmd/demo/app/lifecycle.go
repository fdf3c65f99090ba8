package app

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/config"
)

const (
	controllerCount = 2
	serverCount     = 2
	// startPatience is how long processes have to become ready, on a busy machine.
	startPatience = time.Minute
)

// startBackends finds or starts MongoDB and etcd, and writes the files of the demo.
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
	r.config, err = config.Load(r.layout.file("config.yaml"), func(name string) (string, bool) {
		return r.backends.URI, name == uriVariable
	})
	if err != nil {
		return err
	}
	r.say("MongoDB %s and etcd run; logs are in %s", r.backends.Version, r.layout.dir)
	return nil
}

// startProcesses starts controllers and servers, and waits until all are ready.
func (r *run) startProcesses(ctx context.Context) error {
	env := []string{uriVariable + "=" + r.backends.URI}
	start := func(name, binary string, args ...string) (*child, error) {
		args = append(args, "--config", r.layout.file("config.yaml"), "--id", name, "--operator-listen", "127.0.0.1:0")
		return spawn(name, binary, args, env, r.layout.file(name+".log"), r.Keep)
	}
	for i := range controllerCount {
		c, err := start(fmt.Sprintf("controller-%d", i+1), r.Binary, ControllerCommand, "run", "--api-listen", "127.0.0.1:0")
		if err != nil {
			return err
		}
		r.controllers = append(r.controllers, c)
	}
	for i := range serverCount {
		s, err := start(fmt.Sprintf("server-%d", i+1), r.ServerBinary, "--listen", "127.0.0.1:0")
		if err != nil {
			return err
		}
		r.servers = append(r.servers, s)
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, c := range append(r.controllers[:controllerCount:controllerCount], r.servers...) {
		g.Go(func() error { return c.ready(gctx, startPatience) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	r.say("%d controllers and %d servers are ready", len(r.controllers), len(r.servers))
	return nil
}

// cleanUp stops and removes what the demo made, unless it is kept. It goes on after
// failures: what can be removed is.
func (r *run) cleanUp(ctx context.Context, kept bool) {
	complain := func(err error) {
		if err != nil {
			fmt.Fprintln(r.Stderr, "clean up:", err)
		}
	}
	if !kept {
		stopAll(r.servers)
		stopAll(r.controllers)
		if r.mongo != nil {
			complain(r.backends.drop(ctx, r.mongo, r.layout.oldDB, r.layout.newDB))
		}
	}
	r.http.CloseIdleConnections()
	if r.etcd != nil {
		complain(r.etcd.Close())
	}
	if r.mongo != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		complain(r.mongo.Disconnect(closing))
		cancel()
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

func stopAll(cs []*child) {
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(c.stop)
	}
	wg.Wait()
}

// lookAround says how to go on with a demo that is kept.
func (r *run) lookAround() {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	api := r.controllers[0].api
	b.WriteString("\nEverything is left running. Look around:\n")
	for _, cmd := range []string{"get deployment", "watch deployment", "parked"} {
		line("%s %s %s --server %s", r.Binary, ControllerCommand, cmd, api)
	}
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
	for _, v := range []string{oldVersion, newVersion} {
		if db, ok := r.config.DB(v); ok {
			line("mongosh '%s'   # %s", db.Location(), v)
		}
	}
	line("ls %s   # configuration, lens, logs", r.layout.dir)
	pids := make([]string, 0, 5)
	for _, c := range r.children() {
		pids = append(pids, fmt.Sprint(c.Pid()))
	}
	line("kill %s   # ends all, and removes databases and folder", strings.Join(pids, " "))
	r.printing.Lock()
	defer r.printing.Unlock()
	fmt.Fprint(r.people, b.String())
}
