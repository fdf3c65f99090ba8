package simulation_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// The controllers of a simulation are those of the program: controller.App, over the databases
// of the system, and without ports.

// process is a controller or server that a test can stop.
type process struct {
	stop context.CancelFunc
	done chan struct{}
	conn *memcoord.Store // its connection to the coordination store
	app  *controller.App // of a controller
	// Once done is closed, why it ended by itself: others transform otherwise, or a database
	// is not the one that the deployment means.
	foreign error
	astray  *identity.MismatchError
}

// kill ends the process as SIGKILL does: what it had not stored is gone, and its leases
// run out by themselves.
func (p *process) kill() {
	p.conn.Cut()
	p.stop()
	<-p.done
}

// settings are those of all controllers of the system that start from now on.
func (s *system) settings() controller.Settings {
	cfg := controller.Settings{
		File: "sim.yaml", Deployment: name, RingSize: cmp.Or(s.shards, ring), InitialVersion: "v1",
		Copy:         controller.Copy{Auto: !s.manual, MaxRate: s.maxRate, Workers: 2, Page: 7, Unthrottled: true},
		ShardMetrics: s.shardMetrics, Hooks: s.hooks,
		Switch: controller.Switch{Policy: upgradestate.Policy{Retries: 3}, MaxLag: s.lagBound, HoldTimeout: s.holdTimeout},
	}
	for _, v := range []string{"v1", "v2"} {
		cfg.Databases = append(cfg.Databases, controller.Database{
			Version: v, APIVersion: v, Name: v, Location: "mem:" + v, Disabled: s.oneWay && v == "v1",
		})
	}
	return cfg
}

// controller starts a controller. wrap, if not nil, stands between it and a version's
// database.
func (s *system) controller(ctx context.Context, id string, wrap func(version string, ns record.Namespace) record.Namespace) *process {
	return s.controllerProcess(ctx, id, func(_ *process, version string, ns record.Namespace) record.Namespace {
		if wrap == nil {
			return ns
		}
		return wrap(version, ns)
	})
}

// controllerProcess is controller for a wrap that does something to the process.
func (s *system) controllerProcess(ctx context.Context, id string, wrap func(p *process, version string, ns record.Namespace) record.Namespace) *process {
	ctx, stop := context.WithCancel(ctx)
	p := &process{stop: stop, done: make(chan struct{}), conn: s.coord.Client()}
	p.app = controller.New(s.settings(), s.registry, p.conn, backend{s.db}, controller.Options{
		ID: id, Carry: s.carry, Wrap: func(version string, ns record.Namespace) record.Namespace {
			return wrap(p, version, countLoads{ns, &s.loads})
		},
	}, s.log)
	go func() {
		defer close(p.done)
		defer stop()
		err := p.app.Run(ctx, nil)
		switch {
		case errors.Is(err, syncer.ErrOtherTransform):
			p.foreign = err
		case errors.As(err, &p.astray):
		case err != nil && ctx.Err() == nil:
			s.t.Errorf("controller %s: %v", id, err)
		}
	}()
	return p
}

// found has a controller make the deployment, with all that is to be there before one works,
// as the very first one does.
func (s *system) found(ctx context.Context) {
	s.t.Helper()
	s.manual = true
	p := s.controller(ctx, "founder", nil)
	s.await(ctx, "the deployment", func(d upgradestate.Deployment) bool { return len(d.Available) > 0 })
	p.stop()
	<-p.done
	s.manual = false
}

// backend is the databases of a system, for a controller.
type backend struct{ db map[string]database }

// Connect is controller.Backend's.
func (b backend) Connect(dbs []controller.Database, o controller.Opening) (map[string]controller.Connection, func(context.Context)) {
	out := map[string]controller.Connection{}
	for _, db := range dbs {
		out[db.Version] = &connection{database: b.db[db.Version], version: db.Version, o: o, turn: make(chan struct{}, 1)}
	}
	return out, func(context.Context) {}
}

// Unavailable is controller.Backend's: what was injected passes.
func (backend) Unavailable(err error) bool {
	return errors.Is(err, record.ErrUnavailable) || errors.Is(err, faultstore.ErrInjected)
}

// Unprivileged is controller.Backend's.
func (backend) Unprivileged(error) bool { return false }

// connection is a database that answers from the beginning.
type connection struct {
	database
	version string
	o       controller.Opening

	turn   chan struct{} // who has it opens the database; nobody else waits for a lock
	mu     sync.Mutex
	opened bool
	err    error
}

// Open is controller.Connection's.
func (c *connection) Open(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.Opened() {
		return nil
	}
	err := c.o.Check(ctx, c.version, c.database)
	if err != nil {
		err = fmt.Errorf("database of %s: %w", c.version, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened, c.err = err == nil, err
	return err
}

// Opened is controller.Connection's.
func (c *connection) Opened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

// Problem is controller.Connection's.
func (c *connection) Problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Keep is controller.Connection's.
func (c *connection) Keep(ctx context.Context) error {
	for c.Open(ctx) != nil && ctx.Err() == nil {
		pass(time.Second)
	}
	return ctx.Err()
}

// Moves is identity.Mover's: databases of other kinds move nothing.
func (c *connection) Moves(ctx context.Context) (bool, error) {
	if m, ok := c.database.(identity.Mover); ok {
		return m.Moves(ctx)
	}
	return false, nil
}

// Moved is identity.Mover's.
func (c *connection) Moved(ctx context.Context, from record.Position, toks record.Tokens) (record.Tokens, map[string]string, error) {
	return c.database.(identity.Mover).Moved(ctx, from, toks) //nolint:forcetypeassert // Moves has found it
}

// Quietly is controller.Connection's.
func (c *connection) Quietly() controller.Space { return c.database }
