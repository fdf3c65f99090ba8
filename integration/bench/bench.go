package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/coord/embedetcd"
	"dbcontroller.dev/coord/etcdcoord"
	"dbcontroller.dev/integration/bench/figures"
	"dbcontroller.dev/integration/localmongo"
)

// cacheGB is the storage cache of each server. Ten million records of 500 B exceed it.
const cacheGB = 2

// cluster is a MongoDB and a client of it.
type cluster struct {
	server *localmongo.Server
	client *mongo.Client
}

// bench is what all scenarios share.
type bench struct {
	settings
	sheet
	begun    time.Time
	dir      string // removed at the end
	named    string // figures.Scale, or empty
	machine  figures.Machine
	versions map[string]string
	known    []figures.Peer

	held     float64       // ms, in the latest switches of the pause; 0: none were made
	fastest  time.Duration // copy of any peer; 0: none ran
	mainCopy []copied      // of copy.fixed, for what is compared with it

	from, to *cluster // of the source and of the target
	etcd     *embedetcd.Server
	coord    *etcdcoord.Store

	filling sync.Mutex
	filled  map[string]bool // datasets, by database
}

func open(ctx context.Context, o settings) (_ *bench, err error) {
	b := &bench{settings: o, begun: time.Now(), machine: machine(), filled: map[string]bool{}, versions: map[string]string{"go": runtime.Version()}}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if o.scale > 0 {
		b.named, b.rows = figures.Scale, figures.ScaleRows(o.scale)
	} else {
		b.rows = append(figures.Rows(), peerRows()...)
		neverMeasured(&b.sheet)
	}
	of := figures.File{Name: b.named}
	for i := range b.rows {
		r := &b.rows[i]
		r.Command = of.Alone("^" + strings.ReplaceAll(r.Name, ".", "[.]") + "$")
	}
	if b.dir, err = os.MkdirTemp("", "dbcontroller-bench-"); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(o.programs, "dbcontroller")); err != nil {
		return nil, fmt.Errorf("no program dbcontroller: %w (make build)", err)
	}
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		b.versions["dbcontroller"] = strings.TrimSpace(string(out))
	}
	for _, c := range []**cluster{&b.from, &b.to} {
		if *c, err = start(ctx, localmongo.Options{CacheGB: cacheGB, OplogMB: 8000, Own: true, Dir: os.TempDir()}); err != nil {
			return nil, err
		}
	}
	b.versions["mongodb"] = b.from.server.Version()
	if b.etcd, err = embedetcd.Start(ctx, embedetcd.Config{Dir: filepath.Join(b.dir, "etcd")}); err != nil {
		return nil, err
	}
	b.coord, err = etcdcoord.Open(ctx, etcdcoord.Config{Endpoints: b.etcd.Endpoints()})
	return b, err
}

func start(ctx context.Context, o localmongo.Options) (*cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	server, err := localmongo.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		return nil, errors.Join(err, server.Stop(context.WithoutCancel(ctx)))
	}
	return &cluster{server, client}, nil
}

func (c *cluster) stop() {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace/2)
	defer cancel()
	_ = c.client.Disconnect(ctx)
	_ = c.server.Stop(ctx) // it dies with this process at the latest
}

func (b *bench) close() {
	if b.coord != nil {
		_ = b.coord.Close()
	}
	if b.etcd != nil {
		_ = b.etcd.Close()
	}
	b.from.stop()
	b.to.stop()
	_ = os.RemoveAll(b.dir)
}

// scratch is a name of a database that nothing else has.
func scratch(what string) string { return "dbc_bench_" + strings.ToLower(rand.Text()[:8]) + "_" + what }

// drop removes a database, also when the run's time is over.
func (c *cluster) drop(ctx context.Context, database string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace/3)
	defer cancel()
	_ = c.client.Database(database).Drop(ctx) // scratch; the server goes with this process
}

// clear leaves nothing in a database but the collections named, as if no deployment had ever been
// there.
func (c *cluster) clear(ctx context.Context, database string, but map[string]bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace/3)
	defer cancel()
	db := c.client.Database(database)
	names, _ := db.ListCollectionNames(ctx, bson.D{}) // what stays is refused by the next deployment, by name
	for _, name := range names {
		if !but[name] {
			_ = db.Collection(name).Drop(ctx)
		}
	}
}
