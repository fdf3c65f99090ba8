package localmongo

import (
	"context"
	"fmt"
	"strconv"

	"github.com/testcontainers/testcontainers-go"
)

const (
	dockerImage = "mongo:8.2"
	dockerPort  = "27017/tcp"
)

// dockerAnswers reports whether a Docker engine can be reached.
func dockerAnswers(ctx context.Context) (err error) {
	// testcontainers panics where it finds no trace of Docker at all.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("reach Docker: %v", r)
		}
	}()
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return fmt.Errorf("reach Docker: %w", err)
	}
	defer provider.Close()
	if err := provider.Health(ctx); err != nil {
		return fmt.Errorf("reach Docker: %w", err)
	}
	return nil
}

// quiet drops what testcontainers says: it prints a container's whole log when
// something fails, over the error that matters.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// startDocker runs the official image as a one-node replica set. The member
// knows itself by a name that means something inside its container only, so the
// connection is a direct one. The reaper of testcontainers, unless the user
// turned it off, removes the container when this process is killed.
func startDocker(ctx context.Context, o Options) (_ *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	container, err := testcontainers.Run(ctx, dockerImage,
		testcontainers.WithCmd("mongod", "--bind_ip_all", "--replSet", setName,
			"--wiredTigerCacheSizeGB", strconv.FormatFloat(o.CacheGB, 'f', -1, 64),
			"--oplogSize", strconv.Itoa(o.OplogMB)),
		testcontainers.WithExposedPorts(dockerPort),
		testcontainers.WithLogger(quiet{}),
	)
	s := &Server{stop: func(ctx context.Context) error {
		if err := testcontainers.TerminateContainer(container, testcontainers.StopContext(ctx), testcontainers.StopTimeout(0)); err != nil {
			return fmt.Errorf("remove container: %w", err)
		}
		return nil
	}}
	defer func() {
		if err != nil && container != nil {
			// The start's error is the news; the reaper gets what is left.
			_ = s.Stop(context.WithoutCancel(ctx))
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("run container: %w", err)
	}
	addr, err := container.PortEndpoint(ctx, dockerPort, "")
	if err != nil {
		return nil, fmt.Errorf("find container port: %w", err)
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
