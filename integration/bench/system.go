package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/config"
	"dbcontroller.dev/integration/subprocess"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/program/dbcontroller/app"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

const (
	ring    = 16
	service = "bench"
)

// spec describes a deployment.
type spec struct {
	from, to    *cluster
	database    string          // of the source
	kinds       map[string]bool // fixed-name collections; empty: one managed kind, kindName
	lens        string          // for all of them
	controllers int             // 0 means 1
	auto        bool            // copy before an upgrade begins
	updates     string          // section of the configuration
	// inEtcd has the prefixes of the versions whose records are in etcd, at the endpoint etcd.
	inEtcd map[string]string
	etcd   string
	// far is the time that a request to the target and its reply take on the way; 0: no relay.
	far time.Duration
	// inside: the controllers run in this process, over an in-memory coordination store.
	inside bool
	wrap   func(version string, ns record.Namespace) record.Namespace // needs inside
}

// system is a deployment with its controllers.
type system struct {
	spec
	bench    *bench
	target   string // database of the target
	coord    coord.Store
	store    *deployment.Store
	registry *transform.Registry
	latest   atomic.Pointer[upgradestate.Deployment]

	uris      map[string]string   // of the versions, as controllers and proxies reach them
	line      *subprocess.Process // to the target; nil: it is near
	processes []*subprocess.Process
	logs      []string
	stop      context.CancelFunc
	running   errgroup.Group // the inside controllers, and the watch of the record
}

// configuration is the configuration file. The throttle is off: unless a scenario measures
// otherwise, the question is how fast a copy can be, not how well it yields to clients.
const configuration = `
deployment: %s
sharding: {ringSize: %d}
%scopy: {auto: %t, workers: %d, throttle: "off"}
switch: {automatic: true, maxLag: 3s, deadline: 60s}
initialVersion: v1
operator: {listen: "127.0.0.1:0"}
api: {listen: "127.0.0.1:0"}
dbs:
%s%s%s`

// place returns the configuration entry of a version.
func (sp spec) place(version, endpoint, database string) string {
	if prefix, ok := sp.inEtcd[version]; ok {
		return fmt.Sprintf("- {namespace: bench/%[1]s, backend: etcd, apiVersion: %[1]s, etcd: {endpoints: [%[2]q], prefix: %[3]s}}\n", version, sp.etcd, prefix)
	}
	return fmt.Sprintf("- {namespace: bench/%[1]s, backend: mongo, apiVersion: %[1]s, mongo: {endpoint: $(%[2]s), database: %[3]s}}\n", version, endpoint, database)
}

// deploy starts the controllers. It returns when they own all shards and an upgrade can begin. The
// source's collections must already exist.
func (b *bench) deploy(ctx context.Context, sp spec) (_ *system, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s := &system{spec: sp, bench: b, target: scratch("new"), coord: b.coord}
	s.controllers = cmp.Or(s.controllers, 1)
	// A name of its own, so that nothing of an earlier deployment in etcd is reused.
	name := "services/" + service + "/deployments/" + strings.ReplaceAll(s.target, "_", "-")
	etcd := fmt.Sprintf("etcd: {endpoints: [%q]}\n", b.etcd.Endpoints()[0])
	if s.inside {
		// Inside, etcd would only add its own time to this process.
		s.coord, etcd = memcoord.New(), ""
	}
	folder := filepath.Join(b.dir, s.target)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	kinds := ""
	for _, k := range slices.Sorted(maps.Keys(s.kinds)) {
		kinds += fmt.Sprintf("- {from: %[1]s, to: %[1]s, lens: lens.yaml}\n", k)
	}
	if kinds != "" {
		kinds = "kinds:\n" + kinds
	}
	text := fmt.Sprintf(configuration, name, ring, etcd, s.auto, b.workers, s.place("v1", "FROM", s.database), s.place("v2", "TO", s.target), kinds+s.updates)
	file := filepath.Join(folder, "bench.yaml")
	for path, text := range map[string]string{file: text, filepath.Join(folder, "lens.yaml"): s.lens, filepath.Join(folder, "update.yaml"): updateLens} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	// The benchmark drives the deployment as an operator would, through its record.
	s.store = deployment.New(s.coord, name, deployment.Config{})
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	defer func() {
		if err != nil {
			err = fmt.Errorf("start a controller: %w", s.failed(err))
			s.close(ctx)
		}
	}()
	s.uris = map[string]string{"v1": s.from.server.URI(), "v2": s.to.server.URI()}
	if s.far > 0 {
		if s.line, s.uris["v2"], err = b.startRelay(ctx, s.to, s.far/2); err != nil {
			return nil, err
		}
	}
	if err := s.start(life, file); err != nil {
		return nil, err
	}
	s.running.Go(func() error {
		for d := range s.store.Watch(life) {
			s.latest.Store(&d)
		}
		return nil
	})
	// A copy must not start while shards still move between controllers.
	return s, s.poll(ctx, 20*time.Millisecond, func() (bool, error) {
		if d := s.now(); len(d.Available) == 0 {
			return false, nil
		}
		locks, _, err := s.coord.List(ctx, s.store.Root()+"/shards/")
		owned := map[string]int{}
		for _, l := range locks {
			owned[string(l.Value)]++
		}
		return len(locks) == ring && len(owned) == s.controllers && slices.Max(slices.Collect(maps.Values(owned))) == ring/s.controllers, err
	})
}

