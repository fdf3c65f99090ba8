package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/appclient"
	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/internal/proxy/names"
	"dbcontroller.dev/internal/proxy/upstream"
)

// Deployment is a deployment whose kinds the application uses through the proxy.
type Deployment struct {
	// Controllers are the addresses of its controllers.
	Controllers []string
	// Access holds the proxy's credentials for them.
	Access client.Config
	// Name is the deployment's name. Empty: that of the first controller that answers.
	Name string
	// Application is the name by which the proxy registers.
	Application string
	// Database and Collections are the names that the application uses for ever: the database, and the
	// kind of each of its collections that move.
	Database    string
	Collections map[string]string
	// URIs are the connection strings of the versions' clusters, by version.
	URIs map[string]string
	// Memory is a file for the last known place (appclient.Config.Memory).
	Memory string
}

// deployed is a deployment that the proxy follows.
type deployed struct {
	cfg     Deployment
	app     *appclient.App
	own     []*upstream.Cluster // of all versions, each once
	retried retried
	latest  latest
	settled settled
	faults  *faults
	// reads is closed when a hold waits for open cursors to be read for the first time.
	reads chan struct{}

	mu       sync.Mutex
	clusters map[*mongo.Client]*upstream.Cluster
	strong   map[*upstream.Cluster]bool // clusters whose fences are known to refuse every late write
}

// place is where the data of a deployment is.
type place struct {
	cluster *upstream.Cluster
	version string
	epoch   int64 // grows with each switch
	// revision is that of the newest location when the command came. It changes with each attempt of a
	// switch, and with other changes of a deployment.
	revision int64
	weak     bool // the fence here lets some late writes pass, deletes among them
	hides    bool // the fence here renames the collection, so that a read can find nothing for a moment
	names    names.Map
}

// follow opens a deployment. clusters opens a cluster, or returns the open one.
func follow(ctx context.Context, cfg Deployment, clusters func(uri string) (*upstream.Cluster, error), log *slog.Logger, faults *faults) (*deployed, error) {
	d := &deployed{cfg: cfg, faults: faults, reads: make(chan struct{}), clusters: map[*mongo.Client]*upstream.Cluster{}, strong: map[*upstream.Cluster]bool{}}
	// All of them, also those without the data now: a write that is sent again may have been made there.
	for _, uri := range cfg.URIs {
		cluster, err := clusters(uri)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(d.own, cluster) {
			d.own = append(d.own, cluster)
		}
	}
	app, err := appclient.Open(ctx, appclient.Config{
		Controllers: cfg.Controllers, Access: cfg.Access, Deployment: cfg.Name, Application: cfg.Application, Memory: cfg.Memory, Log: log,
		Recover: func(what string, fault any) error {
			faults.note(what, fault)
			return errFault
		},
		MongoAt: func(_ context.Context, at appclient.Where) (*mongo.Client, error) {
			uri, ok := cfg.URIs[at.Version]
			if !ok {
				return nil, fmt.Errorf("the configuration has no uri for version %s, in the cluster at %s", at.Version, at.Hosts)
			}
			cluster, err := clusters(uri)
			if err != nil {
				return nil, err
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.clusters[cluster.Client()] = cluster
			return cluster.Client(), nil
		},
	})
	if err != nil {
		return nil, err
	}
	d.app = app
	return d, nil
}

// has reports whether a namespace of the application moves with this deployment.
func (d *deployed) has(database, collection string) bool {
	_, ok := d.cfg.Collections[collection]
	return ok && database == d.cfg.Database
}

// at returns the place that appclient found.
func (d *deployed) at(p appclient.Place) (place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := place{
		cluster: d.clusters[p.Client], version: p.Version, epoch: p.Epoch, revision: d.app.Revision(),
		names: names.Map{Database: d.cfg.Database, To: map[string]string{}},
	}
	for face, kind := range d.cfg.Collections {
		database, collection, err := p.Names(kind)
		if err != nil {
			continue // a version without this kind: commands on it are refused
		}
		if out.names.Place == "" {
			out.names.Place = database
		}
		if database == out.names.Place {
			out.names.To[face] = collection
		}
		switch p.Fence(kind) {
		case fenceView:
			out.hides = true
		case fenceWriteBlock:
		case fenceUUID:
			// Its fence is a rename. A late write by name would make a new collection there.
			return out, fmt.Errorf("the kind %s of %s has no fixed name: a proxy serves only kinds with fixed names", kind, p.Version)
		case "": // a controller that does not report the class
			out.weak, out.hides = true, true
		default: // a validator
			out.weak = true
		}
	}
	if out.names.Place == "" {
		return out, fmt.Errorf("version %s has none of the kinds that the configuration names", p.Version)
	}
	d.strong[out.cluster] = !out.weak
	return out, nil
}

// Classes of fences, as controllers report them.
const (
	fenceView       = "view"
	fenceWriteBlock = "writeBlock"
	fenceUUID       = "uuid"
)

// refusesLate reports whether the fence of a cluster is known to refuse every late write.
func (d *deployed) refusesLate(cluster *upstream.Cluster) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.strong[cluster]
}

