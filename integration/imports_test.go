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

// layers are the top-level folders from the bottom up. A package imports only
// folders of lower layers, and its own.
var layers = [][]string{
	{"limits", "watchedfile", "refusal", "internal"},
	{"gen", "record", "coord", "upgradestate", "config"},
	{"shards", "transform", "throttle", "access"},
	{"syncer", "switchover", "verify", "vrunner", "apiversion", "backfill", "identity", "appclient", "hooks"},
	{"resource"},
	{"deployment", "collections", "sample"},
	{"preflight", "rehearsal"},
	{"controller"},
	{"starter"}, // the service that it writes is a program, and calls the face; the rest knows nothing
	{"cmd"},
}

// wired are the packages that only cmd and tests may name: everybody else works
// with the interfaces, so that a backend or a configuration can be exchanged.
var wired = []string{
	"config",
	"coord/embedetcd", "coord/etcdcoord", "coord/memcoord",
	"record/etcdstore", "record/faultstore", "record/memstore", "record/mongostore",
}

// commands are the packages of cmd from the bottom up, by the same rule: a package imports
// only those of lower layers. Programs consist of an app, which tests run as well, and what
// reads flags and starts it.
var commands = [][]string{
	{"cmd/internal/etcdlogin"},
	{"cmd/internal/build", "cmd/internal/databases", "cmd/internal/lock", "cmd/internal/adminport", "cmd/internal/process", "cmd/internal/traces"},
	{"cmd/dbcontroller/app", "cmd/server/app"},
	{"cmd/dbcontroller/cli", "cmd/server/cli"},
	{face},
	{"cmd/server/samples", "cmd/demo/app"},
	{"cmd/dbcontroller", "cmd/server", "cmd/demo"},
}

// face is the package at the module's root, by which services in Go are wired: a server and a
// controller in one call each. These name backends and the configuration, so it lies on top of
// all that a library is, among the commands: above those that it calls, below the programs.
// Whatever imports it gets all that a process is made of, which nothing but a program may.
const face = "."

// wirers are the packages of cmd that may name backends, and which of them, so that there is
// one place each that opens a database and a coordination store. All of cmd may name config.
var wirers = map[string][]string{
	"cmd/internal/databases": {"record/mongostore", "record/etcdstore"}, // opens the databases of a configuration, whatever backend each has
	"cmd/internal/process":   {"coord/etcdcoord"},                       // opens the coordination store of a configuration
	"cmd/dbcontroller":       {"coord/embedetcd"},                       // has an etcd for one machine in it, which a service's own programs have not
	"cmd/dbcontroller/app":   {"coord/memcoord"},                        // deployments of rehearsals
	"cmd/demo/app":           {"coord/embedetcd", "coord/etcdcoord"},    // plays all parts in one process
}

// shipped is what the program dbcontroller is made of. It carries neither a sample nor
// what starts databases for tests, with all that these link.
var shipped = []string{"cmd/dbcontroller", "cmd/internal"}

// light is what applications and tools carry along: what they import of ours, and nothing of
// the engine.
var light = map[string][]string{"appclient": {"access/client", "gen"}}

