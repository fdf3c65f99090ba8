package localmongo

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

const (
	dockerImage = "mongo:8.2"
	dockerPort  = "27017/tcp"
	// dockerScript runs mongod until its standard input closes. The container thus ends with the
	// process that started it, however that ends.
	dockerScript = `exec 3<&0; (cat <&3 >/dev/null; kill -TERM $$) & exec mongod "$@"`
)

// docker runs Docker's command line, which knows how to reach the engine. A client library would
// add a hundred modules to each build of this project.
func docker(ctx context.Context, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...) // #nosec G204 -- callers are in this package, and no shell runs it
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, complaint(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// complaint returns the line with the error, among progress and advice.
func complaint(stderr string) string {
	first := ""
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		// Progress of a download comes first, and advice last.
		if strings.HasPrefix(line, "docker: ") {
			return line
		}
		if first == "" {
			first = line
		}
	}
	return first
}

// dockerAnswers returns an error if no Docker engine responds.
func dockerAnswers(ctx context.Context) error {
	if _, err := docker(ctx, "version", "--format", "{{.Server.Version}}"); err != nil {
		return fmt.Errorf("reach Docker: %w", err)
	}
	return nil
}

// startDocker runs the official image as a replica set of one node. The member's own name is valid
// inside its container only, so clients must connect directly.
func startDocker(ctx context.Context, o Options) (_ *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c, err := runContainer(o)
	if err != nil {
		return nil, err
	}
	s := &Server{stop: c.remove}
	defer func() {
		if err != nil {
			_ = s.Stop(context.WithoutCancel(ctx)) // the start's error matters
		}
	}()
	addr, err := c.address(ctx)
	if err != nil {
		return nil, err
	}
	client, err := direct(addr)
	if err != nil {
		return nil, err
	}
	defer disconnect(ctx, client)
	err = poll(ctx, func() error {
		_, err := ask(ctx, client)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := initiate(ctx, client, setName, []string{"127.0.0.1:27017"}, false); err != nil {
		return nil, err
	}
	if err := awaitRole(ctx, client, false); err != nil {
		return nil, err
	}
	s.uri = "mongodb://" + addr + "/?directConnection=true"
	return s, nil
}

// container is a container that runs as long as its standard input is open.
type container struct {
	name  string
	stdin io.Closer
	ended chan struct{} // closed after the Docker client, and with it the container, has ended
	said  *bytes.Buffer // error output of the client; read it after ended
}

func runContainer(o Options) (*container, error) {
	c := &container{name: "dbcontroller-mongo-" + strings.ToLower(rand.Text()), ended: make(chan struct{}), said: &bytes.Buffer{}}
	// Without a context: the container lives until remove, not until the start's context ends.
	cmd := exec.Command("docker", "run", "--rm", "-i", "--name", c.name, "-p", "127.0.0.1::"+dockerPort, // #nosec G204 -- numbers and constants
		"--entrypoint", "sh", dockerImage, "-c", dockerScript, "mongod",
		"--bind_ip_all", "--replSet", setName,
		"--wiredTigerCacheSizeGB", strconv.FormatFloat(o.CacheGB, 'f', -1, 64),
		"--oplogSize", strconv.Itoa(o.OplogMB))
	cmd.Stderr = c.said
	// dockerScript watches this pipe. If this process dies, the kernel closes it and mongod ends.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("run container: %w", err)
	}
	c.stdin = stdin
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run container: %w", err)
	}
	go func() {
		_ = cmd.Wait() // its error output is in said
		close(c.ended)
	}()
	return c, nil
}

// address returns the container's address on this machine. It waits until the container runs, which
// may include a download of the image.
func (c *container) address(ctx context.Context) (addr string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A container that failed to start will never have an address, so its end stops the poll.
	go func() {
		select {
		case <-c.ended:
			cancel(errors.New("run container: " + complaint(c.said.String())))
		case <-ctx.Done():
		}
	}()
	// Docker publishes the port only once the container runs.
	err = poll(ctx, func() error {
		out, err := docker(ctx, "port", c.name, dockerPort)
		addr, _, _ = strings.Cut(out, "\n") // IPv4 comes first
		return err
	})
	// The container's own error says more than the end of the poll.
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return addr, err
}

// remove stops the container and waits until it is gone.
func (c *container) remove(ctx context.Context) error {
	_ = c.stdin.Close() // it may already have ended
	if _, err := docker(ctx, "rm", "--force", "--volumes", c.name); err != nil && !strings.Contains(err.Error(), "No such container") {
		return fmt.Errorf("remove container: %w", err)
	}
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("remove container: %w", ctx.Err())
	}
}
