package dbcontroller

import (
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	serverapp "dbcontroller.dev/cmd/server/app"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// Server is the service as package cmd/server/app serves it, which tests of this project
// start with stores of their own. It is not part of what is stable.
func (s Service) Server() serverapp.Service {
	out := serverapp.Service{Name: s.Name, Stack: s.stack, Watches: s.Watches}
	for _, v := range s.Versions {
		out.Versions = append(out.Versions, v.Name)
		out.APIs = append(out.APIs, v.APIs...)
	}
	if out.Watches == nil {
		out.Watches = func(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption) {
			resource.MountWatches(mux, r, out.APIs, opts...)
		}
	}
	return out
}

// stack builds what belongs to a version while it is active.
func (s Service) stack(active string, views map[string]*vrunner.View, opts ...connect.HandlerOption) vrunner.Stack {
	stores := map[string]Store{}
	var apis []protoreflect.ServiceDescriptor
	for _, v := range s.Versions {
		apis = append(apis, v.APIs...)
		if store := vrunner.StoreOf(views[v.Name]); store != nil {
			stores[v.Name] = store
		}
	}
	reads := apiversion.Readers(apis...)
	out := vrunner.Stack{Write: func(r *http.Request) bool { return !reads(r.URL.Path) }}
	for _, v := range s.Versions {
		if v.Name == active {
			out.Fixtures = v.Fixtures
			if v.Controllers != nil {
				out.Controllers = v.Controllers(stores[active])
			}
		}
	}
	if s.Stacks != nil {
		out.Handler = s.Stacks(active, stores, opts...)
	} else {
		out.Handler = s.composed(active, stores, reads, opts)
	}
	return out
}

// composed serves the active version over its data, the older ones over what they see of
// these, and the next one over the data that sync has brought, to be read.
func (s Service) composed(active string, stores map[string]Store, reads func(string) bool, opts []connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	for i, v := range s.Versions {
		if v.Name != active {
			continue
		}
		data := stores[active]
		v.Mount(mux, data, opts...)
		for older := i - 1; older >= 0 && s.Versions[older+1].Before != nil; older-- {
			data = s.Versions[older+1].Before(data)
			s.Versions[older].Mount(mux, data, opts...)
		}
		if i+1 < len(s.Versions) && stores[s.Versions[i+1].Name] != nil {
			next := s.Versions[i+1]
			ahead := http.NewServeMux()
			next.Mount(ahead, stores[next.Name], opts...)
			why := fmt.Sprintf("%s is the active version: write through %s until the upgrade to %s has completed", active, names(v.APIs), next.Name)
			readOnly := apiversion.ReadOnly(ahead, reads, why, opts...)
			for _, api := range next.APIs {
				mux.Handle("/"+string(api.FullName())+"/", readOnly)
			}
		}
	}
	return mux
}

func names(apis []protoreflect.ServiceDescriptor) string {
	var out []string
	for _, api := range apis {
		out = append(out, string(api.FullName()))
	}
	return strings.Join(out, " and ")
}