// testFolders hold what tests need; cmd may use it for its demonstration.
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
		{"down is allowed", importer{"syncer", []string{"record", "coord", "transform"}}, nil},
		{"own folder is allowed", importer{"record/recordtest", []string{"record"}}, nil},
		{"cmd wires", importer{"cmd/demo/app", []string{"config", "cmd/internal/databases", "coord/etcdcoord", "integration/localmongo", "sample/bbs"}}, nil},
		{"the controller is a library", importer{"controller", []string{"deployment", "syncer", "cmd/internal/databases", "record/etcdstore"}},
			[]string{"controller imports cmd/internal/databases, which is not below it", "controller imports record/etcdstore, which only cmd and tests may"}},
		{"an app knows no flags", importer{"cmd/server/app", []string{"cmd/dbcontroller/cli", "cmd/internal/adminport"}},
			[]string{"cmd/server/app imports cmd/dbcontroller/cli, which is not below it"}},
		{"programs next to each other", importer{"cmd/dbcontroller/app", []string{"cmd/server/app"}},
			[]string{"cmd/dbcontroller/app imports cmd/server/app, which is not below it"}},
		{"a second way to a database", importer{"cmd/server/app", []string{"record/mongostore", "config"}},
			[]string{"cmd/server/app imports record/mongostore, which only a package that opens it may"}},
		{"a program that depends on its backend", importer{"cmd/dbcontroller/app", []string{"record/etcdstore", "cmd/internal/databases"}},
			[]string{"cmd/dbcontroller/app imports record/etcdstore, which only a package that opens it may"}},
		{"a command without a place", importer{"cmd/internal/util", nil},
			[]string{"cmd/internal/util is in no layer of cmd: give it one in this test, or a better place"}},
		{"the face is wired from commands", importer{face, []string{"cmd/server/cli", "cmd/dbcontroller/cli", "apiversion", "vrunner"}}, nil},
		{"a second way into a process", importer{face, []string{"config", "record/mongostore", "cmd/demo/app", "integration/localmongo"}},
			[]string{". imports config, which only cmd and tests may", ". imports record/mongostore, which only cmd and tests may",
				". imports cmd/demo/app, which is not below it", ". imports integration/localmongo, which only cmd and tests may"}},
		{"programs have a face", importer{"cmd/server", []string{face, "cmd/server/samples"}}, nil},
		{"a service of its own", importer{"starter/service/tasks", []string{face, "resource", "transform/lens", "starter/service/gen/tasks/v1"}}, nil},
		{"what writes the service", importer{"starter", []string{face}}, []string{"starter imports ., which only a program may"}},
		{"a library with a face", importer{"vrunner", []string{face}}, []string{"vrunner imports ., which only a program may"}},
		{"what the face calls", importer{"cmd/server/cli", []string{face}}, []string{"cmd/server/cli imports ., which is not below it"}},
		{"an application carries no engine", importer{"appclient", []string{"access/client", "gen/dbcontroller/v1", "access", "record"}},
			[]string{"appclient imports access, which applications must not carry", "appclient imports record, which applications must not carry"}},
		{"up", importer{"record", []string{"syncer"}},
			[]string{"record imports syncer, which is not below it"}},
		{"up from a sub-package", importer{"transform/lens", []string{"deployment/deploymentpb"}},
			[]string{"transform/lens imports deployment/deploymentpb, which is not below it"}},
		{"sideways", importer{"record", []string{"coord"}},
			[]string{"record imports coord, which is not below it"}},
		{"a room of the controller", importer{"collections", []string{"syncer", "controller", "deployment"}},
			[]string{"collections imports controller, which is not below it", "collections imports deployment, which is not below it"}},
		{"a room over another", importer{"preflight", []string{"collections", "deployment/api"}}, nil},
		{"pure state machine", importer{"upgradestate", []string{"record"}},
			[]string{"upgradestate imports record, which is not below it"}},
		{"backend outside cmd", importer{"syncer", []string{"record/mongostore"}},
			[]string{"syncer imports record/mongostore, which only cmd and tests may"}},
		{"configuration outside cmd", importer{"vrunner", []string{"config"}},
			[]string{"vrunner imports config, which only cmd and tests may"}},
		{"backend names its sibling", importer{"record/faultstore", []string{"record/memstore"}},
			[]string{"record/faultstore imports record/memstore, which only cmd and tests may"}},
		{"test infrastructure outside cmd", importer{"syncer", []string{"integration/localmongo"}},
			[]string{"syncer imports integration/localmongo, which only cmd and tests may"}},
		{"test infrastructure in the shipped program", importer{"cmd/dbcontroller/cli", []string{"integration/localmongo", "sample"}},
			[]string{"cmd/dbcontroller/cli imports integration/localmongo, which the shipped program must not carry", "cmd/dbcontroller/cli imports sample, which the shipped program must not carry"}},
		{"conformance suite outside tests", importer{"cmd/server", []string{"record/recordtest"}},
			[]string{"cmd/server imports record/recordtest, which only tests may"}},
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
		folder := top(p.path)
		if isTest(p.path) {
			continue // may import whatever it tests
		}
		if p.path != face && layerOf(folder) < 0 {
			found = append(found, fmt.Sprintf("%s is in no layer: give it one in this test and in ARCHITECTURE.md, or a better place", folder))
			continue
		}
		if isCommand(p.path) && commandLayerOf(p.path) < 0 {
			found = append(found, fmt.Sprintf("%s is in no layer of cmd: give it one in this test, or a better place", p.path))
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
	case light[top(from)] != nil && !slices.ContainsFunc(light[top(from)], func(l string) bool { return within(to, l) }):
		return "applications must not carry"
	case slices.ContainsFunc(shipped, func(s string) bool { return within(from, s) }) && (top(to) == "sample" || slices.Contains(testFolders, top(to))):
		return "the shipped program must not carry"
	// It wires what cmd has opened, and nothing else.
	case from == face && slices.Contains(wired, to):
		return "only cmd and tests may"
	case from == face && slices.Contains(testFolders, top(to)):
		return "only cmd and tests may"
	case isCommand(from) && isCommand(to) && commandLayerOf(to) >= commandLayerOf(from):
		return "is not below it"
	case isCommand(from) && to != "config" && slices.Contains(wired, to) && !slices.Contains(wirers[from], to):
		return "only a package that opens it may"
	case isCommand(from):
		return ""
	case to == face && !within(from, "starter/service"):
		return "only a program may"
	case to == face:
		return ""
	case slices.Contains(testFolders, top(to)):
		return "only cmd and tests may"
	// A backend may have sub-packages of its own.
	case slices.ContainsFunc(wired, func(w string) bool { return within(to, w) && !within(from, w) }):
		return "only cmd and tests may"
	case top(from) != top(to) && layerOf(top(to)) >= layerOf(top(from)):
		return "is not below it"
	}
	return ""
}

// isTest reports whether a package exists for tests only: the test folders, and
// conformance suites such as record/recordtest.
func isTest(p string) bool {
	return slices.Contains(testFolders, top(p)) || strings.HasSuffix(p, "test")
}

// isCommand reports whether a package is one of the top layer, whose order commands says.
func isCommand(p string) bool { return top(p) == "cmd" || p == face }

func within(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }

func top(p string) string {
	first, _, _ := strings.Cut(p, "/")
	return first
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
