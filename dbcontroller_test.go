package dbcontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/internal/access"
	serverapp "dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/vrunner"
)

// named is the data of a version, of which a test asks nothing but whose they are.
type named struct {
	vrunner.Store
	name string
}

// version is one whose handlers answer with the version that they are of and the data that
// they work on.
func version(name string, api protoreflect.ServiceDescriptor, before bool) Version {
	v := Version{Name: name, APIs: []protoreflect.ServiceDescriptor{api}}
	v.Mount = func(mux *http.ServeMux, data Store, _ ...connect.HandlerOption) {
		mux.HandleFunc("/"+string(api.FullName())+"/", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "%s over %s", name, data.(named).name)
		})
	}
	if before {
		v.Before = func(data Store) Store { return named{name: "what " + name + " shows of " + data.(named).name} }
	}
	return v
}

func services(t *testing.T) (one, two, three protoreflect.ServiceDescriptor) {
	t.Helper()
	return bbsv1.File_bbs_v1_bbs_proto.Services().Get(0), bbsv2.File_bbs_v2_bbs_proto.Services().Get(0),
		secretsv2.File_secrets_v2_secrets_proto.Services().Get(0)
}

func ask(h http.Handler, api protoreflect.ServiceDescriptor, method int) string {
	r := httptest.NewRequest(http.MethodPost, apiversion.Procedure(api.Methods().Get(method)), strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var refused struct {
		Code, Message string
		Details       []struct {
			Debug struct {
				Reason   string
				Metadata struct{ Oldest, Newest string }
			}
		}
	}
	if json.Unmarshal(w.Body.Bytes(), &refused) != nil || len(refused.Details) == 0 {
		return strings.TrimSpace(w.Body.String())
	}
	why := refused.Details[0].Debug
	text := fmt.Sprintf("%s: %s, %s", refused.Code, refused.Message, why.Reason)
	if why.Metadata.Oldest != "" {
		text += fmt.Sprintf(", %s to %s", why.Metadata.Oldest, why.Metadata.Newest)
	}
	return text
}

// TestComposed: each version serves its own data, those before see them through every version
// between, and the next one can be read.
func TestComposed(t *testing.T) {
	t.Parallel()
	one, two, three := services(t)
	s := Service{Versions: []Version{version("v1", one, false), version("v2", two, true), version("v3", three, true)}}
	stores := map[string]Store{"v1": named{name: "1"}, "v2": named{name: "2"}, "v3": named{name: "3"}}
	write, read := 0, 1 // of each of these APIs
	const third = "unimplemented: secrets is not served in version v2: use one from bbs.v1 to bbs.v2, VERSION_NOT_SERVED, bbs.v1 to bbs.v2"
	for active, want := range map[string][4]string{
		"v1": {"v1 over 1", "v2 over 2", third, "failed_precondition: v1 is the active version: write through bbs.v1.DesiredLRPService until the upgrade to v2 has completed, VERSION_NOT_ACTIVE"},
		"v2": {"v1 over what v2 shows of 2", "v2 over 2", "v3 over 3", "v2 over 2"},
		"v3": {"v1 over what v2 shows of what v3 shows of 3", "v2 over what v3 shows of 3", "v3 over 3", "v2 over what v3 shows of 3"},
	} {
		h := s.Handler(active, stores)
		got := [4]string{ask(h, one, read), ask(h, two, read), ask(h, three, read), ask(h, two, write)}
		if got != want {
			t.Errorf("while %s is active:\n%q, want\n%q", active, got, want)
		}
	}
	s.Versions[2].Discontinued = true
	if got := ask(s.Handler("v3", stores), two, read); got != "unimplemented: bbs is not served in version v2: use secrets.v2, VERSION_NOT_SERVED, secrets.v2 to secrets.v2" {
		t.Errorf("v2, which v3 discontinues, answers %q", got)
	}
	delete(stores, "v2")
	if got := ask(s.Handler("v1", stores), two, read); got != "unimplemented: bbs is not served in version v2: use v1, VERSION_NOT_SERVED, v1 to v1" {
		t.Errorf("v2 without a database answers %q", got)
	}
}

// TestStack: what belongs to a version alone goes with it, and what is not known as a read is
// a write.
func TestStack(t *testing.T) {
	t.Parallel()
	one, two, _ := services(t)
	s := Service{Versions: []Version{version("v1", one, false), version("v2", two, true)}}
	s.Versions[1].Controllers = func(Store) []vrunner.Controller { return []vrunner.Controller{{Name: "tidy"}} }
	views := map[string]*vrunner.View{"v1": {}, "v2": {}}
	s.Stacks = func(version string, stores map[string]Store, _ ...connect.HandlerOption) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, version, len(stores)) })
	}
	for version, controllers := range map[string]int{"v1": 0, "v2": 1} {
		stack := s.stack(version, views, serverapp.Regions{})
		if len(stack.Controllers) != controllers {
			t.Errorf("%s has %d controllers, want %d", version, len(stack.Controllers), controllers)
		}
		if got := ask(stack.Handler, one, 0); got != version+"2" {
			t.Errorf("the stack of %s answers %q", version, got)
		}
		for method, want := range map[int]bool{0: true, 1: false} {
			r := httptest.NewRequest(http.MethodPost, apiversion.Procedure(one.Methods().Get(method)), nil)
			if stack.Write(r) != want {
				t.Errorf("%s is a write: %t", r.URL.Path, !want)
			}
		}
		for i := range one.Methods().Len() {
			m := one.Methods().Get(i)
			if r := httptest.NewRequest(http.MethodPost, apiversion.Procedure(m), nil); stack.Stream(r) != m.IsStreamingServer() {
				t.Errorf("%s is a stream: %t", r.URL.Path, stack.Stream(r))
			}
		}
		if !stack.Write(httptest.NewRequest(http.MethodPost, "/other", nil)) {
			t.Error("what no API knows is no write")
		}
	}
}

