package appclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// Place is the place of a version's data. Use it only in the callback that receives it.
type Place struct {
	Version string        // version of the documents here
	Client  *mongo.Client // of the cluster; writes through it count as in Collection
	// Epoch grows with each switch. Two places of one epoch are the same place.
	Epoch   int64
	kinds   []*pb.KindLocation
	attempt *attempt // nil: outcomes are not recorded
}

// Collection returns the collection of a kind. It returns an error for a kind that the version does
// not have.
func (p Place) Collection(kind string) (Collection, error) {
	database, collection, err := p.Names(kind)
	if err != nil {
		return Collection{}, err
	}
	return Collection{p.Client.Database(database).Collection(collection), p.attempt}, nil
}

// Names returns the names of a kind's database and collection here, for programs that send commands
// by themselves. It returns an error for a kind that the version does not have.
func (p Place) Names(kind string) (database, collection string, err error) {
	for _, k := range p.kinds {
		if k.GetKind() == kind {
			return k.GetDatabase(), k.GetCollection(), nil
		}
	}
	var names []string
	for _, k := range p.kinds {
		names = append(names, k.GetKind())
	}
	return "", "", fmt.Errorf("version %s has no kind %q, only %s", p.Version, kind, strings.Join(names, ", "))
}

// Fence returns the class of the fence that keeps late writes out of a kind: view, validator,
// writeBlock or uuid. It is empty if the controllers are too old to report it.
func (p Place) Fence(kind string) string {
	for _, k := range p.kinds {
		if k.GetKind() == kind {
			return k.GetFence()
		}
	}
	return ""
}

// moment orders locations. Revisions alone do not: after a loss of etcd, the recovered record
// starts with a low revision and a higher epoch.
type moment struct{ epoch, revision int64 }

func momentOf(loc *pb.Location) moment { return moment{loc.GetEpoch(), loc.GetRevision()} }

func (m moment) before(n moment) bool {
	return m.epoch < n.epoch || m.epoch == n.epoch && m.revision < n.revision
}

// otherDeploymentError means that a controller belongs to another deployment.
type otherDeploymentError struct{ of, ours, why string }

func (e otherDeploymentError) Error() string {
	return fmt.Sprintf("this is a controller of %s, not of %s: %s", e.of, e.ours, e.why)
}

// accept adopts a location unless it is older than the present one. It refuses a location of
// another deployment: equal collection names there mean other data.
func (a *App) accept(loc *pb.Location) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := loc.GetDeployment() // empty: an older controller
	if of != "" && a.name != "" && of != a.name {
		why := "correct Controllers"
		if a.cfg.Deployment == "" && a.cfg.Memory != "" {
			why += ", or remove " + a.cfg.Memory + " if this application has changed its deployment"
		}
		return otherDeploymentError{of, a.name, why}
	}
	// Controllers answer at different speeds. An older answer must not undo a newer one.
	if a.newest != nil && !momentOf(a.newest).before(momentOf(loc)) {
		return nil
	}
	// The first known deployment is final: later controllers must belong to it.
	a.name = cmp.Or(a.name, of)
	// Its identities tell more than the name of its cluster, which Mongo need not be a client of.
	if a.newest == nil && !identified(loc) {
		a.cluster = loc.GetCluster()
	}
	a.newest = loc
	if loc.GetState() == pb.Location_OPEN {
		a.open = loc
	}
	close(a.changed)
	a.changed = make(chan struct{})
	return nil
}

// deployment returns the name of the deployment; empty: not known yet.
func (a *App) deployment() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.name
}

// where returns the newest known location.
func (a *App) where() *pb.Location {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newest
}

// enter waits until writes are allowed. It returns the place, and the moment of its location. The
// caller must call leave after each successful enter.
func (a *App) enter(ctx context.Context) (Place, moment, error) {
	for {
		a.mu.Lock()
		// Take all three together: changed closes with the location after this one.
		loc, changed, closed := a.newest, a.changed, a.closed
		a.mu.Unlock()
		if closed {
			return Place{}, moment{}, errClosed
		}
		if loc.GetState() != pb.Location_OPEN {
			select {
			case <-ctx.Done():
				return Place{}, moment{}, fmt.Errorf("writes are held for a switch: %w", ctx.Err())
			case <-changed:
			}
			continue
		}
		// Not counted yet: MongoAt may take long, and a hold must not wait for a write that has not
		// begun.
		place, err := a.place(ctx, loc)
		if err == nil {
			err = a.recognize(ctx, place.Client, loc)
		}
		if err != nil {
			return Place{}, momentOf(loc), err
		}
		if a.count(loc) {
			return place, momentOf(loc), nil
		}
	}
}

