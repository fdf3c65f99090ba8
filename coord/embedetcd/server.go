// Package embedetcd hosts a single etcd member inside this process, for a single
// machine and for tests.
//
// Start keeps everything below one directory, and writes the address that clients use to
// the file etcd-endpoint there, where package etcdfile finds it for other processes of the machine. A second
// Start on the same directory gives the same data. The address is a Unix socket in a
// folder that nobody but the user of this process may enter: no port is open, and neither
// other users of the machine nor other machines can reach it.
//
// It does not replicate or back up anything, and knows no users and no certificates:
// users who need that run an etcd cluster. Losing it stops upgrades, not servers.
//
// It is not for users and may change with any version.
package embedetcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"dbcontroller.dev/coord/etcdfile"
)

const (
	// startTimeout bounds Start; a large database takes a while to open.
	startTimeout = 60 * time.Second
	// history is how long watches can lag behind and how long old revisions take space.
	history = "5m"
	// A lone member needs no time to hear of others. The least lease that etcd grants
	// is one and a half election timeouts, rounded up to a second.
	tickMillis, electionMillis = 50, 500
)

// Config holds where the server lives.
type Config struct {
	Dir string      // made if missing
	Log *zap.Logger // nil for none; etcd's own messages go there from error up
	// Quota is how many bytes the database may take; 0: 2 GiB.
	Quota int64
	// PasswordCost is bcrypt's cost of a password of a user; 0: etcd's own, 10. Each step doubles
	// the time of a login. Tests with the race detector, where one takes seconds, have 4.
	PasswordCost uint
}

// Server is a running etcd member.
type Server struct {
	etcd     *embed.Etcd
	lock     *fileutil.LockedFile
	endpoint string
	level    zap.AtomicLevel    // of its log
	stop     context.CancelFunc // of what keeps room
	rested   chan struct{}      // closed when that has ended
	close    sync.Once
	closeErr error
}

// Start starts the server and returns once it serves. It goes on after ctx ends, until
// Close; ctx bounds the start only.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("start embedded etcd: no directory is configured")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start embedded etcd: %w", err)
	}
	// etcd waits silently for another owner of its files; we report who is in the way.
	lock, err := fileutil.TryLockFile(filepath.Join(cfg.Dir, "etcd.lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		if errors.Is(err, fileutil.ErrLocked) {
			return nil, fmt.Errorf("start embedded etcd: %s is in use by another process", cfg.Dir)
		}
		return nil, fmt.Errorf("lock embedded etcd: %w", err)
	}
	s, err := start(ctx, cfg)
	if err != nil {
		_ = lock.Close() // the first error is the one that matters
		return nil, fmt.Errorf("start embedded etcd in %s: %w", cfg.Dir, err)
	}
	s.lock = lock
	return s, nil
}

// Host is Start for a program that may host an etcd: it returns what clients connect to, and
// what ends it.
func Host(ctx context.Context, dir string, log *zap.Logger) (endpoints []string, end func() error, err error) {
	s, err := Start(ctx, Config{Dir: dir, Log: log})
	if err != nil {
		return nil, nil, err
	}
	return s.Endpoints(), s.Close, nil
}

// start starts one member.
func start(ctx context.Context, cfg Config) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	socket, err := socketPath(cfg.Dir)
	if err != nil {
		return nil, err
	}
	endpoint := scheme + socket
	at := &url.URL{Scheme: "unix", Path: socket}
	ec := embed.NewConfig()
	ec.Name = "embedded"
	ec.Dir = filepath.Join(cfg.Dir, "etcd")
	ec.ListenClientUrls = []url.URL{*at}
	ec.AdvertiseClientUrls = []url.URL{*at}
	ec.ListenPeerUrls = nil // a name for the member is needed, a port is not
	ec.InitialCluster = ec.InitialClusterFromName(ec.Name)
	ec.TickMs, ec.ElectionMs = tickMillis, electionMillis
	ec.AutoCompactionMode = embed.CompactorModePeriodic
	ec.AutoCompactionRetention = history
	ec.QuotaBackendBytes = quota
	if cfg.Quota != 0 {
		ec.QuotaBackendBytes = cfg.Quota
	}
	if cfg.PasswordCost != 0 {
		ec.BcryptCost = cfg.PasswordCost
	}
	ec.EnableGRPCGateway = false
	// etcd reports its own listeners' end as errors; a wanted end is none.
	level := zap.NewAtomicLevelAt(zap.ErrorLevel)
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(cfg.Log.Named("etcd").WithOptions(zap.IncreaseLevel(level)))
	etcd, err := embed.StartEtcd(ec)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case <-etcd.Server.StopNotify():
		err = errors.New("the server stopped while it started")
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		err = etcdfile.Publish(cfg.Dir, endpoint)
	}
	if err != nil {
		shut(etcd)
		return nil, err
	}
	s := &Server{etcd: etcd, endpoint: endpoint, level: level, rested: make(chan struct{})}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx)) // until Close
	s.stop = stop
	go func() {
		defer close(s.rested)
		keepRoom(keeping, etcd, cfg.Log)
	}()
	return s, nil
}

// shut closes etcd, which needs its Err channel read.
func shut(etcd *embed.Etcd) {
	etcd.Close()
	<-etcd.Server.StopNotify()
}

// Endpoints returns what clients connect to.
func (s *Server) Endpoints() []string { return []string{s.endpoint} }

// Close stops the server and returns when its files are free. The endpoint file stays,
// for the port of the next start.
func (s *Server) Close() error {
	s.close.Do(func() {
		s.stop()
		<-s.rested
		s.level.SetLevel(zap.DPanicLevel)
		shut(s.etcd)
		s.closeErr = s.lock.Close()
	})
	if s.closeErr != nil {
		return fmt.Errorf("unlock embedded etcd: %w", s.closeErr)
	}
	return nil
}
