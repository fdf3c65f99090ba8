package dbcontroller

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	serverapp "dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/vrunner"
)

// Server returns the service in the form that package internal/program/server/app serves. Tests of this project
// start it with their own stores. It is not part of the stable API.
func (s Service) Server() serverapp.Service {
	out := serverapp.Service{Name: s.Name, APIs: s.apis(), Stack: s.stack, Front: s.front, Watches: s.Watches}
	if out.Watches == nil {
		out.Watches = func(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption) {
			resource.MountWatches(mux, r, s.apis(), opts...)
			resource.MountImports(mux, r, s.apis(), opts...)
		}
	}
	// The server reads lists by these fields only. The controller builds their indexes.
	out.Indexes, out.Copied = map[string]map[string][]string{}, map[string]map[string]serverapp.Copied{}
	out.Engine, out.Search = s.Search, map[string]map[string]serverapp.Searched{}
	for _, v := range s.Versions {
		out.Versions = append(out.Versions, v.Name)
		out.Indexes[v.Name] = v.Indexes
		out.Search[v.Name] = v.searched()
		if copied, err := v.copied(); err == nil { // check has reported the error
			out.Copied[v.Name] = copied
		}
	}
	if r := transform.NewRegistry(s.Name); s.register(r) == nil { // the controller reports this error
		out.Kinds = map[string][]string{}
		for _, v := range s.Versions {
			for _, k := range r.Kinds(v.Name) {
				out.Kinds[v.Name] = append(out.Kinds[v.Name], k.Name)
			}
		}
	}
	return out
}

// Handler returns the handler that serves all APIs while the active version's data is in use,
// exactly as a server does behind its port. stores has one entry for each version with data. It is
// for tests of a service.
func (s Service) Handler(active string, stores map[string]Store, opts ...connect.HandlerOption) http.Handler {
	return s.front(s.handlers(active, stores, opts))
}

// handlers returns the handlers of all procedures.
func (s Service) handlers(active string, stores map[string]Store, opts []connect.HandlerOption) http.Handler {
	if s.Stacks != nil {
		return s.Stacks(active, stores, opts...)
	}
	return s.composed(active, stores, opts)
}

// front puts REST in front of all procedures, if the service has it.
func (s Service) front(next http.Handler) http.Handler {
	if s.REST == nil {
		return next
	}
	h, err := s.REST(s.apis(), next)
	if err != nil {
		panic(err) // check has already built it once
	}
	return h
}

// stack builds the handler, fixtures and background work of a version for the time it is active.
func (s Service) stack(active string, views map[string]*vrunner.View, here serverapp.Regions, opts ...connect.HandlerOption) vrunner.Stack {
	// A version without a database has no view, and nothing may be mounted over it.
	stores := map[string]Store{}
	for _, v := range s.Versions {
		if store := vrunner.StoreOf(views[v.Name]); store != nil {
			stores[v.Name] = store
		}
	}
	// The gate holds writes at a switch. Unknown paths count as writes: they might change data.
	reads := apiversion.Readers(s.apis()...)
	streams := s.streams()
	out := vrunner.Stack{
		Handler: region.Handler(s.handlers(active, s.regional(stores, here), opts)),
		Write:   func(r *http.Request) bool { return !reads(r.URL.Path) },
		Stream:  func(r *http.Request) bool { return streams[r.URL.Path] },
	}
	for _, v := range s.Versions {
		if v.Name == active {
			out.Fixtures = v.Fixtures
			if v.Controllers != nil {
				out.Controllers = v.Controllers(v.alone(stores[active], here)) // owned records only: copies are not theirs
			}
		}
	}
	out.Observers = s.observations(active, stores, here)
	return out
}

// observed reports whether an observer needs the data of version i, or of one before it.
func (s Service) observed(i int) bool {
	return slices.ContainsFunc(s.Versions[:i+1], func(v Version) bool { return len(v.Observers) > 0 })
}

