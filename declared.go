package dbcontroller

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/vrunner"
)

// checkKinds mounts each version once over an empty store. A resource table for an undeclared kind
// would pass all tests in memory, and then fail each write of a client.
func (s Service) checkKinds() error {
	// A fresh registry: these checks must not register anything for the server itself.
	registry := transform.NewRegistry(s.Name)
	if s.register(registry) != nil {
		return nil // the controller reports this error
	}
	for _, v := range s.Versions {
		if v.Mount == nil {
			continue
		}
		kinds := declared{}
		for _, k := range registry.Kinds(v.Name) {
			kinds[k.Name] = true
		}
		if len(kinds) == 0 {
			continue // a single version: the configuration may declare its kinds
		}
		if what := v.mountFails(kinds); what != "" {
			return fmt.Errorf("dbcontroller.Service: version %s: %s", v.Name, what)
		}
	}
	return nil
}

// mountFails returns the panic text of package resource, or "" if mounting succeeds. It ignores
// other panics: handlers may need more than this empty store offers.
func (v Version) mountFails(data Store) (what string) {
	defer func() {
		// A handler may panic because this store is empty. That is no fault of the service.
		if text, ok := recover().(string); ok && strings.HasPrefix(text, "resource: ") {
			what = text
		}
	}()
	v.Mount(http.NewServeMux(), data)
	return ""
}

// declared is an empty store that knows the kinds of its version.
type declared map[string]bool

var _ resource.Declared = declared{}

func (d declared) Declares(kind string) bool { return d[kind] }

func (declared) Get(context.Context, string, string) (record.Record, error) {
	return record.Record{}, record.ErrNotFound
}

func (declared) List(context.Context, string, string, string, int) ([]record.Record, error) {
	return nil, nil
}

func (declared) Write(context.Context, []record.Mutation) error { return record.ErrUnavailable }

func (declared) Changes(context.Context, ...string) (vrunner.Subscription, error) {
	return nil, record.ErrUnavailable
}