// TestObserversOfRegions: observers get what this region owns. A record that moves here is not there
// before it has arrived.
func TestObserversOfRegions(t *testing.T) {
	t.Parallel()
	data := sampletest.New(t, "books", region.CopiesKind("books"))
	arriving := region.Move{Step: region.Arriving, Region: "eu", ID: "v1.1.i", Nonce: "n"}
	data.Put(t, "books", bson.D{{Key: "_id", Value: "reserved"}, {Key: "home", Value: "us"}, {Key: "move", Value: arriving.String()}})
	data.Put(t, "books", bson.D{{Key: "_id", Value: "owned"}, {Key: "home", Value: "us"}})
	v := Version{Observers: []vrunner.Observer{{Name: "o"}}, Regions: map[string]region.Kind{"books": {Field: "home", Move: "move"}}}
	s := Service{Versions: []Version{v, v}}
	s.Versions[0].Name, s.Versions[1].Name, s.Versions[1].Discontinued = "v1", "v2", true
	stores := map[string]Store{"v1": data, "v2": data}
	for active, count := range map[string]int{"v1": 2, "v2": 1} {
		all := s.observations(active, stores, serverapp.Regions{Name: "us", Others: []string{"eu"}})
		if len(all) != count {
			t.Fatalf("while %s is active there are %d observers, want %d", active, len(all), count)
		}
		for _, o := range all {
			recs, err := o.Data.List(t.Context(), "books", "", "", 0)
			if err != nil || len(recs) != 1 || recs[0].Key != record.StringKey("owned") {
				t.Errorf("while %s is active, the observer of %s gets %v, %v", active, o.Version, recs, err)
			}
		}
	}
}

// TestIncomplete: a service that cannot be served is one line that says what is missing, and
// nothing is read or opened.
func TestIncomplete(t *testing.T) {
	t.Parallel()
	one, two, _ := services(t)
	good := func() []Version { return []Version{version("v1", one, false), version("v2", two, true)} }
	for want, change := range map[string]func(*Service){
		"it has no Versions":                                func(s *Service) { s.Versions = nil },
		"Versions[1] has no Name":                           func(s *Service) { s.Versions[1].Name = "" },
		"two Versions have the name v1":                     func(s *Service) { s.Versions[1].Name = "v1" },
		"version v2 has no APIs":                            func(s *Service) { s.Versions[1].APIs = nil },
		"v1 cannot be served over data of v2: add transfor": func(s *Service) { s.Versions[1].Before = nil },
		"version v1 has no Mount, and there are no Stacks":  func(s *Service) { s.Versions[0].Mount = nil },
		"no configuration given: use --config FILE":         func(*Service) {},
		"--log-level \"loud\": use debug, info, warn or er": func(s *Service) { s.Name = "loud" },
	} {
		s := Service{Versions: good()}
		change(&s)
		var args []string
		if s.Name != "" {
			args = []string{"--config", "none", "--log-level", s.Name}
		}
		err := ServeArgs(context.Background(), s, args)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with %q", err, want)
		}
	}
}

