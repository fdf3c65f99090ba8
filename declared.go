package dbcontroller

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"dbcontroller.dev/internal/engine/sink"
	serverapp "dbcontroller.dev/internal/program/server/app"
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

// checkSearch refuses searchable fields that cannot be read, and kinds that their version does not
// have.
func (s Service) checkSearch() error {
	registry := transform.NewRegistry(s.Name)
	if s.register(registry) != nil {
		return nil // the controller reports this error
	}
	for _, v := range s.Versions {
		known := registry.Kinds(v.Name)
		for _, kind := range slices.Sorted(maps.Keys(v.Search)) {
			if len(known) > 0 && !slices.ContainsFunc(known, func(k record.KindSpec) bool { return k.Name == kind }) {
				return fmt.Errorf("dbcontroller.Service: Search of version %s: the version has no kind %s", v.Name, kind)
			}
			for i, field := range v.Search[kind].Fields {
				if err := record.CheckIndexed(field); err != nil {
					return fmt.Errorf("dbcontroller.Service: Search of version %s: %s: %w", v.Name, kind, err)
				}
				if slices.Contains(v.Search[kind].Fields[:i], field) {
					return fmt.Errorf("dbcontroller.Service: Search of version %s: %s: %s is there twice", v.Name, kind, field)
				}
			}
		}
	}
	return nil
}

// searched returns what of each kind is searchable, as a server needs it.
func (v Version) searched() map[string]serverapp.Searched {
	out := map[string]serverapp.Searched{}
	for kind, d := range v.Search {
		s := serverapp.Searched{Fields: d.Fields, Revision: d.Revision}
		if d.Document != nil {
			s.Transform = func(r record.Record) (sink.Document, error) { return d.Document(r.Doc) }
		}
		out[kind] = s
	}
	return out
}

// checkIndexes refuses invalid index fields, and kinds that their version does not have.
func (s Service) checkIndexes() error {
	registry := transform.NewRegistry(s.Name)
	if s.register(registry) != nil {
		return nil // the controller reports this error
	}
	for _, v := range s.Versions {
		known := registry.Kinds(v.Name)
		for _, kind := range slices.Sorted(maps.Keys(v.Indexes)) {
			// A version without known kinds may get them from the configuration, so any kind is
			// accepted.
			if len(known) > 0 && !slices.ContainsFunc(known, func(k record.KindSpec) bool { return k.Name == kind }) {
				return fmt.Errorf("dbcontroller.Service: Indexes of version %s: the version has no kind %s", v.Name, kind)
			}
			for i, field := range v.Indexes[kind] {
				if err := record.CheckIndexed(field); err != nil {
					return fmt.Errorf("dbcontroller.Service: Indexes of version %s: %s: %w", v.Name, kind, err)
				}
				if slices.Contains(v.Indexes[kind][:i], field) {
					return fmt.Errorf("dbcontroller.Service: Indexes of version %s: %s: %s is there twice", v.Name, kind, field)
				}
			}
		}
	}
	return nil
}

// indexed returns specs, the transformers into version i, with the declared index fields of their
// kinds on both sides. It copies specs and leaves the argument unchanged.
func (s Service) indexed(i int, specs []transform.Spec) []transform.Spec {
	declare := func(kinds []transform.GroupedKind, fields map[string][]string) []transform.GroupedKind {
		kinds = slices.Clone(kinds)
		for k := range kinds {
			kinds[k].Indexed = fields[kinds[k].Name]
		}
		return kinds
	}
	specs = slices.Clone(specs)
	for n := range specs {
		specs[n].Old.Kinds = declare(specs[n].Old.Kinds, s.Versions[i-1].Indexes)
		specs[n].New.Kinds = declare(specs[n].New.Kinds, s.Versions[i].Indexes)
	}
	return specs
}