// count counts a write at a location, unless a newer one has replaced it or the App was closed.
func (a *App) count(loc *pb.Location) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	// Count in the same critical section as the check. Otherwise a hold could be acknowledged in
	// between.
	if a.closed || a.newest != loc {
		return false
	}
	a.writes++
	return true
}

// leave ends a write, and wakes drained after the last one.
func (a *App) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writes--; a.writes == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// readable waits for the first open location and returns the newest open one. It also returns the
// moment of the newest location of any state. A location that holds writes is not good for reads:
// its collections may not have their names yet, and reads would find nothing.
func (a *App) readable(ctx context.Context) (Place, moment, error) {
	for {
		a.mu.Lock()
		// seen is the newest location, so that moved notices only a later change.
		loc, changed, closed, seen := a.open, a.changed, a.closed, momentOf(a.newest)
		a.mu.Unlock()
		switch {
		case closed:
			return Place{}, moment{}, errClosed
		case loc != nil:
			place, err := a.place(ctx, loc)
			if err == nil {
				err = a.recognize(ctx, place.Client, loc)
			}
			// During a switch, a fence may already hide the collections. Reads go on.
			if errors.As(err, new(otherClusterError)) && a.where().GetState() != pb.Location_OPEN {
				err = nil
			}
			return place, seen, err
		}
		select {
		case <-ctx.Done():
			return Place{}, moment{}, fmt.Errorf("the application was opened during a switch, which has not ended: %w", ctx.Err())
		case <-changed:
		}
	}
}

// drained waits until no write is in flight. It is useful only while no write can begin.
func (a *App) drained(ctx context.Context) error {
	a.mu.Lock()
	if a.writes == 0 {
		a.mu.Unlock()
		return nil
	}
	if a.idle == nil {
		a.idle = make(chan struct{})
	}
	// All waiting callers share one channel, which the last leave closes.
	idle := a.idle
	a.mu.Unlock()
	select {
	case <-ctx.Done():
		return fmt.Errorf("writes are still in flight: %w", ctx.Err())
	case <-idle:
		return nil
	}
}

// place returns the Place of a location.
func (a *App) place(ctx context.Context, loc *pb.Location) (Place, error) {
	p := Place{Version: loc.GetVersion(), Client: a.cfg.Mongo, Epoch: loc.GetEpoch(), kinds: loc.GetKinds()}
	if p.Client == nil {
		var err error
		p.Client, err = a.clientAt(ctx, loc)
		return p, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// Mongo is a client of one cluster, and would write to the wrong one. recognize checks locations
	// with identities.
	if !identified(loc) && loc.GetCluster() != a.cluster && a.cluster != "" && loc.GetCluster() != "" {
		return p, fmt.Errorf("the data of %s is in another cluster (%s): give MongoAt in place of Mongo", p.Version, loc.GetHosts())
	}
	return p, nil
}

// clientAt returns the client of a location's cluster, from MongoAt or an earlier call of it.
func (a *App) clientAt(ctx context.Context, loc *pb.Location) (*mongo.Client, error) {
	key := clusterKey(loc)
	if c := a.opened(key); c != nil {
		return c, nil
	}
	// Not under mu: MongoAt may take long, and holds must be acknowledged meanwhile.
	select {
	case a.opening <- struct{}{}:
		defer func() { <-a.opening }()
	case <-ctx.Done():
		return nil, fmt.Errorf("reach the data of %s: another call of MongoAt has not returned: %w", loc.GetVersion(), ctx.Err())
	}
	if c := a.opened(key); c != nil { // by the call that this one waited for
		return c, nil
	}
	c, err := a.cfg.MongoAt(ctx, Where{
		Version: loc.GetVersion(), Database: loc.GetDatabase(), Hosts: loc.GetHosts(), Cluster: loc.GetCluster(),
	})
	if err == nil && c == nil {
		err = errors.New("MongoAt returned no client")
	}
	if err != nil {
		return nil, fmt.Errorf("reach the data of %s: %w", loc.GetVersion(), err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clients[key] = c
	return c, nil
}

// opened returns the client of a cluster if MongoAt has returned it; nil otherwise.
func (a *App) opened(key string) *mongo.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clients[key]
}

// clusterKey identifies the cluster of a location.
func clusterKey(loc *pb.Location) string { return loc.GetCluster() + " " + loc.GetHosts() }
