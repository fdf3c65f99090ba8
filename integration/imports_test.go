package integration_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "dbcontroller.dev"

// layers are the rooms from the bottom up: folders, of which the deepest one that a package lies in
// is its room. A package imports only rooms of lower layers, and its own.
var layers = [][]string{
	{"refusal"},
	{"internal/base"},
	{"gen", "record", "internal/coord", "upgradestate", "config"},
	{"internal/store/mongostore/wire"}, // the parts of mongostore; the package itself is in the room of all stores
	{"internal/store/mongostore/conn"},
	{"internal/store/mongostore/fences"},
	{"internal/store/mongostore/changes", "internal/store/mongostore/provision", "internal/store/mongostore/recordio"},
	{"internal/store/mongostore/client", "internal/engine/sink"}, // sinks are below stores, which implement them
	{"shards", "transform", "internal/store", "internal/access", "internal/engine/throttle", "internal/engine/distance"},
	{"appclient/client"},
	{
		"syncer", "vrunner", "apiversion", "appclient",
		"internal/engine/switchover", "internal/engine/verify", "internal/engine/backfill", "internal/engine/identity", "internal/engine/hooks", "internal/engine/rollout", "internal/engine/shardstest",
	},
	{"resource", "internal/proxy"},
	{"internal/control/deployment", "internal/engine/collections", "internal/engine/copies", "internal/engine/moves", "examples"},
	{"internal/control/preflight", "internal/control/rehearsal", "internal/control/forward"},
	{"internal/control/controller", "internal/control/removal"},
	{"examples/starter"}, // the service that it writes is a program, and calls the face; the rest knows nothing
	{"internal/program", "cmd"},
}

// wired are the packages that only programs and tests may name: everybody else works
// with the interfaces, so that a backend or a configuration can be exchanged.
var wired = []string{
	"config",
	"internal/coord/embedetcd", "internal/coord/etcdcoord", "internal/coord/memcoord",
	"internal/store/etcdstore", "internal/store/faultstore", "internal/store/memstore", "internal/store/mongostore",
}

// commands are the packages that programs are made of, from the bottom up, by the same rule: a package imports
// only those of lower layers. Programs consist of an app, which tests run as well, and what
// reads flags and starts it.
var commands = [][]string{
	{"internal/program/etcdlogin"},
	{"internal/program/build", "internal/program/databases", "internal/program/lock", "internal/program/adminport", "internal/program/page", "internal/program/process", "internal/program/traces"},
	{"internal/program/dbcontroller/app", "internal/program/server/app"},
	{"internal/program/dbcontroller/cli/internal/exit", "internal/program/dbcontroller/cli/internal/terminal"},
	{"internal/program/dbcontroller/cli/internal/registry", "internal/program/dbcontroller/cli/internal/view"},
	{"internal/program/dbcontroller/cli/internal/lenses", "internal/program/dbcontroller/cli/internal/offline"},
	{"internal/program/dbcontroller/cli", "internal/program/server/cli"},
	{face},
	{"internal/program/server/samples", "internal/program/demo"},
	{"cmd/dbcontroller", "cmd/server", "cmd/demo"},
}

// face is the package at the module's root, by which services in Go are wired: a server and a
// controller in one call each. These name backends and the configuration, so it lies on top of
// all that a library is, among the commands: above those that it calls, below the programs.
// Whatever imports it gets all that a process is made of, which nothing but a program may.
const face = "."

// wirers are the packages of programs that may name backends, and which of them, so that there is
// one place each that opens a database and a coordination store. All of them may name config.
var wirers = map[string][]string{
	"internal/program/databases":        {"internal/store/mongostore", "internal/store/etcdstore"}, // opens the databases of a configuration, whatever backend each has
	"internal/program/process":          {"internal/coord/etcdcoord"},                              // opens the coordination store of a configuration
	"cmd/dbcontroller":                  {"internal/coord/embedetcd"},                              // has an etcd for one machine in it, which a service's own programs have not
	"internal/program/dbcontroller/app": {"internal/coord/memcoord"},                               // deployments of rehearsals
	"internal/program/demo":             {"internal/coord/embedetcd", "internal/coord/etcdcoord"},  // plays all parts in one process
}

// shipped is what the program dbcontroller is made of. It carries neither a sample nor
// what starts databases for tests, with all that these link.
var shipped = []string{
	"cmd/dbcontroller", "internal/program/dbcontroller", "internal/program/adminport", "internal/program/build", "internal/program/databases",
	"internal/program/etcdlogin", "internal/program/lock", "internal/program/page", "internal/program/process", "internal/program/traces", "internal/proxy",
}

// light is what applications and tools carry along: what they import of ours, and nothing of
// the engine. appclient/client carries watchedfile as well.
var light = map[string][]string{"appclient": {"appclient/client", "gen", "internal/base/watchedfile"}}

// testFolders hold what tests need; programs may use it for the demonstration.
var testFolders = []string{"integration", "scripts"}

// importer is one Go package with what its non-test files import of ours,
// relative to the module.
type importer struct {
	path    string
	imports []string
}

