// Command containers runs one database in a container, by testcontainers-go:
//
//	containers mongodb|etcd [ARG...]
//
// It prints the database's address, host:port, as soon as the database accepts connections. The
// container runs until standard input closes or SIGTERM arrives. It is therefore gone when the
// process that started this program has ended, however that ended. If this program is killed itself,
// testcontainers-go removes the container by its reaper, unless TESTCONTAINERS_RYUK_DISABLED is set.
//
// ARGs go to the database. The port is open on 127.0.0.1 only, since the database asks for no login.
//
// The folder is a module of its own: the go command adds the requirements of a package's tests to the
// go.sum of its users, and no user of dbcontroller needs a Docker client. Package localmongo runs this
// program where Docker is present and no mongod is. Begin to read at run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"
)

// database is a database that the program can run.
type database struct {
	image   string
	command []string
	port    string // as network.ParsePort reads it
	ready   string // the line of its log after which it accepts connections
}

var databases = map[string]database{
	"mongodb": {
		image:   "mongo:8.2",
		command: []string{"mongod", "--bind_ip_all"},
		port:    "27017/tcp",
		ready:   "Waiting for connections",
	},
	"etcd": {
		image:   "gcr.io/etcd-development/etcd:v3.7.3",
		command: []string{"etcd", "--listen-client-urls", "http://0.0.0.0:2379", "--advertise-client-urls", "http://127.0.0.1:2379"},
		port:    "2379/tcp",
		ready:   "ready to serve client requests",
	},
}

// startLimit bounds the start after the download of the image.
const startLimit = 2 * time.Minute

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

func main() {
	// A terminal sends an interrupt to this process as well. The parent decides when the database
	// ends: its own end closes standard input.
	signal.Ignore(os.Interrupt)
	// The library reports progress here. Its errors are returned, and must stay the first line.
	log.SetDefault(log.NewNoopLogger())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "containers:", err)
		os.Exit(1)
	}
}

// run runs the container until stdin closes or ctx ends.
func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) (err error) {
	if len(args) == 0 {
		return errors.New("no database given; usage: containers mongodb|etcd [ARG...]")
	}
	db, known := databases[args[0]]
	if !known {
		return fmt.Errorf("%q is no database; usage: containers mongodb|etcd [ARG...]", args[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		// A parent that ends during the start ends the start too.
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	c, err := start(ctx, db, args[1:])
	// A failed start may leave a container behind.
	defer func() {
		// No context: it has ended by now. StopTimeout 0: the data will not be read again.
		if ended := testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0)); ended != nil && err == nil {
			err = fmt.Errorf("remove container: %w", ended)
		}
	}()
	if err != nil {
		return fmt.Errorf("start %s: %w", db.image, err)
	}
	port, err := c.MappedPort(ctx, db.port)
	if err != nil {
		return fmt.Errorf("find port of %s: %w", db.image, err)
	}
	if _, err := fmt.Fprintf(stdout, "127.0.0.1:%d\n", port.Num()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func start(ctx context.Context, db database, args []string) (testcontainers.Container, error) {
	port, err := network.ParsePort(db.port)
	if err != nil {
		return nil, err
	}
	return testcontainers.Run(ctx, db.image,
		// The image's own script would change owners of files and drop privileges, which takes time.
		testcontainers.WithEntrypoint(db.command[0]),
		testcontainers.WithCmd(slices.Concat(db.command[1:], args)...),
		testcontainers.WithExposedPorts(db.port),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{port: {{HostIP: loopback}}}
		}),
		// A look at the port would not do: Docker accepts connections before the database does.
		testcontainers.WithWaitStrategyAndDeadline(startLimit, wait.ForLog(db.ready).WithStartupTimeout(startLimit)))
}
