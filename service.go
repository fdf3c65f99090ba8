package dbcontroller

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/vrunner"
)

// Store gives the handlers of one version access to its data. It handles tokens and switches
// itself. A handler returns a Store's error unchanged, wrapped in apiversion.CodeError.
type Store = vrunner.Store

// Service declares everything that the server and the controller of a service need.
type Service struct {
	// Name of the service. Database servers show its connections under this name.
	Name string
	// Versions, from the oldest to the newest. The configuration assigns a database to a version by
	// the same name (apiVersion).
	Versions []Version
	// Watches mounts the streams that continue across a flip. Nil: resource.MountWatches and
	// resource.MountImports find them in the APIs that follow the standard form.
	Watches Watches
	// Stacks replaces the handlers that the server composes from Versions. Nil: the server composes
	// them.
	Stacks Stacks
	// REST serves the google.api.http annotations of all APIs, with rest.Front (package
	// apiversion/rest). It answers REST requests by calls of procedures to next, which serves all other
	// requests. Nil: there is no REST.
	REST func(apis []protoreflect.ServiceDescriptor, next http.Handler) (http.Handler, error)
	// Tasks are data updates written in Go. Each belongs to one version.
	Tasks []transform.Task
	// Search opens the indexes for full-text search, with localsearch.Engine. Servers have indexes if
	// the configuration has the section search. Nil: they have none.
	Search sink.Engine
	// Flags adds the service's own flags to its server. The server parses them before it calls any
	// other function of the service. Nil: no flags.
	Flags func(*flag.FlagSet)
	// Listening is called with the addresses of a server's ports once they are open. A test that
	// listens on port 0 learns the real port here. It may be nil.
	Listening func(api, operator string)
}

// Version is one version of a service's API and of its data.
type Version struct {
	// Name, such as v2. It is also the last part of the version's proto packages.
	Name string
	// APIs are the proto services of the version. Read-only methods must declare idempotency_level
	// = NO_SIDE_EFFECTS. All other methods count as writes, and the server holds them during a
	// switch.
	APIs []protoreflect.ServiceDescriptor
	// Mount mounts the handlers of APIs over data of this version, and passes opts to each. The
	// server calls it with the version's own data. It also calls it with newer versions' data that
	// Before presents in this version's form. Mount may add further routes. Any client that may
	// call the APIs may call them too. They count as writes, so the server holds them during a
	// switch.
	Mount func(mux *http.ServeMux, data Store, opts ...connect.HandlerOption)
	// Transformers convert records between the previous version and this one, in both directions.
	// The first version has none.
	Transformers Transformers
	// Adapt configures how Transformers present this version's data to the handlers of the previous
	// version. The zero value suffices if both versions use the same names.
	Adapt adapt.Config
	// Before replaces that presentation with the service's own. Nil: the server builds it from
	// Transformers and Adapt.
	Before func(data Store) Store
	// Discontinued stops service of the previous versions once this version is active.
	Discontinued bool
	// Kinds are the record kinds that Transformers do not name: all kinds of a service with one
	// version, and kinds that a later version introduces. The controller copies nothing into an
	// introduced kind. After a rollback its records stay in place, and no client reads or writes
	// them until the version is active again.
	Kinds []string
	// Indexes maps each kind to the fields by which handlers find and order its records, as proto
	// names with dots: {"tickets": {"status", "owner.email"}}. Package resource uses them for
	// filters and orders of lists. Controllers build one index for each field in the version's
	// database, even if the kind already has records. A switch waits until the target version has
	// all of its indexes. Encrypted databases, and databases that support no such indexes, are read
	// without them.
	Indexes map[string][]string
	// Search declares what of each kind is searchable, for Service.Search and for the method Search of
	// a resource.Table. An index of this version follows the version's data. Searches of the previous
	// version over this data use it for all fields that a lens carries unchanged.
	Search map[string]Searched
	// Regions declares the kinds whose records have an owning region, in every version that has the
	// kind. Servers keep read-only copies of the other regions' records, if the configuration has the
	// section regions. Nil: the version has no copies.
	Regions map[string]region.Kind
	// Controllers returns the version's background work, which runs while the version is active.
	// Nil: none.
	Controllers func(data Store) []vrunner.Controller
	// Observers follow the version's records while any version is active that serves this one
	// (resource.Observer). While a newer version is active, they see its data in this version's form.
	// While the previous one is active, they see what sync has copied so far.
	Observers []vrunner.Observer
	// Fixtures are initial records. The server writes them once in the version's life.
	Fixtures []record.Record
}

// Searched declares what of a kind is searchable. The names of records always are.
type Searched struct {
	// Fields are the searchable fields, as proto names with dots. A query may name them. A field that
	// is a list, a map or a message has the texts of all values in it.
	Fields []string
	// Document makes the texts of each of Fields from a stored document, such as a text that combines
	// several fields. It may be called at any time, from any goroutine, and more than once. After an
	// error the record is found by its name only. Nil: the texts are those of the fields themselves.
	Document func(doc bson.Raw) (map[string][]string, error)
	// Revision is changed whenever Document changes. Servers then make their indexes anew.
	Revision string
}