// start runs the controllers.
func (s *system) start(ctx context.Context, file string) error {
	env := map[string]string{"FROM": s.uris["v1"], "TO": s.uris["v2"]}
	cfg, err := config.Load(file, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		return err
	}
	var register cli.Register
	if len(s.kinds) == 0 {
		register = managed
	}
	registry, carry, err := cli.Transformers(cfg, register)
	if err != nil {
		return err
	}
	s.registry = registry
	for i := range s.controllers {
		id := fmt.Sprintf("controller-%d", i+1)
		if s.inside {
			opts := app.Options{Options: controller.Options{ID: id, Carry: carry, Wrap: s.wrap}}
			s.running.Go(func() error {
				if err := app.New(cfg, registry, s.coord, opts, warnings()).Run(ctx); err != nil && ctx.Err() == nil {
					s.bench.say("a controller has ended: %v", err)
				}
				return nil
			})
			continue
		}
		program, args := filepath.Join(s.bench.programs, "dbcontroller"), []string{"run", "--config", file, "--id", id}
		if len(s.kinds) == 0 {
			// dbcontroller has no Go transformers, so this program serves as the controller.
			if program, err = os.Executable(); err != nil {
				return err
			}
			args = append([]string{controllerCommand}, args...)
		}
		cmd := exec.Command(program, args...) //nolint:noctx // stopped in order by halt
		for name, value := range env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		// Nothing else, so that a variable of the caller cannot change the figures.
		cmd.Env = append(cmd.Env, "HOME="+os.Getenv("HOME"), "PATH="+os.Getenv("PATH"))
		log, err := os.Create(filepath.Join(filepath.Dir(file), id+".log"))
		if err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = log, log
		p, err := subprocess.Start(cmd)
		_ = log.Close() // the process has its own descriptor
		if err != nil {
			return err
		}
		s.processes, s.logs = append(s.processes, p), append(s.logs, log.Name())
	}
	return nil
}

// controllerCommand makes this program the controller of a service with Go transformers.
const controllerCommand = "controller"

func controllerOfManaged(ctx context.Context, args []string) error {
	cmd := cli.Command(managed)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// managed registers a managed kind that stays unchanged: only a service's own store reads and
// writes it.
func managed(r *transform.Registry) error {
	same := func(src, _ transform.Group) ([]record.Record, error) { return src.Records, nil }
	side := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kindName}}}}
	return r.Add("v1", "v2", transform.Spec{Name: kindName, Revision: "1", Old: side, New: side, Up: same, Down: same})
}

// warnings logs warnings to standard error, to explain a controller that makes no progress.
func warnings() *zap.Logger {
	form := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	return zap.New(zapcore.NewCore(form, zapcore.Lock(os.Stderr), zapcore.WarnLevel))
}

// halt stops the controllers.
func (s *system) halt() {
	s.stop()
	// Stop waits for each process, so none disturbs the next scenario.
	for _, p := range s.processes {
		p.Stop(grace / 3)
	}
	ended := make(chan struct{})
	go func() {
		_ = s.running.Wait() // controllers report their own errors
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(grace / 3):
		s.bench.say("a controller in this process does not stop")
	}
	s.processes = nil
	if s.line != nil {
		s.line.Stop(grace / 3)
		s.line = nil
	}
}

// close stops the controllers and removes their data.
func (s *system) close(ctx context.Context) {
	s.halt()
	s.to.drop(ctx, s.target)
	s.from.clear(ctx, s.database, s.kinds)
}