// again makes appclient run its callback again if the data has moved.
var again = appclient.ErrMoved

// write runs do where the data is, when writes are allowed. do returns again if a fence may have refused
// it and nothing, or a part that do knows, was written. If the data has moved, do runs once more.
func (d *deployed) write(ctx context.Context, do func(ctx context.Context, at place) error) error {
	err := d.app.Write(ctx, func(ctx context.Context, p appclient.Place) error {
		at, err := d.at(p)
		if err != nil {
			return err
		}
		return do(ctx, at)
	})
	if errors.Is(err, again) && !errors.Is(err, appclient.ErrNotWritten) {
		return nil // the refusal had another reason, and do keeps the reply
	}
	return err
}

// read is write for a read.
func (d *deployed) read(ctx context.Context, do func(ctx context.Context, at place) error) error {
	err := d.app.Read(ctx, func(ctx context.Context, p appclient.Place) error {
		at, err := d.at(p)
		if err != nil {
			return err
		}
		return do(ctx, at)
	})
	if errors.Is(err, again) {
		return nil // do keeps the reply
	}
	return err
}

// refused reports whether a fence has refused a command at a place. It asks the controllers if this proxy knows of no
// switch: the fence can come before the news of the hold.
func (p *Proxy) refused(ctx context.Context, d *deployed, at place, reply bsoncore.Document) bool {
	if !fenced(reply) && !slices.ContainsFunc(writeErrors(reply), func(e writeError) bool { return fenced(e.raw) }) {
		return false
	}
	moves := func() bool {
		held, _ := d.app.Holding()
		return held || d.app.Epoch() != at.epoch
	}
	// The news may come during the question, and end it with the transaction.
	return moves() || p.moving(ctx, d, at) || moves()
}

// enter counts a transaction as a write until done is called. abort is called before that if a switch has
// held writes for longer than grace, or if idle reports that the client has gone.
func (d *deployed) enter(ctx, life context.Context, grace time.Duration, idle func() bool, abort func()) (at place, done func(), err error) {
	type result struct {
		at  place
		err error
	}
	entered := make(chan result, 1)
	finished := make(chan struct{})
	waits, stop := context.WithCancel(life)
	// The wait belongs to the command, the transaction does not.
	unlink := context.AfterFunc(ctx, stop)
	go func() {
		defer stop()
		var err error
		in := false
		fault := d.faults.run("the guard of a transaction", func() {
			err = d.write(waits, func(_ context.Context, at place) error {
				unlink()
				in = true
				entered <- result{at: at}
				d.guard(life, at, finished, grace, idle, abort)
				return nil
			})
		})
		switch {
		case fault != nil && in:
			// It counts as a write no longer, so a switch would not wait for it.
			_ = d.faults.run("the abort of a transaction", abort)
		case fault != nil:
			entered <- result{err: fault}
		case err != nil:
			entered <- result{err: err}
		}
	}()
	r := <-entered
	if r.err != nil {
		return at, nil, r.err
	}
	return r.at, sync.OnceFunc(func() { close(finished) }), nil
}

// lookForIdle is the interval at which guard asks whether a transaction is idle.
const lookForIdle = 10 * time.Second

// guard waits for the end of a transaction, and calls abort once if it must end.
func (d *deployed) guard(life context.Context, at place, finished <-chan struct{}, grace time.Duration, idle func() bool, abort func()) {
	look := time.NewTicker(lookForIdle)
	defer look.Stop()
	var late <-chan time.Time
	for {
		held, changed := d.app.Holding()
		// The news of the hold and of the next place can come together.
		leaves := held || d.app.Epoch() != at.epoch
		switch {
		case leaves && late == nil:
			t := time.NewTimer(grace)
			defer t.Stop()
			late = t.C
		case !leaves:
			late = nil
		}
		select {
		case <-finished:
			return
		case <-life.Done():
			return
		case <-late:
			abort()
			return
		case <-look.C:
			if idle() {
				abort()
				return
			}
		case <-changed:
		}
	}
}
