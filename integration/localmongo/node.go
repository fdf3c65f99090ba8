package localmongo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"dbcontroller.dev/integration/subprocess"

	"github.com/cenkalti/backoff/v4"
)

// errPortTaken says that somebody else got the port between our choosing it and
// mongod's binding it; other ports help.
var errPortTaken = errors.New("port is taken")

// exitNetError is mongod's exit code when it cannot bind its address.
const exitNetError = 48

// Node is one mongod or mongos that this process runs. Its methods may be called
// from several goroutines.
type Node struct {
	addr    string
	dir     string
	place   place
	program string
	args    []string

	mu   sync.Mutex
	proc *subprocess.Process
}

// newNode prepares a mongod with data below dir; start runs it. set is the name of
// its replica set.
func newNode(p place, dir string, port int, set string, o Options) *Node {
	n := &Node{
		addr:    net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		dir:     dir,
		place:   p,
		program: p.mongod,
		args: []string{
			"--dbpath", filepath.Join(dir, "data"),
			"--bind_ip", "127.0.0.1",
			"--port", strconv.Itoa(port),
			"--nounixsocket",
			"--wiredTigerCacheSizeGB", strconv.FormatFloat(o.CacheGB, 'f', -1, 64),
			// Only for support cases; costs disk and a sample every second.
			"--setParameter", "diagnosticDataCollectionEnabled=false",
		},
	}
	if !o.Standalone {
		n.args = append(n.args, "--replSet", set, "--oplogSize", strconv.Itoa(o.OplogMB))
	}
	if o.CheckpointEvery > 0 {
		n.args = append(n.args, "--syncdelay", strconv.Itoa(o.CheckpointEvery))
	}
	if o.TestCommands {
		n.args = append(n.args, "--setParameter", "enableTestCommands=1")
	}
	if o.TLS != nil {
		n.args = append(n.args, "--tlsMode", "preferTLS", "--tlsCertificateKeyFile", o.TLS.CertificateKey, "--tlsCAFile", o.TLS.CA, "--tlsAllowConnectionsWithoutCertificates")
	}
	if o.Auth {
		n.args = append(n.args, "--auth")
		if !o.Standalone {
			// Members must prove themselves to each other once users exist.
			n.args = append(n.args, "--keyFile", filepath.Join(dir, keyFileName))
		}
	}
	return n
}

// Addr is the host:port the node listens on; it stays the same over restarts.
func (n *Node) Addr() string { return n.addr }

// Pid is the process id of the running mongod, 0 when it is not running.
func (n *Node) Pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil || !n.proc.Running() {
		return 0
	}
	return n.proc.Pid()
}

// DataPath is the folder of the node's data. It may be copied, and replaced, while the node does not
// run: so it is restored from a backup.
func (n *Node) DataPath() string { return filepath.Join(n.dir, "data") }

// LogPath is the file with everything the node printed, for a failing test.
func (n *Node) LogPath() string { return filepath.Join(n.dir, "mongod.log") }

// Start runs the node again after Kill, on the same data and address, and
// returns when it accepts connections. It may not be primary or secondary yet.
// A node that runs is left alone.
func (n *Node) Start(ctx context.Context) error {
	if err := n.start(); err != nil {
		return err
	}
	return n.awaitListening(ctx)
}

// Kill ends the node at once, like a power cut of the process, and returns when
// it is gone. A node that does not run is left alone.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		n.proc.Kill()
	}
}

// Pause stops the node in the middle of whatever it does, without closing its
// connections, until Resume. When it returns the node stands still.
func (n *Node) Pause() error {
	if err := n.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := awaitStopped(n.Pid()); err != nil {
		return fmt.Errorf("pause mongod %s: %w", n.addr, err)
	}
	return nil
}

// Resume lets a paused node go on.
func (n *Node) Resume() error { return n.signal(syscall.SIGCONT) }

func (n *Node) signal(sig syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil || !n.proc.Running() {
		return fmt.Errorf("signal mongod %s: not running", n.addr)
	}
	if err := n.proc.Signal(sig); err != nil {
		return fmt.Errorf("signal mongod %s: %w", n.addr, err)
	}
	return nil
}

func (n *Node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil && n.proc.Running() {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(n.dir, "data"), 0o700); err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	log, err := os.OpenFile(n.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open mongod log: %w", err)
	}
	defer log.Close() // mongod has its own copy of the descriptor
	// The context of Start bounds the wait, not the life of the server.
	cmd := command(context.Background(), n.place, n.program, n.args...)
	cmd.Dir = n.dir
	cmd.Stdout, cmd.Stderr = log, log
	if n.proc, err = subprocess.Start(cmd); err != nil {
		return fmt.Errorf("start mongod: %w", err)
	}
	return nil
}

// awaitListening returns when the node accepts connections, or with the reason
// and the end of its log when it gave up.
func (n *Node) awaitListening(ctx context.Context) error {
	n.mu.Lock()
	proc := n.proc
	n.mu.Unlock()
	var dialer net.Dialer
	return poll(ctx, func() error {
		if !proc.Running() {
			code, err := proc.Wait()
			if code == exitNetError {
				return backoff.Permanent(fmt.Errorf("start mongod %s: %w", n.addr, errPortTaken))
			}
			return backoff.Permanent(fmt.Errorf("start mongod %s: %w; its log ends:\n%s", n.addr, err, subprocess.Tail(n.LogPath(), 8)))
		}
		conn, err := dialer.DialContext(ctx, "tcp", n.addr)
		if err != nil {
			return fmt.Errorf("reach mongod: %w", err)
		}
		return conn.Close()
	})
}
