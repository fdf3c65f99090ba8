package appclient

import (
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
}

// Collection is the collection of a kind. A kind that the version does not have is an error.
func (p Place) Collection(kind string) (*mongo.Collection, error) {
	var names []string
	for _, k := range p.kinds {
		if k.GetKind() == kind {
			return p.Client.Database(k.GetDatabase()).Collection(k.GetCollection()), nil
		}
		names = append(names, k.GetKind())
	}
	return nil, fmt.Errorf("version %s has no kind %q, only %s", p.Version, kind, strings.Join(names, ", "))
}

// accept takes a location, unless it is older than the one at hand.
func (a *App) accept(loc *pb.Location) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest != nil && loc.GetRevision() <= a.newest.GetRevision() {
		return
	}
	if a.newest == nil {
		a.cluster = loc.GetCluster()
	}
	a.newest = loc
	if loc.GetState() == pb.Location_OPEN {
		a.open = loc
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *App) where() *pb.Location {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newest
}

// enter waits until writing is allowed, and returns where, and the revision that this was seen
// at. Every enter that succeeds needs a leave.
func (a *App) enter(ctx context.Context) (Place, int64, error) {
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
			return place, loc.GetRevision(), err
		}
		a.mu.Unlock()
		if closed {
			return Place{}, 0, errClosed
		}
		select {
		case <-ctx.Done():
			return Place{}, 0, fmt.Errorf("writes are held for a switch: %w", ctx.Err())
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

// readable waits for the first location that is open, and returns the newest such one, and the
// revision of what is known now: a location that holds writes may name a version whose
// collections do not bear their names yet, and there reads would find nothing.
func (a *App) readable(ctx context.Context) (Place, int64, error) {
	for {
		a.mu.Lock()
		loc, changed, closed, seen := a.open, a.changed, a.closed, a.newest.GetRevision()
		a.mu.Unlock()
		switch {
		case closed:
			return Place{}, 0, errClosed
		case loc != nil:
			place, err := a.place(ctx, loc)
			return place, seen, err
		}
		select {
		case <-ctx.Done():
			return Place{}, 0, fmt.Errorf("the application was opened during a switch, which has not ended: %w", ctx.Err())
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