func TestImportsRunDownward(t *testing.T) {
	t.Parallel()
	all, err := importers("..")
	if err != nil {
		t.Fatal(err)
	}
	// A walk that finds nothing would pass; so many packages have long existed.
	if len(all) < 5 {
		t.Fatalf("found %d packages below the module root, want the whole module", len(all))
	}
	for _, v := range violations(all) {
		t.Error(v)
	}
}

// TestViolationsAreSeen is the check of the check.
func TestViolationsAreSeen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		made importer
		want []string
	}{
		{"down is allowed", importer{"syncer", []string{"record", "internal/coord", "transform"}}, nil},
		{"own folder is allowed", importer{"internal/store/recordtest", []string{"record"}}, nil},
		{"cmd wires", importer{"internal/program/demo", []string{"config", "internal/program/databases", "internal/coord/etcdcoord", "integration/localmongo", "examples/bbs"}}, nil},
		{"the controller is a library", importer{"internal/control/controller", []string{"internal/control/deployment", "syncer", "internal/program/databases", "internal/store/etcdstore"}},
			[]string{"internal/control/controller imports internal/program/databases, which is not below it", "internal/control/controller imports internal/store/etcdstore, which only programs and tests may"}},
		{"an app knows no flags", importer{"internal/program/server/app", []string{"internal/program/dbcontroller/cli", "internal/program/adminport"}},
			[]string{"internal/program/server/app imports internal/program/dbcontroller/cli, which is not below it"}},
		{"programs next to each other", importer{"internal/program/dbcontroller/app", []string{"internal/program/server/app"}},
			[]string{"internal/program/dbcontroller/app imports internal/program/server/app, which is not below it"}},
		{"a second way to a database", importer{"internal/program/server/app", []string{"internal/store/mongostore", "config"}},
			[]string{"internal/program/server/app imports internal/store/mongostore, which only a package that opens it may"}},
		{"a program that depends on its backend", importer{"internal/program/dbcontroller/app", []string{"internal/store/etcdstore", "internal/program/databases"}},
			[]string{"internal/program/dbcontroller/app imports internal/store/etcdstore, which only a package that opens it may"}},
		{"a command without a place", importer{"internal/program/util", nil},
			[]string{"internal/program/util is in no layer of programs: give it one in this test, or a better place"}},
		{"the face is wired from commands", importer{face, []string{"internal/program/server/cli", "internal/program/dbcontroller/cli", "apiversion", "vrunner"}}, nil},
		{"a second way into a process", importer{face, []string{"config", "internal/store/mongostore", "internal/program/demo", "integration/localmongo"}},
			[]string{". imports config, which only programs and tests may", ". imports internal/store/mongostore, which only programs and tests may",
				". imports internal/program/demo, which is not below it", ". imports integration/localmongo, which only programs and tests may"}},
		{"programs have a face", importer{"cmd/server", []string{face, "internal/program/server/samples"}}, nil},
		{"a service of its own", importer{"examples/starter/service/tasks", []string{face, "resource", "transform/lens", "examples/starter/service/gen/tasks/v1"}}, nil},
		{"what writes the service", importer{"examples/starter", []string{face}}, []string{"examples/starter imports ., which only a program may"}},
		{"a library with a face", importer{"vrunner", []string{face}}, []string{"vrunner imports ., which only a program may"}},
		{"what the face calls", importer{"internal/program/server/cli", []string{face}}, []string{"internal/program/server/cli imports ., which is not below it"}},
		{"an application carries no engine", importer{"appclient", []string{"appclient/client", "gen/dbcontroller/v1", "internal/access", "record"}},
			[]string{"appclient imports internal/access, which applications must not carry", "appclient imports record, which applications must not carry"}},
		{"up", importer{"record", []string{"syncer"}},
			[]string{"record imports syncer, which is not below it"}},
		{"up from a sub-package", importer{"transform/lens", []string{"internal/control/deployment/deploymentpb"}},
			[]string{"transform/lens imports internal/control/deployment/deploymentpb, which is not below it"}},
		{"sideways", importer{"record", []string{"internal/coord"}},
			[]string{"record imports internal/coord, which is not below it"}},
		{"a room of the controller", importer{"internal/engine/collections", []string{"syncer", "internal/control/controller", "internal/control/deployment"}},
			[]string{"internal/engine/collections imports internal/control/controller, which is not below it", "internal/engine/collections imports internal/control/deployment, which is not below it"}},
		{"a room over another", importer{"internal/control/preflight", []string{"internal/engine/collections", "internal/control/deployment/api"}}, nil},
		{"pure state machine", importer{"upgradestate", []string{"record"}},
			[]string{"upgradestate imports record, which is not below it"}},
		{"backend outside cmd", importer{"syncer", []string{"internal/store/mongostore"}},
			[]string{"syncer imports internal/store/mongostore, which only programs and tests may"}},
		{"configuration outside cmd", importer{"vrunner", []string{"config"}},
			[]string{"vrunner imports config, which only programs and tests may"}},
		{"backend names its sibling", importer{"internal/store/faultstore", []string{"internal/store/memstore"}},
			[]string{"internal/store/faultstore imports internal/store/memstore, which only programs and tests may"}},
		{"test infrastructure outside cmd", importer{"syncer", []string{"integration/localmongo"}},
			[]string{"syncer imports integration/localmongo, which only programs and tests may"}},
		{"test infrastructure in the shipped program", importer{"internal/program/dbcontroller/cli", []string{"integration/localmongo", "examples/sample"}},
			[]string{"internal/program/dbcontroller/cli imports integration/localmongo, which the shipped program must not carry", "internal/program/dbcontroller/cli imports examples/sample, which the shipped program must not carry"}},
		{"conformance suite outside tests", importer{"cmd/server", []string{"internal/store/recordtest"}},
			[]string{"cmd/server imports internal/store/recordtest, which only tests may"}},
		{"unknown folder", importer{"util/strings", nil},
			[]string{"util is in no layer: give it one in this test and in ARCHITECTURE.md, or a better place"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, violations([]importer{tc.made})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func violations(all []importer) []string {
	var found []string
	for _, p := range all {
		folder := room(p.path)
		if isTest(p.path) {
			continue // may import whatever it tests
		}
		if p.path != face && layerOf(folder) < 0 {
			found = append(found, fmt.Sprintf("%s is in no layer: give it one in this test and in ARCHITECTURE.md, or a better place", folder))
			continue
		}
		if isCommand(p.path) && commandLayerOf(p.path) < 0 {
			found = append(found, fmt.Sprintf("%s is in no layer of programs: give it one in this test, or a better place", p.path))
			continue
		}
		for _, imported := range p.imports {
			if why := forbidden(p.path, imported); why != "" {
				found = append(found, fmt.Sprintf("%s imports %s, which %s", p.path, imported, why))
			}
		}
	}
	return found
}

func forbidden(from, to string) string {
	switch {
	case strings.HasSuffix(to, "test"):
		return "only tests may"
	case light[room(from)] != nil && !slices.ContainsFunc(light[room(from)], func(l string) bool { return within(to, l) }):
		return "applications must not carry"
	case slices.ContainsFunc(shipped, func(s string) bool { return within(from, s) }) && (room(to) == "examples" || slices.Contains(testFolders, room(to))):
		return "the shipped program must not carry"
	// It wires what programs have opened, and nothing else.
	case from == face && slices.Contains(wired, to):
		return "only programs and tests may"
	case from == face && slices.Contains(testFolders, room(to)):
		return "only programs and tests may"
	case isCommand(from) && isCommand(to) && commandLayerOf(to) >= commandLayerOf(from):
		return "is not below it"
	case isCommand(from) && to != "config" && slices.Contains(wired, to) && !slices.Contains(wirers[from], to):
		return "only a package that opens it may"
	case isCommand(from):
		return ""
	case to == face && !within(from, "examples/starter/service"):
		return "only a program may"
	case to == face:
		return ""
	case slices.Contains(testFolders, room(to)):
		return "only programs and tests may"
	// A backend may have sub-packages of its own.
	case slices.ContainsFunc(wired, func(w string) bool { return within(to, w) && !within(from, w) }):
		return "only programs and tests may"
	case room(from) != room(to) && layerOf(room(to)) >= layerOf(room(from)):
		return "is not below it"
	}
	return ""
}

// isTest reports whether a package exists for tests only: the test folders, and
// conformance suites such as record/recordtest.
func isTest(p string) bool {
	return slices.Contains(testFolders, room(p)) || strings.HasSuffix(p, "test")
}

// isCommand reports whether a package is one of the top layer, whose order commands says.
func isCommand(p string) bool { return within(p, "cmd") || within(p, "internal/program") || p == face }

func within(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }

// room is the deepest of the layers' folders that a package lies in, or else its top folder.
func room(p string) string {
	best, _, _ := strings.Cut(p, "/")
	for _, l := range layers {
		for _, folder := range l {
			if within(p, folder) && len(folder) >= len(best) {
				best = folder
			}
		}
	}
	return best
}

func layerOf(folder string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, folder) })
}

func commandLayerOf(p string) int {
	return slices.IndexFunc(commands, func(l []string) bool { return slices.Contains(l, p) })
}

// importers reads the imports of all packages below root from their sources,
// for every platform and build tag at once.
func importers(root string) ([]importer, error) {
	found := map[string]importer{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// As the go command: no package in there is part of the module.
			if name := d.Name(); file != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		p := found[rel]
		p.path = filepath.ToSlash(rel)
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			ours, ok := strings.CutPrefix(imported, module+"/")
			if imported == module {
				ours, ok = face, true
			}
			if ok && !slices.Contains(p.imports, ours) {
				p.imports = append(p.imports, path.Clean(ours))
			}
		}
		found[rel] = p
		return nil
	})
	all := make([]importer, 0, len(found))
	for _, p := range found {
		slices.Sort(p.imports)
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b importer) int { return strings.Compare(a.path, b.path) })
	return all, err
}
