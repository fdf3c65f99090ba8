package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/bench/figures"
	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/coord/embedetcd"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

// cacheGB is the storage cache of each server in GB. Ten million records of 500 B exceed it.
const cacheGB = 2

// cluster is a MongoDB with a client.
type cluster struct {
	server *localmongo.Server
	client *mongo.Client
}

// bench is the state that all scenarios share.
type bench struct {
	settings
	sheet
	begun    time.Time
	dir      string // removed on close
	named    string // figures.Scale, or empty
	machine  figures.Machine
	versions map[string]string
	known    []figures.Peer
	wanted   *regexp.Regexp // rows to measure, by -only; nil: all

	held     float64       // ms, from the latest pause scenario; 0: not measured yet
	fastest  time.Duration // fastest copy by any peer; 0: none ran
	mainCopy []copied      // results of copy.fixed, for comparisons with them

	from, to *cluster // clusters of the source and the target
	etcd     *embedetcd.Server
	coord    *etcdcoord.Store

	filling sync.Mutex
	filled  map[string]bool // existing datasets, by database
}

// asked reports whether a row is to be measured. Scenarios ask for rows that take long.
func (b *bench) asked(row string) bool { return b.wanted == nil || b.wanted.MatchString(row) }

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
		// Rows exist before any measurement, so that each missing one appears with its reason.
		b.rows = append(figures.Rows(), peerRows()...)
		neverMeasured(&b.sheet)
	}
	// Each row states the command that measures it alone, so that a reader can repeat it.
	of := figures.File{Name: b.named}
	for i := range b.rows {
		r := &b.rows[i]
		r.Command = of.Alone("^" + strings.ReplaceAll(r.Name, ".", "[.]") + "$")
	}
	if b.dir, err = os.MkdirTemp("", "dbcontroller-bench-"); err != nil {
		return nil, err
	}
	// A missing program would otherwise fail each scenario by itself, minutes later.
	if _, err := os.Stat(filepath.Join(o.programs, "dbcontroller")); err != nil {
		return nil, fmt.Errorf("no program dbcontroller: %w (make build)", err)
	}
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		b.versions["dbcontroller"] = strings.TrimSpace(string(out))
	}
	// os.TempDir() is usually on a disk: data in memory would hide a cost that users have.
	for _, c := range []**cluster{&b.from, &b.to} {
		if *c, err = start(ctx, localmongo.Options{CacheGB: cacheGB, OplogMB: 8000, Own: true, Dir: os.TempDir()}); err != nil {
			return nil, err
		}
	}
	b.versions["mongodb"] = b.from.server.Version()
	// In this process, so that the controllers' processor time does not include etcd's.
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
	// The run's context has usually ended, and the clean-up needs a limit of its own.
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

// scratch returns an unused database name.
func scratch(what string) string { return "dbc_bench_" + strings.ToLower(rand.Text()[:8]) + "_" + what }

// drop removes a database, even after the run's deadline.
func (c *cluster) drop(ctx context.Context, database string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace/3)
	defer cancel()
	_ = c.client.Database(database).Drop(ctx) // best effort: the server ends with this process
}

// clear removes all collections of a database except the named ones. The next deployment must find
// no trace of this one.
func (c *cluster) clear(ctx context.Context, database string, but map[string]bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace/3)
	defer cancel()
	db := c.client.Database(database)
	names, _ := db.ListCollectionNames(ctx, bson.D{}) // a leftover makes the next deployment fail with its name
	for _, name := range names {
		if !but[name] {
			_ = db.Collection(name).Drop(ctx)
		}
	}
}
