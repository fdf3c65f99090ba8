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
	var before *declared
	for i, v := range s.Versions {
		if v.Mount == nil {
			before = nil
			continue
		}
		d := &declared{kinds: map[string]bool{}, indexes: v.Indexes, targets: map[string][]resource.TargetDelete{}}
		for _, k := range registry.Kinds(v.Name) {
			d.kinds[k.Name] = true
		}
		what, whole := v.mountFails(d)
		if what != "" {
			return fmt.Errorf("dbcontroller.Service: version %s: %s", v.Name, what)
		}
		if !whole {
			before = nil // not all targets are known
			continue
		}
		// Handlers of both versions write the same records if one is served over the other's data.
		if before != nil && s.Stacks == nil && v.Before == nil && !v.Discontinued {
			if kind := d.differs(before); kind != "" {
				return fmt.Errorf("dbcontroller.Service: versions %s and %s refer differently from %s (Table.Refer): a client of one of them could leave references to what is deleted. Declare the same in both, or stop serving %s over %s by Discontinued", s.Versions[i-1].Name, v.Name, kind, s.Versions[i-1].Name, v.Name)
			}
		}
		before = d
	}
	return nil
}

// mountFails returns the panic text of package resource, or "" if there is none. whole reports that
// Mount returned. Other panics are ignored: handlers may need more than this empty store offers.
func (v Version) mountFails(data Store) (what string, whole bool) {
	defer func() {
		// A handler may panic because this store is empty. That is no fault of the service.
		if text, ok := recover().(string); ok && strings.HasPrefix(text, "resource: ") {
			what = text
		}
	}()
	v.Mount(http.NewServeMux(), data)
	return "", true
}

// declared is an empty store that knows the kinds and indexes of its version, and collects its
// targets.
type declared struct {
	kinds   map[string]bool // empty: of a single version, whose kinds the configuration may declare
	indexes map[string][]string
	targets map[string][]resource.TargetDelete // by referring kind
}

var (
	_ resource.Declared        = (*declared)(nil)
	_ resource.DeclaredTargets = (*declared)(nil)
)

func (d *declared) Declares(kind string) bool { return len(d.kinds) == 0 || d.kinds[kind] }

func (d *declared) DeclareTarget(kind, field string, target resource.TargetDelete) error {
	if !slices.Contains(d.indexes[kind], field) {
		return fmt.Errorf("it has no index, so each delete would read all %s: name it in Indexes of the Version", kind)
	}
	d.targets[kind] = append(d.targets[kind], target)
	return nil
}

// differs returns a kind that both versions have and whose targets differ, or "". The fields may
// have other names.
func (d *declared) differs(before *declared) string {
	for _, kind := range slices.Sorted(maps.Keys(d.kinds)) {
		if before.kinds[kind] && !slices.Equal(slices.Sorted(slices.Values(before.targets[kind])), slices.Sorted(slices.Values(d.targets[kind]))) {
			return kind
		}
	}
	return ""
}

func (*declared) Get(context.Context, string, string) (record.Record, error) {
	return record.Record{}, record.ErrNotFound
}

func (*declared) List(context.Context, string, string, string, int) ([]record.Record, error) {
	return nil, nil
}

func (*declared) Write(context.Context, []record.Mutation) error { return record.ErrUnavailable }

func (*declared) Changes(context.Context, ...string) (vrunner.Subscription, error) {
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
