package apiversion

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/refusal"
)

// Range knows the API versions that a server serves. Two proto packages are versions of one API if
// their names differ only in the last part, as tasks.v1 and tasks.v2. A Range is immutable after
// NewRange.
type Range struct {
	served map[string]bool     // full names of served services
	absent map[string][]string // known services that are not served: the versions to use instead
	apis   map[string][]string // served versions of each API, oldest first
}

// aVersion matches a package's last part if it is a version.
var aVersion = regexp.MustCompile(`^v[0-9]{1,9}[a-z0-9]{0,20}$`)

// NewRange returns the Range of the served services, which must be sorted by version. known lists
// all services that could be served. For a known service that is not served, Refusal names the
// served versions of its API. If the API has none, it names the served packages.
func NewRange(served, known []protoreflect.ServiceDescriptor) *Range {
	r := &Range{served: map[string]bool{}, absent: map[string][]string{}, apis: map[string][]string{}}
	var all []string
	for _, s := range served {
		r.served[string(s.FullName())] = true
		api, version := versionOf(string(s.ParentFile().Package()))
		r.apis[api] = append(r.apis[api], version)
		all = append(all, string(s.ParentFile().Package()))
	}
	for _, s := range known {
		// A server that serves nothing has no version to suggest.
		if r.served[string(s.FullName())] || len(all) == 0 {
			continue
		}
		r.absent[string(s.FullName())] = all
		if api, _ := versionOf(string(s.ParentFile().Package())); r.apis[api] != nil {
			r.absent[string(s.FullName())] = r.apis[api]
		}
	}
	return r
}

// versionOf splits a package name at its last dot.
func versionOf(pkg string) (api, version string) {
	at := strings.LastIndexByte(pkg, '.')
	return pkg[:max(at, 0)], pkg[at+1:]
}

// Handler returns a handler that answers with Refusal where there is one, and calls next otherwise.
func (r *Range) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if refused := r.Refusal(req.URL.Path); refused != nil {
			refusal.Write(w, req, refused)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// Refusal returns the error for a call to a served API in a version that is not served. It returns
// nil for all other paths.
func (r *Range) Refusal(path string) *connect.Error {
	service, _, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok || r.served[service] {
		return nil
	}
	pkg, _ := versionOf(service) // cuts the service name off
	api, version := versionOf(pkg)
	versions, absent := r.absent[service]
	if !absent {
		versions = r.apis[api]
		// A path that does not look like a version of a served API is left to next.
		if api == "" || !aVersion.MatchString(version) || slices.Contains(versions, version) {
			return nil
		}
	}
	if len(versions) == 0 {
		return nil
	}
	oldest, newest := versions[0], versions[len(versions)-1]
	text := fmt.Sprintf("%s is not served in version %s: use %s", api, version, oldest)
	if newest != oldest {
		text = fmt.Sprintf("%s is not served in version %s: use one from %s to %s", api, version, oldest, newest)
	}
	return refusal.New(refusal.VersionNotServed, errors.New(text),
		refusal.MetaService, api, refusal.MetaVersion, version, refusal.MetaOldest, oldest, refusal.MetaNewest, newest)
}
