package localmongo

import (
	"bytes"
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

// errPortTaken reports that another process took the port after we chose it and before mongod bound
// it. A retry with other ports helps.
var errPortTaken = errors.New("port is taken")

// listeningID is in mongod's log line "Waiting for connections", from version 4.4 on.
const listeningID = `"id":23016,`

// storageConfig has a server with a small cache evict less eagerly. By default four threads look for
// pages in all tables, without end, once changes of the last five minutes take 2.5% of the cache. That
// is 6 MB of the smallest one. Tests make thousands of tables.
const storageConfig = "eviction_dirty_target=40,eviction_dirty_trigger=60,eviction_updates_target=30,eviction_updates_trigger=50," +
	"eviction=(threads_min=1,threads_max=4)"

// exitNetError is mongod's exit code when it cannot bind its address.
const exitNetError = 48

// Node is a mongod or mongos that this process runs. Its methods may be called concurrently.
type Node struct {
	addr    string
	dir     string
	place   place
	program string
	args    []string

	mu     sync.Mutex
	proc   *subprocess.Process
	logged int64 // bytes in the log before the last start
}

// newNode prepares a mongod with its data below dir, as a member of replica set set. start runs it.
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
			// Only support uses these data; they cost disk space and a sample each second.
			"--setParameter", "diagnosticDataCollectionEnabled=false",
		},
	}
	// A measurement is about a server as it is by default.
	if o.Dir == "" {
		n.args = append(n.args, "--wiredTigerEngineConfigString", storageConfig)
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
			// With access control, members must authenticate to each other.
			n.args = append(n.args, "--keyFile", filepath.Join(dir, keyFileName))
		}
	}
	return n
}

// Addr returns the node's host:port, which stays the same across restarts.
func (n *Node) Addr() string { return n.addr }

// Pid returns the process id of the running node, or 0 if it is not running.
func (n *Node) Pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil || !n.proc.Running() {
		return 0
	}
	return n.proc.Pid()
}

// DataPath returns the folder of the node's data. A caller may copy or replace it while the node is
// stopped, as for a restore from a backup.
func (n *Node) DataPath() string { return filepath.Join(n.dir, "data") }

// LogPath returns the file with the node's output, for the report of a failing test.
func (n *Node) LogPath() string { return filepath.Join(n.dir, "mongod.log") }

// Start starts the node again after Kill, with the same data and address. It returns when the node
// accepts connections; the node may not be primary or secondary yet. Start leaves a running node
// alone.
func (n *Node) Start(ctx context.Context) error {
	if err := n.start(); err != nil {
		return err
	}
	return n.awaitListening(ctx)
}

// Kill kills the node, as in a crash of the process, and returns when it is gone. It leaves a
// stopped node alone.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		n.proc.Kill()
	}
}

// Pause suspends the node at any point of its work, with its connections open, until Resume. When
// Pause returns, no thread of the node runs.
func (n *Node) Pause() error {
	if err := n.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := awaitStopped(n.Pid()); err != nil {
		return fmt.Errorf("pause mongod %s: %w", n.addr, err)
	}
	return nil
}

// Resume continues a paused node.
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
	// A second mongod on the same data would fail with a lock error.
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
	before, err := log.Stat()
	if err != nil {
		return fmt.Errorf("read mongod log: %w", err)
	}
	n.logged = before.Size()
	// The context bounds the start, not the life of the server.
	cmd := command(context.Background(), n.place, n.program, n.args...)
	cmd.Dir = n.dir
	cmd.Stdout, cmd.Stderr = log, log
	if n.proc, err = subprocess.Start(cmd); err != nil {
		return fmt.Errorf("start mongod: %w", err)
	}
	return nil
}

// awaitListening returns when the node accepts connections. If the node has exited, it returns the
// reason and the end of the log.
func (n *Node) awaitListening(ctx context.Context) error {
	n.mu.Lock()
	proc, before := n.proc, n.logged
	n.mu.Unlock()
	return poll(ctx, func() error {
		if !proc.Running() {
			code, err := proc.Wait()
			// The caller retries a taken port with others, so this error must be recognizable.
			if code == exitNetError {
				return backoff.Permanent(fmt.Errorf("start mongod %s: %w", n.addr, errPortTaken))
			}
			return backoff.Permanent(fmt.Errorf("start mongod %s: %w; its log ends:\n%s", n.addr, err, subprocess.Tail(n.LogPath(), 8)))
		}
		// A connection would prove nothing: another process may have the port, and Linux can connect a
		// socket to itself if nobody listens. The role in the set comes later.
		return n.saysItListens(before)
	})
}

// saysItListens returns nil if mongod has logged that it accepts connections, after so many bytes of
// its log.
func (n *Node) saysItListens(before int64) error {
	log, err := os.ReadFile(n.LogPath())
	if err != nil {
		return fmt.Errorf("read mongod log: %w", err)
	}
	if !bytes.Contains(log[min(before, int64(len(log))):], []byte(listeningID)) {
		return fmt.Errorf("mongod %s does not accept connections yet", n.addr)
	}
	return nil
}