// observations returns the observers of all versions that are served while a version is active, each
// with the data that its version's handlers have, without what other regions own.
func (s Service) observations(active string, stores map[string]Store, here serverapp.Regions) (out []vrunner.Observation) {
	add := func(v Version, data Store) {
		for _, o := range v.Observers {
			out = append(out, vrunner.Observation{Observer: o, Version: v.Name, Data: data})
		}
	}
	for i, v := range s.Versions {
		if v.Name != active {
			continue
		}
		data := v.alone(stores[active], here)
		add(v, data)
		for at := i; at > 0 && !s.Versions[at].Discontinued && s.observed(at-1); at-- {
			data = s.before(at, data)
			add(s.Versions[at-1], data)
		}
		if i+1 < len(s.Versions) && stores[s.Versions[i+1].Name] != nil {
			next := s.Versions[i+1]
			add(next, next.alone(stores[next.Name], here))
		}
	}
	return out
}

// apis returns the APIs of all versions.
func (s Service) apis() []protoreflect.ServiceDescriptor {
	var all []protoreflect.ServiceDescriptor
	for _, v := range s.Versions {
		all = append(all, v.APIs...)
	}
	return all
}

// streams returns the procedures that only read and respond with a stream.
func (s Service) streams() map[string]bool {
	out := map[string]bool{}
	for _, api := range s.apis() {
		for i := range api.Methods().Len() {
			if m := api.Methods().Get(i); m.IsStreamingServer() && apiversion.IsRead(m) {
				out[apiversion.Procedure(m)] = true
			}
		}
	}
	return out
}

// composed returns the default handler. It serves the active version over its data, and older
// versions over the same data converted to their form. It serves the next version read-only over
// the data that sync has copied so far. A call to any other version gets an error that names the
// served ones.
func (s Service) composed(active string, stores map[string]Store, opts []connect.HandlerOption) http.Handler {
	mux, reads := http.NewServeMux(), apiversion.Readers(s.apis()...)
	var served []protoreflect.ServiceDescriptor // oldest first
	for i, v := range s.Versions {
		if v.Name != active {
			continue
		}
		data := stores[active]
		v.Mount(mux, data, opts...)
		served = v.APIs
		// Each step converts the data once more, until a version that discontinued its
		// predecessors.
		for at := i; at > 0 && !s.Versions[at].Discontinued; at-- {
			data = s.before(at, data)
			s.Versions[at-1].Mount(mux, data, opts...)
			served = slices.Concat(s.Versions[at-1].APIs, served)
		}
		if i+1 < len(s.Versions) && stores[s.Versions[i+1].Name] != nil {
			// A client can compare the copied data with its own before the switch.
			next := s.Versions[i+1]
			ahead := http.NewServeMux()
			next.Mount(ahead, stores[next.Name], opts...)
			why := fmt.Sprintf("%s is the active version: write through %s until the upgrade to %s has completed", active, names(v.APIs), next.Name)
			// Until the flip, sync owns the next version's data: a client's write there would be
			// overwritten.
			readOnly := apiversion.ReadOnly(ahead, reads, why, opts...)
			for _, api := range next.APIs {
				mux.Handle("/"+string(api.FullName())+"/", readOnly)
			}
			served = slices.Concat(served, next.APIs)
		}
	}
	return apiversion.NewRange(served, s.apis()).Handler(mux)
}

// before presents data of version i in the form of the version before it.
func (s Service) before(i int, data Store) Store {
	v := s.Versions[i]
	if v.Before != nil {
		return v.Before(data)
	}
	a, err := s.adapter(i, data)
	if err != nil {
		panic(err) // check has already built it once
	}
	return vrunner.Over(data, a)
}

var _ adapt.PagingStore = (*vrunner.View)(nil) // lists need these optional methods

// adapter builds the conversion that before uses, from the transformers between both versions.
func (s Service) adapter(i int, data Store) (*adapt.Adapter, error) {
	r := transform.NewRegistry(s.Name)
	if err := s.register(r); err != nil {
		return nil, err
	}
	older, newer := s.Versions[i-1].Name, s.Versions[i].Name
	// Reads need the conversion to the older version, and writes the one back.
	show, err := r.Direction(newer, older)
	if err != nil {
		return nil, err
	}
	keep, err := r.Direction(older, newer)
	if err != nil {
		return nil, err
	}
	return adapt.New(data, show, keep, s.Versions[i].Adapt)
}

func names(apis []protoreflect.ServiceDescriptor) string {
	var out []string
	for _, api := range apis {
		out = append(out, string(api.FullName()))
	}
	return strings.Join(out, " and ")
}