// Transformers convert records between two adjacent versions. They come from lenses, from package
// transform/typed, or from Go functions on documents.
type Transformers []transform.Spec

// Stacks returns the handler that serves all APIs while version is active. stores maps each version
// that has a database to its data. Writes to the stores of inactive versions fail. Each handler
// gets opts. Use it if Mount and Before cannot express how versions are served, for instance if
// requests are translated (package apiversion).
type Stacks func(version string, stores map[string]Store, opts ...connect.HandlerOption) http.Handler

// Watches mounts the watches and imports of all versions in front of the runner, so that a client's
// stream continues across a flip (vrunner.NewWatchHandler, vrunner.NewImportHandler). It passes opts to
// each.
type Watches func(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption)

// check returns an error if no server can be built from the service.
func (s Service) check() error {
	if len(s.Versions) == 0 {
		return errors.New("dbcontroller.Service: it has no Versions")
	}
	// These checks name the missing field. Later ones would fail with less helpful messages.
	seen := map[string]bool{}
	for i, v := range s.Versions {
		var missing string
		switch {
		case v.Name == "":
			missing = fmt.Sprintf("Versions[%d] has no Name", i)
		case seen[v.Name]:
			missing = fmt.Sprintf("two Versions have the name %s", v.Name)
		case len(v.APIs) == 0:
			missing = fmt.Sprintf("version %s has no APIs", v.Name)
		case v.Mount == nil && s.Stacks == nil:
			missing = fmt.Sprintf("version %s has no Mount, and there are no Stacks", v.Name)
		}
		if missing != "" {
			return errors.New("dbcontroller.Service: " + missing)
		}
		seen[v.Name] = true
	}
	// The following checks build registries and adapters, so they need versions with names and
	// mounts.
	if err := s.checkIndexes(); err != nil {
		return err
	}
	if err := s.checkSearch(); err != nil {
		return err
	}
	if err := s.checkKinds(); err != nil {
		return err
	}
	if err := s.checkRegions(); err != nil {
		return err
	}
	// front panics if this fails.
	if s.REST != nil {
		if _, err := s.REST(s.apis(), http.NotFoundHandler()); err != nil {
			return fmt.Errorf("dbcontroller.Service: REST: %w", err)
		}
	}
	// before panics if an adapter cannot be built, so each one is built here once.
	for i, v := range s.Versions {
		shown := i > 0 && (s.Stacks == nil || s.observed(i-1))
		if shown && v.Before == nil && !v.Discontinued {
			if _, err := s.adapter(i, nil); err != nil {
				return fmt.Errorf("dbcontroller.Service: %s cannot be served over data of %s: %w", s.Versions[i-1].Name, v.Name, err)
			}
		}
	}
	return nil
}

// register adds the service's kinds, transformers and tasks to a controller's registry.
func (s Service) register(r *transform.Registry) error {
	for i, v := range s.Versions {
		var kinds []record.KindSpec
		for _, k := range v.Kinds {
			kinds = append(kinds, record.KindSpec{Name: k, Indexed: v.Indexes[k]})
		}
		// Copies belong to a namespace, and no sync moves them.
		if local := v.copies(); len(local) > 0 {
			if err := r.DeclareLocal(v.Name, local...); err != nil {
				return err
			}
		}
		// Kinds without a transformer are unknown to the registry unless they are declared here.
		if len(kinds) > 0 {
			if err := r.Declare(v.Name, kinds...); err != nil {
				return err
			}
		}
		if i == 0 {
			continue
		}
		// Introduced kinds get a spec of their own, since no transformer leads to them.
		if err := r.Add(s.Versions[i-1].Name, v.Name, s.indexed(i, append(v.introduced(), v.Transformers...))...); err != nil {
			return err
		}
	}
	return r.AddTasks(s.Tasks...)
}

// introduced returns specs that declare the kinds of v that no transformer produces.
func (v Version) introduced() []transform.Spec {
	var specs []transform.Spec
	for _, name := range v.Kinds {
		// A kind that a transformer produces is declared by that transformer already.
		makes := func(sp transform.Spec) bool {
			return slices.ContainsFunc(sp.New.Kinds, func(k transform.GroupedKind) bool { return k.Name == name })
		}
		if !slices.ContainsFunc(v.Transformers, makes) {
			kind := transform.GroupedKind{KindSpec: record.KindSpec{Name: name}}
			specs = append(specs, transform.Spec{Name: "introduced " + name, Revision: "1", Introduced: true, New: transform.Side{Kinds: []transform.GroupedKind{kind}}})
		}
	}
	return specs
}
