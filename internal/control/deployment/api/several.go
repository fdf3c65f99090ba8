package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/control/deployment"
)

// Several answers for the deployments of one process, by a Service for each. Its methods may be called
// concurrently. Requests must name a deployment unless there is one alone.
type Several struct {
	mu     sync.Mutex
	first  string // name of the first deployment
	byName map[string]answering
}

// answering is a Service that answers for its deployment until replaced is closed.
type answering struct {
	*Service
	replaced chan struct{}
}

// NewSeveral returns a Several that answers with the given Services until Set replaces one.
func NewSeveral(services ...*Service) *Several {
	v := &Several{first: services[0].own.Name(), byName: map[string]answering{}}
	for _, s := range services {
		v.byName[s.own.Name()] = answering{s, make(chan struct{})}
	}
	return v
}

// Set makes later calls about the deployment of s go to s. The deployment must be one of NewSeveral. Long
// calls to the replaced Service end with STOPPING, so that their callers come to s. Otherwise a watch
// would show for ever what the replaced Service knows. That Service may return by another Set.
func (v *Several) Set(s *Service) {
	v.mu.Lock()
	defer v.mu.Unlock()
	name := s.own.Name()
	close(v.byName[name].replaced)
	v.byName[name] = answering{s, make(chan struct{})}
}

// Runs reports whether this process answers about a deployment by itself. Requests without a name are
// about its own.
func (v *Several) Runs(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.byName[name]
	return ok || name == ""
}

// Stored reports whether the coordination store of this process has a deployment, even one that cannot be
// read. An invalid name is not stored.
func (v *Several) Stored(ctx context.Context, name string) (bool, error) {
	s, err := v.any().own.Other(name)
	if err != nil {
		return false, nil //nolint:nilerr // the call itself reports the wrong name
	}
	_, err = s.Get(ctx)
	switch {
	case errors.Is(err, deployment.ErrNotFound):
		return false, nil
	case err == nil, errors.Is(err, deployment.ErrFormat), errors.Is(err, deployment.ErrCorrupt):
		return true, nil
	}
	return false, err
}

// any returns a Service for calls that are about no deployment of this process.
func (v *Several) any() *Service {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byName[v.first].Service
}

// of returns the Service of a deployment. Any Service answers about those of other processes.
func (v *Several) of(name string) (*Service, error) {
	a, err := v.find(name)
	return a.Service, err
}

// long is of for a call that can last. The Service ends the call when Set replaces it.
func (v *Several) long(ctx context.Context, name string) (context.Context, *Service, error) {
	a, err := v.find(name)
	return context.WithValue(ctx, replacedKey{}, a.replaced), a.Service, err
}

func (v *Several) find(name string) (answering, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a, ok := v.byName[name]; ok {
		return a, nil
	}
	if name == "" && len(v.byName) > 1 {
		return answering{}, invalid("name", name, fmt.Sprintf("services/{service}/deployments/{region}, because this controller has %d deployments ('dbcontroller list' shows them)", len(v.byName)))
	}
	return v.byName[v.first], nil
}

type replacedKey struct{}

// replaced returns a channel that is closed when another Service takes the place of the one that got a
// call. It is nil for a Service that is alone. Cancelling ctx itself would look as if the caller had gone.
func replaced(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(replacedKey{}).(chan struct{})
	return c
}

// NewHandlerOf is NewHandler for several deployments. front answers in front of v, or is v.
func NewHandlerOf(v *Several, front dbcontrollerv1connect.DeploymentServiceHandler, opts ...connect.HandlerOption) (string, http.Handler) {
	return newHandler(front, errorCodes{v.of}, opts...)
}
