// Package embedetcd runs a single etcd member inside this process, for a single machine and for
// tests.
//
// Start keeps all files below one directory. It writes the address for clients to the file
// etcd-endpoint there. Package etcdfile finds it for other processes of the machine. A later Start
// on the same directory has the same data.
//
// The address is a Unix socket in a folder that only the user of this process may enter. No port is
// open, and neither other users nor other machines can reach the server.
//
// The package does not replicate or back up data, and has no users and certificates. Run an etcd
// cluster if you need these. The loss of the server stops upgrades, but no API servers.
//
// Begin to read with Start in server.go.
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

	"dbcontroller.dev/internal/coord/etcdfile"
)

const (
	// startTimeout limits Start. A large database takes a while to open.
	startTimeout = 60 * time.Second
	// history is the time that watches can lag behind, and that old revisions take space.
	history = "5m"
	// A single member does not wait for others, so the intervals can be short. The minimum lease
	// that etcd grants is one and a half election timeouts, rounded up to a second.
	tickMillis, electionMillis = 50, 500
)

// Config configures the server.
type Config struct {
	Dir string      // created if missing
	Log *zap.Logger // nil: no log; gets etcd's own messages from level error up
	// Quota is the maximum size of the database in bytes. 0: 2 GiB.
	Quota int64
	// PasswordCost is the bcrypt cost of a user's password. 0: etcd's default, 10. Each step
	// doubles the time of a login. Tests with the race detector use 4, since a login takes seconds
	// there.
	PasswordCost uint
}

// Server is a running etcd member.
type Server struct {
	etcd     *embed.Etcd
	lock     *fileutil.LockedFile
	endpoint string
	level    zap.AtomicLevel    // of the server's log
	stop     context.CancelFunc // ends keepRoom
	rested   chan struct{}      // closed when keepRoom has ended
	close    sync.Once
	closeErr error
}

// Start starts the server and returns once it serves. ctx limits only the start. The server runs
// until Close.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("start embedded etcd: no directory is configured")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	// Other users of the machine must not read the data.
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start embedded etcd: %w", err)
	}
	// etcd waits silently while another process locks its files. We report that process instead.
	lock, err := fileutil.TryLockFile(filepath.Join(cfg.Dir, "etcd.lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		if errors.Is(err, fileutil.ErrLocked) {
			return nil, fmt.Errorf("start embedded etcd: %s is in use by another process", cfg.Dir)
		}
		return nil, fmt.Errorf("lock embedded etcd: %w", err)
	}
	s, err := start(ctx, cfg)
	if err != nil {
		_ = lock.Close() // report the first error
		return nil, fmt.Errorf("start embedded etcd in %s: %w", cfg.Dir, err)
	}
	s.lock = lock
	return s, nil
}

// Host calls Start for a program that may run an etcd. It returns the endpoints and the function
// that stops the server.
func Host(ctx context.Context, dir string, log *zap.Logger) (endpoints []string, end func() error, err error) {
	s, err := Start(ctx, Config{Dir: dir, Log: log})
	if err != nil {
		return nil, nil, err
	}
	return s.Endpoints(), s.Close, nil
}

// start starts the member. The caller holds the lock of the directory.
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
	ec.ListenPeerUrls = nil // the member needs a name, but no peer port
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
	// etcd logs the end of its listeners as errors, so Close raises this level first.
	level := zap.NewAtomicLevelAt(zap.ErrorLevel)
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(cfg.Log.Named("etcd").WithOptions(zap.IncreaseLevel(level)))
	etcd, err := embed.StartEtcd(ec)
	if err != nil {
		return nil, err
	}
	select {
	// Wait for the server itself: the listeners are open before it serves.
	case <-etcd.Server.ReadyNotify():
	case <-etcd.Server.StopNotify():
		err = errors.New("the server stopped while it started")
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		// Publish the address only once it works.
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

// shut closes etcd and waits for its end.
func shut(etcd *embed.Etcd) {
	etcd.Close()
	<-etcd.Server.StopNotify()
}

// Endpoints returns the addresses for clients.
func (s *Server) Endpoints() []string { return []string{s.endpoint} }

// Close stops the server and returns once its files are free. The endpoint file stays, so that the
// next start can use the socket's folder again.
func (s *Server) Close() error {
	s.close.Do(func() {
		s.stop()
		// keepRoom uses the server, so it must end first.
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
