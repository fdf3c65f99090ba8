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

// Place is where the data of a version is.
type Place struct {
	Version string // whose form documents have here
	Client  *mongo.Client
	kinds   []*pb.KindLocation
	attempt *attempt // nil: it does not matter how what fails here has failed
}

// Collection is where a kind is. A kind that the version does not have is an error.
func (p Place) Collection(kind string) (Collection, error) {
	var names []string
	for _, k := range p.kinds {
		if k.GetKind() == kind {
			return Collection{p.Client.Database(k.GetDatabase()).Collection(k.GetCollection()), p.attempt}, nil
		}
		names = append(names, k.GetKind())
	}
	return Collection{}, fmt.Errorf("version %s has no kind %q, only %s", p.Version, kind, strings.Join(names, ", "))
}

// moment orders locations. Revisions alone do not: they begin anew in the record that is
// recovered after etcd was lost, with a higher epoch.
type moment struct{ epoch, revision int64 }

func momentOf(loc *pb.Location) moment { return moment{loc.GetEpoch(), loc.GetRevision()} }

func (m moment) before(n moment) bool {
	return m.epoch < n.epoch || m.epoch == n.epoch && m.revision < n.revision
}

// otherDeploymentError says that a controller is one of another deployment.
type otherDeploymentError struct{ of, ours, why string }

func (e otherDeploymentError) Error() string {
	return fmt.Sprintf("this is a controller of %s, not of %s: %s", e.of, e.ours, e.why)
}

// accept takes a location, unless it is older than the one at hand. One of another deployment
// is refused: its collections are not those of this application, whatever they are called.
func (a *App) accept(loc *pb.Location) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := loc.GetDeployment() // empty: a controller that does not say so yet
	if of != "" && a.name != "" && of != a.name {
		why := "correct Controllers"
		if a.cfg.Deployment == "" && a.cfg.Memory != "" {
			why += ", or remove " + a.cfg.Memory + " if this application has changed its deployment"
		}
		return otherDeploymentError{of, a.name, why}
	}
	if a.newest != nil && !momentOf(a.newest).before(momentOf(loc)) {
		return nil
	}
	a.name = cmp.Or(a.name, of)
	if a.newest == nil {
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

// deployment is the name of the deployment; empty: the controllers know.
func (a *App) deployment() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.name
}

func (a *App) where() *pb.Location {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newest
}

// enter waits until writing is allowed, and returns where, and when this was so. Every enter that succeeds needs a leave.
func (a *App) enter(ctx context.Context) (Place, moment, error) {
	for {
		a.mu.Lock()
		loc, changed, closed := a.newest, a.changed, a.closed
		if !closed && loc.GetState() == pb.Location_OPEN {
			a.writes++
			a.mu.Unlock()
			place, err := a.place(ctx, loc)
			if err != nil {
				a.leave()
			}
			return place, momentOf(loc), err
		}
		a.mu.Unlock()
		if closed {
			return Place{}, moment{}, errClosed
		}
		select {
		case <-ctx.Done():
			return Place{}, moment{}, fmt.Errorf("writes are held for a switch: %w", ctx.Err())
		case <-changed:
		}
	}
}

func (a *App) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writes--; a.writes == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// readable waits for the first location that is open, and returns the newest such one, and how
// new what is known now is: a location that holds writes may name a version whose
// collections do not bear their names yet, and there reads would find nothing.
func (a *App) readable(ctx context.Context) (Place, moment, error) {
	for {
		a.mu.Lock()
		loc, changed, closed, seen := a.open, a.changed, a.closed, momentOf(a.newest)
		a.mu.Unlock()
		switch {
		case closed:
			return Place{}, moment{}, errClosed
		case loc != nil:
			place, err := a.place(ctx, loc)
			return place, seen, err
		}
		select {
		case <-ctx.Done():
			return Place{}, moment{}, fmt.Errorf("the application was opened during a switch, which has not ended: %w", ctx.Err())
		case <-changed:
		}
	}
}

// drained waits until no write is in flight. It makes sense only while none can begin.
func (a *App) drained(ctx context.Context) error {
	a.mu.Lock()
	if a.writes == 0 {
		a.mu.Unlock()
		return nil
	}
	if a.idle == nil {
		a.idle = make(chan struct{})
	}
	idle := a.idle
	a.mu.Unlock()
	select {
	case <-ctx.Done():
		return fmt.Errorf("writes are still in flight: %w", ctx.Err())
	case <-idle:
		return nil
	}
}

// place opens a location.
func (a *App) place(ctx context.Context, loc *pb.Location) (Place, error) {
	p := Place{Version: loc.GetVersion(), Client: a.cfg.Mongo, kinds: loc.GetKinds()}
	if p.Client == nil {
		var err error
		p.Client, err = a.clientAt(ctx, loc)
		return p, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if loc.GetCluster() != a.cluster && a.cluster != "" && loc.GetCluster() != "" {
		return p, fmt.Errorf("the data of %s is in another cluster (%s): give MongoAt in place of Mongo", p.Version, loc.GetHosts())
	}
	return p, nil
}

func (a *App) clientAt(ctx context.Context, loc *pb.Location) (*mongo.Client, error) {
	key := loc.GetCluster() + " " + loc.GetHosts()
	// Not under mu: it may take its time, and holds have to be acknowledged meanwhile.
	a.opening.Lock()
	defer a.opening.Unlock()
	if c := a.clients[key]; c != nil {
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
	a.clients[key] = c
	return c, nil
}