// TestWrongOptions: New makes nothing of wrong options, and says in one line which they are.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const dbs = "dbs: [{namespace: secrets/VERSION, backend: mongo, apiVersion: VERSION, mongo: {endpoint: 'mongodb://127.0.0.1:1'}}]\n"
	const deployment = "deployment: services/secrets/deployments/x\n"
	good := deployment + strings.ReplaceAll(dbs, "VERSION", "v1")
	api := secretsv2.File_secrets_v2_secrets_proto.Services().Get(0)
	service := Service{Name: "secrets", Versions: []Version{version("v1", api, false)}}
	log := slog.New(slog.DiscardHandler)
	for want, tc := range map[string]struct {
		service Service
		options Options
	}{
		"dbcontroller.Service: it has no Versions":            {Service{}, Options{ConfigFile: file("good.yaml", good)}},
		"dbcontroller.Options: it has no ConfigFile":          {service, Options{}},
		"none.yaml: no such file":                             {service, Options{ConfigFile: filepath.Join(dir, "none.yaml")}},
		"deployment":                                          {service, Options{ConfigFile: file("empty.yaml", "dbs: []\n")}},
		"dbs: no entry has a version that this program":       {service, Options{ConfigFile: file("other.yaml", deployment+strings.ReplaceAll(dbs, "VERSION", "v7"))}},
		"tokens.txt: no such file":                            {service, Options{ConfigFile: file("tokens.yaml", good+"access: {tokens: tokens.txt, roles: {operator: ['token:a']}}\n")}},
		"fixtures of v1: seed.jsonl:1: it is not a document ": {service, Options{ConfigFile: file("fixtures.yaml", strings.Replace(good, "apiVersion: v1", "apiVersion: v1, fixtures: [{kind: secrets, file: "+file("seed.jsonl", "x")+"}]", 1))}},
	} {
		tc.options.Logger = log
		server, err := New(tc.service, tc.options)
		if server != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with %q", err, want)
		}
	}
	server, err := New(service, Options{ConfigFile: filepath.Join(dir, "good.yaml"), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if server.TLSConfig() != nil {
		t.Error("there is a TLS configuration without a certificate")
	}
	if err := server.Ready(); err == nil || err.Error() != "the server does not run yet; call again" {
		t.Errorf("before Run: %v", err)
	}
	if err := server.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := server.Run(t.Context()); err != nil { // told to stop before it could run
		t.Errorf("Run after Close: %v", err)
	}
}

// TestUndeclaredKind: a server does not start with a table of a kind that nothing declares.
func TestUndeclaredKind(t *testing.T) {
	t.Parallel()
	one, two, _ := services(t)
	table := func(kind string) func(mux *http.ServeMux, data Store, opts ...connect.HandlerOption) {
		return func(_ *http.ServeMux, data Store, _ ...connect.HandlerOption) {
			resource.New(data, resource.Config[*secretsv2.Secret]{Kind: kind, Pattern: "secrets/{secret}"})
		}
	}
	s := Service{Name: "secrets.example.com", Versions: []Version{
		{Name: "v1", APIs: []protoreflect.ServiceDescriptor{one}, Mount: table("secrets")},
		{Name: "v2", APIs: []protoreflect.ServiceDescriptor{two}, Mount: table("leases"), Transformers: secrets.Specs(), Before: func(data Store) Store { return data }},
	}}
	if err := s.check(); err == nil || !strings.Contains(err.Error(), "version v2: resource: table of leases: kind leases is not declared: name it in") {
		t.Errorf("%v", err)
	}
	s.Versions[1].Kinds = []string{"leases"}
	if err := s.check(); err != nil {
		t.Error(err)
	}
}

// TestTargets: a service does not start with a reference without an index, nor with versions that
// differ in what a delete does.
func TestTargets(t *testing.T) {
	t.Parallel()
	one, two, _ := services(t)
	refer := func(d ...resource.TargetDelete) func(mux *http.ServeMux, data Store, opts ...connect.HandlerOption) {
		return func(_ *http.ServeMux, data Store, _ ...connect.HandlerOption) {
			table := resource.New(data, resource.Config[*secretsv2.Secret]{Kind: "secrets", Pattern: "secrets/{secret}"})
			for _, d := range d {
				table.Refer(resource.Target{Field: "replaces", Table: table, TargetDelete: d})
			}
		}
	}
	indexes := map[string][]string{"secrets": {"replaces"}}
	service := func(v1, v2 Version) Service {
		v1.Name, v1.APIs, v2.Name, v2.APIs, v2.Transformers = "v1", []protoreflect.ServiceDescriptor{one}, "v2", []protoreflect.ServiceDescriptor{two}, secrets.Specs()
		return Service{Name: "secrets.example.com", Versions: []Version{v1, v2}}
	}
	differ := "versions v1 and v2 refer differently from secrets"
	for name, tc := range map[string]struct {
		s    Service
		want string
	}{
		"alike":        {service(Version{Mount: refer(resource.Unset), Indexes: indexes}, Version{Mount: refer(resource.Unset), Indexes: indexes}), ""},
		"no index":     {service(Version{Mount: refer(resource.Unset), Indexes: indexes}, Version{Mount: refer(resource.Unset)}), "version v2: resource: table of secrets: Refer: replaces: it has no index, so each delete would read all secrets: name it in Indexes of the Version"},
		"one version":  {Service{Name: "secrets.example.com", Versions: []Version{{Name: "v1", APIs: []protoreflect.ServiceDescriptor{one}, Mount: refer(resource.Block)}}}, "version v1: resource: table of secrets: Refer: replaces: it has no index"},
		"new in v2":    {service(Version{Mount: refer()}, Version{Mount: refer(resource.Block), Indexes: indexes}), differ},
		"other":        {service(Version{Mount: refer(resource.Unset), Indexes: indexes}, Version{Mount: refer(resource.Block), Indexes: indexes}), differ},
		"discontinued": {service(Version{Mount: refer()}, Version{Mount: refer(resource.Block), Indexes: indexes, Discontinued: true}), ""},
	} {
		err := tc.s.check()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestRegister: the controller of a service has what its versions say, and that of a service
// with one version its kinds.
func TestRegister(t *testing.T) {
	t.Parallel()
	r := transform.NewRegistry("secrets.example.com")
	s := Service{Versions: []Version{{Name: "v1"}, {Name: "v2", Transformers: secrets.Specs()}}}
	if err := s.register(r); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Direction("v1", "v2"); err != nil {
		t.Error(err)
	}
	lone := transform.NewRegistry("secrets.example.com")
	if err := (Service{Versions: []Version{{Name: "v1", Kinds: []string{"secrets"}}}}).register(lone); err != nil {
		t.Fatal(err)
	}
	if kinds := lone.Kinds("v1"); len(kinds) != 1 || kinds[0].Name != "secrets" {
		t.Errorf("kinds %v", kinds)
	}
	fresh := transform.NewRegistry("secrets.example.com")
	s.Versions[1].Kinds = []string{"secrets", "leases"}
	if err := s.register(fresh); err != nil {
		t.Fatal(err)
	}
	up, err := fresh.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	if !transform.SyncsTo(up, "secrets") || transform.SyncsTo(up, "leases") || len(up.TargetKinds()) != 2 {
		t.Errorf("v2 has %v", up.TargetKinds())
	}
	if err := (Service{Versions: []Version{{Name: "v1"}, {Name: "v2"}}}).register(lone); err == nil {
		t.Error("versions that nothing leads between are taken")
	}
}

// TestCaller: handlers see who calls, also those of an older version over newer data.
func TestCaller(t *testing.T) {
	t.Parallel()
	one, two, _ := services(t)
	s := Service{Versions: []Version{version("v1", one, false), version("v2", two, true)}}
	for i := range s.Versions {
		api := s.Versions[i].APIs[0]
		s.Versions[i].Mount = func(mux *http.ServeMux, _ Store, _ ...connect.HandlerOption) {
			mux.HandleFunc("/"+string(api.FullName())+"/", func(w http.ResponseWriter, r *http.Request) {
				c, ok := CallerFrom(r.Context())
				fmt.Fprint(w, c.Name, " ", c.Proof, " ", c.Address, " ", c.Proven(), " ", ok)
			})
		}
	}
	h := s.Handler("v2", map[string]Store{"v2": named{name: "2"}})
	known := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), access.Caller{Identity: access.Identity{Name: "token:job", Proof: "token"}, Address: "192.0.2.1:5"})))
	})
	for _, api := range []protoreflect.ServiceDescriptor{one, two} {
		if got, want := ask(known, api, 0), "token:job token 192.0.2.1:5 true true"; got != want {
			t.Errorf("%s sees %q, want %q", api.FullName(), got, want)
		}
		if got, want := ask(h, api, 0), "   false false"; strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("without a listener %s sees %q", api.FullName(), got)
		}
	}
}

// TestComplaintIsOneLine: what a database login or a client chose is no command of the terminal, and no
// line of its own, where a server says why it cannot start.
func TestComplaintIsOneLine(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	complain(&said, fmt.Errorf("mark of %s", "a\nFORGED\x1b[2J\u009b\u202e"))
	if want := program() + `: mark of a\nFORGED\x1b[2J\u009b\u202e` + "\n"; said.String() != want {
		t.Errorf("%q, want %q", &said, want)
	}
}
