package api

import (
	"fmt"
	"net/http"
	"sync"

	"connectrpc.com/connect"
)

// Several answers for the deployments of one process, by a Service for each. Its methods may be called
// concurrently. Requests must name a deployment unless there is one alone.
type Several struct {
	mu     sync.Mutex
	first  *Service
	byName map[string]*Service
}

// NewSeveral returns a Several that answers with the given Services until Set replaces one.
func NewSeveral(services ...*Service) *Several {
	v := &Several{first: services[0], byName: map[string]*Service{}}
	for _, s := range services {
		v.byName[s.own.Name()] = s
	}
	return v
}

// Set makes later calls about the deployment of s go to s. The deployment must be one of NewSeveral.
func (v *Several) Set(s *Service) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.byName[s.own.Name()] = s
}

// any returns a Service for calls that are about no deployment of this process.
func (v *Several) any() *Service {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byName[v.first.own.Name()]
}

// of returns the Service of a deployment. Any Service answers about those of other processes.
func (v *Several) of(name string) (*Service, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.byName[name]; s != nil {
		return s, nil
	}
	if name == "" && len(v.byName) > 1 {
		return nil, invalid("name", name, fmt.Sprintf("services/{service}/deployments/{region}, because this controller has %d deployments ('dbcontroller list' shows them)", len(v.byName)))
	}
	return v.byName[v.first.own.Name()], nil
}

// NewHandlerOf is NewHandler for several deployments.
func NewHandlerOf(v *Several, opts ...connect.HandlerOption) (string, http.Handler) {
	return newHandler(v, errorCodes{v.of}, opts...)
}
