package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// Config configures a Proxy.
type Config struct {
	// Upstream is the connection string of the cluster with everything that no deployment names.
	Upstream string
	// Deployments are those whose kinds the application uses.
	Deployments []Deployment
	// Grace is the time that an open transaction has to end when a switch holds writes. Default 500 ms.
	// Controllers wait for a second.
	Grace time.Duration
	// Memory bounds the bytes of the clients' messages that are held at a time. Default 1 GiB.
	Memory int64
	// Connections bounds the connections of clients. Default 10,000.
	Connections int
	// Users may log in, each with a password of its own. None: clients do not log in, and all use the login of
	// the connection strings.
	Users []User
	// Log receives warnings; nil: no log.
	Log *slog.Logger
}

// discard is the log of a proxy without one.
var discard = slog.New(slog.DiscardHandler)

// Proxy serves clients. Its methods may be called concurrently.
type Proxy struct {
	cfg      Config
	log      *slog.Logger
	home     *upstream.Cluster
	deployed []*deployed
	views    map[string]string // views at home that read a collection that moves, and that collection

	life context.Context //nolint:containedctx // of everything that outlives one command
	stop context.CancelFunc
	// closing ends when no further command of a client is served.
	closing context.Context //nolint:containedctx // as life
	end     context.CancelFunc
	// waiting ends when no command waits for the end of a switch any longer.
	waiting   context.Context //nolint:containedctx // as life
	stopWaits context.CancelFunc
	g         sync.WaitGroup
	departure departure
	faults    faults

	requests     atomic.Int32 // ids of messages to servers
	connections  atomic.Int64 // ids for hello
	whole        atomic.Bool  // no reply is passed on while it arrives
	open         atomic.Int64
	users        *accounts // nil: the proxy has none
	cursors      cursors
	transactions transactions
	memory       *semaphore.Weighted // bytes of messages of clients, and of the replies
	asked        *semaphore.Weighted // bytes of messages of clients alone: a part of memory
	ahead        *semaphore.Weighted // bytes of cursors that are read ahead

	mu     sync.Mutex
	byURI  map[string]*upstream.Cluster
	opened []*upstream.Cluster // in the order of opening; home is the first one
}

// New opens the clusters and follows the deployments. The caller must close the Proxy.
func New(ctx context.Context, cfg Config) (_ *Proxy, err error) {
	if cfg.Grace == 0 {
		cfg.Grace = 500 * time.Millisecond
	}
	if cfg.Memory == 0 {
		cfg.Memory = 1 << 30
	}
	if cfg.Connections == 0 {
		cfg.Connections = 10_000
	}
	if cfg.Log == nil {
		cfg.Log = discard
	}
	p := &Proxy{cfg: cfg, log: cfg.Log, byURI: map[string]*upstream.Cluster{}, memory: semaphore.NewWeighted(max(cfg.Memory, message.MaxMessage))}
	p.asked = semaphore.NewWeighted(max(cfg.Memory-cfg.Memory/partOfReplies, message.MaxMessage))
	p.ahead, p.faults.log = semaphore.NewWeighted(mostAheadOfAll), cfg.Log
	p.life, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.closing, p.end = context.WithCancel(p.life)
	p.waiting, p.stopWaits = context.WithCancel(p.life)
	p.departure.process, p.departure.told = bson.NewObjectID(), make(chan struct{})
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close(context.WithoutCancel(ctx)))
		}
	}()
	if p.users, err = openUsers(cfg); err != nil {
		return nil, err
	}
	if p.home, err = p.cluster(cfg.Upstream); err != nil {
		return nil, err
	}
	for _, d := range cfg.Deployments {
		one, err := follow(ctx, d, p.cluster, cfg.Log, &p.faults)
		if err != nil {
			return nil, fmt.Errorf("deployment %s: %w", d.Name, err)
		}
		p.deployed = append(p.deployed, one)
		if err := p.refuseSharded(ctx, one); err != nil {
			return nil, fmt.Errorf("deployment %s: %w", d.Name, err)
		}
	}
	if err := p.lookForViews(ctx); err != nil {
		return nil, err
	}
	p.tryLogins(ctx)
	for _, d := range p.deployed {
		p.spawn("holds", func() { p.holdUntilRead(d) }, nil)
	}
	for _, d := range p.deployed {
		d.awaitReader(ctx)
	}
	return p, nil
}

