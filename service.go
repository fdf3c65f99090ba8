package dbcontroller

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/vrunner"
)

// Store is the data of one version, as its handlers read and write them. It takes care of
// tokens and switches: a handler returns the errors of a Store as they are, with
// apiversion.CodeError around them.
type Store = vrunner.Store

// Service is a service, as its server and its controller need it.
type Service struct {
	// Name of the service, as the servers of databases show its processes.
	Name string
	// Versions, from the oldest to the newest. The configuration says which of them have a
	// database, under the same names (apiVersion).
	Versions []Version
	// Watches are the streams that go on over a flip. Nil: those of the APIs that have the
	// usual form, as resource.MountWatches finds them.
	Watches Watches
	// Stacks replaces what would be made of the versions. Nil: it is made of them.
	Stacks Stacks
	// Tasks are data updates in Go, each of one version.
	Tasks []transform.Task
	// Flags adds flags of the service's own to its server. They are parsed before anything
	// else of the service is called. Nil: there are none.
	Flags func(*pflag.FlagSet)
	// Listening is called when a server's ports are open, with their addresses: a test that
	// has it listen at port 0 learns here which one it is. It may be nil.
	Listening func(api, operator string)
}

// Version is one version of a service: of its API and of its data.
type Version struct {
	// Name, such as v2. It is the last part of the proto packages, too.
	Name string
	// APIs are the proto services of the version. Methods that only read must say so
	// (idempotency_level = NO_SIDE_EFFECTS): all others are writes, and held at a switch.
	APIs []protoreflect.ServiceDescriptor
	// Mount mounts the handlers of APIs, which work on data of this version, and passes
	// opts to each. It is called with the data of the version, and with those of newer
	// versions that Before shows as this one's. Further routes may be mounted too. Every client
	// that may call the APIs may call them, and they count as writes: they are held at a switch.
	Mount func(mux *http.ServeMux, data Store, opts ...connect.HandlerOption)
	// Transformers lead from the version before to this one, and back. The first version has
	// none.
	Transformers Transformers
	// Adapt is how data of this version are shown as the version before has them, for that
	// one's handlers, by the Transformers. The zero value is enough where names are the same.
	Adapt adapt.Config
	// Before shows them another way. Nil: it is made of the Transformers.
	Before func(data Store) Store
	// Discontinued: the versions before are not served any longer once this one is active.
	Discontinued bool
	// Kinds of records that the Transformers do not name: all kinds of a service with one
	// version, and those that a later version introduces. Nothing is copied into an introduced
	// kind. After a rollback its records stay where they are, and nobody reads or writes them
	// until the version is active again.
	Kinds []string
	// Indexes are the fields, of each kind, by which the version's handlers find and order records,
	// as their proto names with dots: {"tickets": {"status", "owner.email"}}. Package resource serves
	// filters and orders of lists by them. Controllers build an index of each in the version's
	// database, also where the kind has records already, and a switch waits for those of its target.
	// A database that has no such indexes, and one that is encrypted, is read without.
	Indexes map[string][]string
	// Controllers are the version's background work, which runs while it is active. Nil:
	// there is none.
	Controllers func(data Store) []vrunner.Controller
	// Fixtures are records that the version starts with, once in its life.
	Fixtures []record.Record
}

// Transformers are those between two versions that follow each other: of lenses, of package
// transform/typed, or of Go functions on documents.
type Transformers []transform.Spec

// Stacks returns what serves all APIs while version is active. stores has the data of each
// version that has a database; those of versions that are not active cannot be written. opts
// belong to each handler. It is for services whose versions are not served as Mount and
// Before say, but by translated requests (package apiversion), for instance.
type Stacks func(version string, stores map[string]Store, opts ...connect.HandlerOption) http.Handler

// Watches mounts the watches of all versions in front of the runner, so that a client's
// stream goes on over a flip (vrunner.NewWatchHandler), and passes opts to each.
type Watches func(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption)

// check finds what a server of the service could not be made of.
func (s Service) check() error {
	if len(s.Versions) == 0 {
		return errors.New("dbcontroller.Service: it has no Versions")
	}
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
	if err := s.checkIndexes(); err != nil {
		return err
	}
	if err := s.checkKinds(); err != nil {
		return err
	}
	for i, v := range s.Versions {
		if s.Stacks == nil && i > 0 && v.Before == nil && !v.Discontinued {
			if _, err := s.adapter(i, nil); err != nil {
				return fmt.Errorf("dbcontroller.Service: %s cannot be served over data of %s: %w", s.Versions[i-1].Name, v.Name, err)
			}
		}
	}
	return nil
}

// register adds what the controller of the service works with.
func (s Service) register(r *transform.Registry) error {
	for i, v := range s.Versions {
		var kinds []record.KindSpec
		for _, k := range v.Kinds {
			kinds = append(kinds, record.KindSpec{Name: k, Indexed: v.Indexes[k]})
		}
		if len(kinds) > 0 {
			if err := r.Declare(v.Name, kinds...); err != nil {
				return err
			}
		}
		if i == 0 {
			continue
		}
		if err := r.Add(s.Versions[i-1].Name, v.Name, s.indexed(i, append(v.introduced(), v.Transformers...))...); err != nil {
			return err
		}
	}
	return r.AddTasks(s.Tasks...)
}

// introduced declares the kinds of a version that its transformers do not make.
func (v Version) introduced() []transform.Spec {
	var specs []transform.Spec
	for _, name := range v.Kinds {
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
