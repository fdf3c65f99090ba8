package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/coord/embedetcd"
)

// backends are the running MongoDB and etcd.
type backends struct {
	URI     string   `json:"uri"`
	Version string   `json:"version"` // of MongoDB
	Etcd    []string `json:"etcd"`
	// Foreign reports that the MongoDB server existed before. The run must remove its databases
	// there.
	Foreign bool `json:"foreign"`

	close []func(context.Context) error
}

// startBackends finds or starts MongoDB and starts etcd, as children of this process.
func startBackends(ctx context.Context, dir string, log io.Writer) (_ *backends, err error) {
	b := &backends{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.stop(ctx))
		}
	}()
	m, err := localmongo.Start(ctx, localmongo.Options{CacheGB: 0.5, Dir: os.TempDir(), Log: log})
	if err != nil {
		return nil, err
	}
	// A server without nodes of its own ran before the demo and is not the demo's to stop.
	b.URI, b.Version, b.Foreign = m.URI(), m.Version(), len(m.Nodes()) == 0
	b.close = append(b.close, m.Stop)
	e, err := embedetcd.Start(ctx, embedetcd.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	b.Etcd = e.Endpoints()
	b.close = append(b.close, func(context.Context) error { return e.Close() })
	return b, nil
}

// stop stops the backends in reverse order of their start.
func (b *backends) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var errs []error
	for i := len(b.close) - 1; i >= 0; i-- {
		errs = append(errs, b.close[i](ctx))
	}
	b.close = nil
	return errors.Join(errs...)
}

// connect opens the plain driver for the application and the checks.
func (b *backends) connect() (*mongo.Client, error) {
	c, err := mongo.Connect(options.Client().ApplyURI(b.URI).SetAppName("demo-application").
		SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return nil, fmt.Errorf("connect to MongoDB: %w", err)
	}
	return c, nil
}

// dropPatience exceeds the lifetime of a transaction that a killed process left, which blocks the
// drop.
const dropPatience = 90 * time.Second

// drop drops the databases of a run. It does nothing on a server that the run started, because the
// server's data is removed with the server.
func (b *backends) drop(ctx context.Context, c *mongo.Client, names ...string) error {
	if !b.Foreign {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropPatience)
	defer cancel()
	var errs []error
	for _, n := range names {
		if err := c.Database(n).Drop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("drop database %s: %w", n, err))
		}
	}
	return errors.Join(errs...)
}

// hostFile is the file in which a host publishes the addresses of MongoDB and etcd. The connection
// string may hold a password, so only the owner can read it.
const hostFile = "backends.json"

// Host runs MongoDB and etcd for a kept demo until ctx ends. It then drops the databases and
// removes the demo's folder.
func Host(ctx context.Context, dir string, databases []string) (err error) {
	if dir == "" {
		return errors.New("no folder: give --dir; this command is for the demo's own use")
	}
	b, err := startBackends(ctx, dir, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop(ctx), os.RemoveAll(dir)) }()
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encode backends: %w", err)
	}
	l := layout{dir: dir}
	// Rename into place, so that a waiting process never reads half of the file.
	if err := os.WriteFile(l.file(hostFile+".new"), text, 0o600); err != nil {
		return fmt.Errorf("say where the backends are: %w", err)
	}
	if err := os.Rename(l.file(hostFile+".new"), l.file(hostFile)); err != nil {
		return fmt.Errorf("say where the backends are: %w", err)
	}
	<-ctx.Done()
	// The host ends: remove the databases of the run, which a foreign server would keep.
	c, err := b.connect()
	if err != nil {
		return err
	}
	err = b.drop(ctx, c, databases...)
	return errors.Join(err, c.Disconnect(context.WithoutCancel(ctx)))
}

// keptBackends starts a host that outlives the demo, and waits until it serves.
func keptBackends(ctx context.Context, o Options, l layout) (*backends, *child, error) {
	args := []string{HostCommand, "--dir", l.dir, "--databases", strings.Join(l.databases(), ",")}
	host, err := spawn("host", o.Binary, args, nil, l.file("host.log"), true)
	if err != nil {
		return nil, nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(l.file(hostFile))
		if err == nil {
			b := &backends{}
			if err := json.Unmarshal(text, b); err != nil {
				return nil, host, fmt.Errorf("read where the backends are: %w", err)
			}
			return b, host, nil
		}
		select {
		case <-ctx.Done():
			return nil, host, ctx.Err()
		// Do not wait for a file that a host that died will never write.
		case <-host.Done():
			return nil, host, &exitError{host, errExited}
		case <-tick.C:
		}
	}
}
