// Package localdocker runs a database in a container for tests. It builds and starts the program in
// integration/containers, which uses testcontainers-go. That folder is a module of its own, so that no
// user of this module gets a Docker client. The package needs the go command and a checkout.
//
// Package localmongo falls back to it where no mongod is. Begin to read at Run.
//
// It is not for users and may change with any version.
package localdocker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program is the folder of the program, in this module's checkout.
const program = "integration/containers"

// Variable names the environment variable that makes tests of containers run. Without it a run of all
// tests would download images on each machine that has Docker.
const Variable = "DBCONTROLLER_TEST_DOCKER"

// Require skips a test of containers unless Variable is set.
func Require(t testing.TB) {
	t.Helper()
	if os.Getenv(Variable) == "" {
		t.Skip(Variable + " is not set: scripts/test-containers runs this test where Docker can be started")
	}
}

// Available returns an error if this machine has no Docker. It only looks for a socket: the program
// connects to it, but compiling it takes too long for a machine without one.
func Available() error {
	if os.Getenv("DOCKER_HOST") != "" {
		return nil
	}
	home := os.Getenv("HOME")
	sockets := []string{
		"/var/run/docker.sock",
		filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "docker.sock"),
		filepath.Join(home, ".docker", "run", "docker.sock"),
		filepath.Join(home, ".docker", "desktop", "docker.sock"),
	}
	for _, s := range sockets {
		if _, err := os.Stat(s); err == nil {
			return nil
		}
	}
	return fmt.Errorf("DOCKER_HOST is not set, and there is no socket %s", sockets[0])
}

// Container is a database in a container. It ends when the standard input of the program closes. If
// this process dies, the kernel closes it.
type Container struct {
	Address string // host:port

	stdin io.Closer
	ended chan struct{} // closed after the program, and with it the container, has ended
	err   error         // of the program; read it after ended
}

// Run runs "mongodb" or "etcd" with args, and returns when it accepts connections. ctx limits the
// start, which may compile the program and download the image. The caller must Stop it.
func Run(ctx context.Context, database string, args ...string) (*Container, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "dbcontroller.dev").Output()
	if err != nil {
		return nil, fmt.Errorf("run container: find the checkout that has %s: %w", program, err)
	}
	// Without a context: the container lives until Stop, not until the start's context ends.
	cmd := exec.Command("go", append([]string{"run", ".", database}, args...)...)
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), program)
	var said bytes.Buffer
	cmd.Stderr = &said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("run container: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("run container: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run container: %w", err)
	}
	// The program ends its start as well when this closes.
	defer context.AfterFunc(ctx, func() { _ = stdin.Close() })()
	address, _ := bufio.NewReader(stdout).ReadString('\n') // a program without an address exits with the reason
	c := &Container{Address: strings.TrimSpace(address), stdin: stdin, ended: make(chan struct{})}
	go func() {
		if err := cmd.Wait(); err != nil {
			c.err = fmt.Errorf("run container: %w: %s", err, complaint(said.String()))
		}
		close(c.ended)
	}()
	if c.Address != "" {
		return c, nil
	}
	<-c.ended
	if ctx.Err() != nil {
		return nil, fmt.Errorf("run container: %w", ctx.Err())
	}
	return nil, cmp.Or(c.err, errors.New("run container: no address"))
}

// complaint returns the first line with an error. The go command reports downloads before it.
func complaint(stderr string) string {
	for line := range strings.Lines(stderr) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "go: downloading ") {
			return line
		}
	}
	return ""
}

// Stop ends the container and waits until it is gone.
func (c *Container) Stop(ctx context.Context) error {
	_ = c.stdin.Close() // the program may already have ended
	select {
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("stop container: %w", ctx.Err())
	}
}