// refuseSharded refuses versions in several clusters of which one is sharded. A cluster that cannot be
// reached now is looked at before the first write that depends on it.
func (p *Proxy) refuseSharded(ctx context.Context, d *deployed) error {
	if len(d.own) < 2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for _, cluster := range d.own {
		switch sharded, err := cluster.Sharded(ctx); {
		case err != nil:
			p.log.Warn("a cluster cannot be reached; writes that are sent again after a switch fail until then", slog.Any("error", err))
		case sharded:
			return fmt.Errorf("%w; if all versions are in one cluster, write the same text for all uris", errSharded)
		}
	}
	return nil
}

// cluster opens a cluster, or returns the open one.
func (p *Proxy) cluster(uri string) (*upstream.Cluster, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.byURI[uri]; c != nil {
		return c, nil
	}
	c, err := upstream.Open(uri, p.users.logins()...)
	if err != nil {
		return nil, err
	}
	p.byURI[uri] = c
	p.opened = append(p.opened, c)
	return c, nil
}

// clusters returns the clusters that are open.
func (p *Proxy) clusters() []*upstream.Cluster {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*upstream.Cluster(nil), p.opened...)
}

// deployment returns the deployment with which the collection of a command moves; nil: it does not move.
func (p *Proxy) deployment(c command) *deployed {
	for _, d := range p.deployed {
		if d.has(c.database, c.collection) {
			return d
		}
	}
	return nil
}

// Serve serves the clients of a listener until Close, or until the listener fails. It closes the
// listener.
func (p *Proxy) Serve(l net.Listener) error {
	unlink := context.AfterFunc(p.closing, func() { _ = l.Close() })
	defer unlink()
	defer l.Close() //nolint:errcheck // nothing is left to write
	for {
		c, err := l.Accept()
		if err != nil {
			switch {
			case p.closing.Err() != nil:
				return nil
			case errors.Is(err, net.ErrClosed):
				return err
			}
			// Such as too many open files: others end, and then there is room again.
			p.log.Warn("cannot accept a client", slog.Any("error", err))
			select {
			case <-p.closing.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		if !p.begin(c) {
			_ = c.Close()
		}
	}
}

// begin serves a client in a goroutine, unless there are too many or the proxy closes.
func (p *Proxy) begin(c net.Conn) bool {
	// Close waits for all goroutines, and none may begin meanwhile.
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.Err() != nil {
		return false
	}
	if p.open.Add(1) > int64(p.cfg.Connections) {
		p.open.Add(-1)
		return false
	}
	p.spawn("a connection", func() {
		defer p.open.Add(-1)
		p.serve(c)
	}, nil)
	return true
}

// acceptPause is the pause after a client could not be accepted.
const acceptPause = 100 * time.Millisecond

// waits bounds a context by the time for which commands may wait for the end of a switch.
func (p *Proxy) waits(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(p.waiting, cancel)
	return ctx, func() { unlink(); cancel() }
}

const (
	// answerTime is the part of the time for Close in which commands that wait for a switch get an error.
	answerTime = time.Second
	// deregisterTime is the part in which the proxy deregisters. Connections that are left are cut before.
	deregisterTime = 500 * time.Millisecond
)

// Close ends the connections of clients, each after the command that it waits for, or shortly before ctx ends. It
// then deregisters from the controllers, and closes the clusters.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	p.end()
	p.mu.Unlock()
	if until, ok := ctx.Deadline(); ok {
		defer time.AfterFunc(time.Until(until)-answerTime, p.stopWaits).Stop()
		defer time.AfterFunc(time.Until(until)-deregisterTime, p.stop).Stop()
	}
	cut := context.AfterFunc(ctx, p.stop)
	p.g.Wait()
	cut()
	p.stop()
	var errs []error
	for _, d := range p.deployed {
		errs = append(errs, d.app.Close(ctx))
	}
	for _, c := range p.clusters() {
		errs = append(errs, c.Close(ctx))
	}
	return errors.Join(errs...)
}
