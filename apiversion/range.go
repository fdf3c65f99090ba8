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

// Range is the versions in which APIs are served. An API is the same in two versions if the
// names of the proto packages differ in the last part alone: tasks.v1 and tasks.v2.
type Range struct {
	served map[string]bool     // services
	absent map[string][]string // services that are known and not served: the versions that are
	apis   map[string][]string // the versions of each API, oldest first
}

// aVersion is what the last part of a package can be that is a version.
var aVersion = regexp.MustCompile(`^v[0-9]{1,9}[a-z0-9]{0,20}$`)

// NewRange returns the range of services, which are in the order of their versions. known are
// all that there could be: of those that are not served it is said which versions are, or
// which packages, where none is of the same API.
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

// versionOf splits the name of a package.
func versionOf(pkg string) (api, version string) {
	at := strings.LastIndexByte(pkg, '.')
	return pkg[:max(at, 0)], pkg[at+1:]
}

// Handler is next for all but what Refusal is the answer to.
func (r *Range) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if refused := r.Refusal(req.URL.Path); refused != nil {
			refusal.Write(w, req, refused)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// Refusal is the answer to a call of an API that is served, in a version that is not; nil for
// all other paths.
func (r *Range) Refusal(path string) *connect.Error {
	service, _, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok || r.served[service] {
		return nil
	}
	pkg, _ := versionOf(service) // the last part is the service itself
	api, version := versionOf(pkg)
	versions, absent := r.absent[service]
	if !absent {
		versions = r.apis[api]
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
