package localmongo

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeMachine describes what the lookups of a finder see.
type fakeMachine struct {
	uri      string
	path     bool
	noMongos bool
	pathRuns bool
	noCache  bool
	cached   bool
	docker   bool
}

var errDocker = errors.New("no engine answers")

func (m fakeMachine) finder() finder {
	return finder{
		getenv: func(name string) string {
			if name == URIVariable {
				return m.uri
			}
			return ""
		},
		lookPath: func(program string) (string, error) {
			if m.path && (program == "mongod" || !m.noMongos) {
				return "/opt/" + program, nil
			}
			return "", exec.ErrNotFound
		},
		cacheDir: func() (string, error) {
			if m.noCache {
				return "", errors.New("no home")
			}
			return "/cache", nil
		},
		probe: func(_ context.Context, p place) error {
			if p.libs == "" && !m.pathRuns || p.libs != "" && !m.cached {
				return errors.New(p.mongod + " does not run")
			}
			return nil
		},
		docker: func() error {
			if m.docker {
				return nil
			}
			return errDocker
		},
	}
}

func TestFindGoesInOrder(t *testing.T) {
	t.Parallel()
	everything := fakeMachine{uri: "mongodb://there/", path: true, pathRuns: true, cached: true, docker: true}
	const (
		triedURI    = "connection string in DBCONTROLLER_TEST_MONGODB: "
		triedPath   = "mongod on the PATH: "
		triedCache  = "mongod in the cache folder: "
		triedDocker = "Docker image mongo:8.2: "
		notOnPath   = triedPath + "executable file not found in $PATH"
		cacheBroken = triedCache + "/cache/dbcontroller/mongodb-8.2.0/bin/mongod does not run"
	)
	for _, tc := range []struct {
		name    string
		machine fakeMachine
		options Options
		want    string // place found, "" for none
		tried   []string
	}{
		{"connection string wins", everything, Options{}, URIVariable, nil},
		{"path", fakeMachine{path: true, pathRuns: true, cached: true}, Options{}, "/opt/mongod",
			[]string{triedURI + "not set"}},
		{"own server passes the connection string", everything, Options{Own: true}, "/opt/mongod",
			[]string{triedURI + "set, but not used: a server of one's own is needed"}},
		{"several nodes pass the connection string", everything, Options{Nodes: 3}, "/opt/mongod",
			[]string{triedURI + "set, but not used: 3 nodes are needed"}},
		{"broken program on the path", fakeMachine{path: true, cached: true}, Options{},
			"/cache/dbcontroller/mongodb-8.2.0/bin/mongod",
			[]string{triedURI + "not set", triedPath + "/opt/mongod does not run"}},
		{"sharded cluster", everything, Options{Shards: 2}, "/opt/mongod",
			[]string{triedURI + "set, but not used: a sharded cluster of 2 shards is needed"}},
		{"no mongos next to mongod", fakeMachine{path: true, pathRuns: true, noMongos: true, cached: true}, Options{Shards: 2},
			"/cache/dbcontroller/mongodb-8.2.0/bin/mongod",
			[]string{triedURI + "not set", triedPath + "mongod is there, but a sharded cluster needs mongos too: executable file not found in $PATH"}},
		{"docker cannot do a sharded cluster", fakeMachine{docker: true}, Options{Shards: 2}, "",
			[]string{triedURI + "not set", notOnPath, cacheBroken,
				triedDocker + "serves one plain replica set node only: a sharded cluster of 2 shards is needed"}},
		{"docker last", fakeMachine{docker: true}, Options{}, "Docker image mongo:8.2",
			[]string{triedURI + "not set", notOnPath, cacheBroken}},
		{"docker cannot do access control", fakeMachine{docker: true}, Options{Auth: true}, "",
			[]string{triedURI + "not set", notOnPath, cacheBroken,
				triedDocker + "serves one plain replica set node only: access control is needed"}},
		{"nothing at all", fakeMachine{noCache: true}, Options{}, "",
			[]string{triedURI + "not set", notOnPath, triedCache + "no home", triedDocker + "no engine answers"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, tried, err := tc.machine.finder().find(t.Context(), tc.options.withDefaults())
			if tc.want != "" && (err != nil || got.String() != tc.want) {
				t.Errorf("found %q, %v, want %q", got, err, tc.want)
			}
			var lines []string
			for _, a := range tried {
				lines = append(lines, a.Place+": "+a.Reason.Error())
			}
			if diff := cmp.Diff(tc.tried, lines); diff != "" {
				t.Errorf("tried (-want +got):\n%s", diff)
			}
			if tc.want != "" {
				return
			}
			var notFound *NotFoundError
			if !errors.As(err, &notFound) {
				t.Fatalf("error is %v, want a NotFoundError", err)
			}
			wants := append(lines, "install MongoDB", "scripts/fetch-mongodb", "start Docker", URIVariable)
			if tc.options.Shards > 0 {
				wants = append(lines, "needs mongod and mongos", "scripts/fetch-mongodb")
			}
			for _, want := range wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestNotFoundErrorKeepsReasons(t *testing.T) {
	t.Parallel()
	_, _, err := fakeMachine{}.finder().find(t.Context(), Options{}.withDefaults())
	if !errors.Is(err, errDocker) || !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error %v does not wrap the reasons", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		options Options
		want    string
	}{
		{"too many nodes", Options{Nodes: 8}, "nodes is 8, must be 1 to 7"},
		{"negative nodes", Options{Nodes: -1}, "nodes is -1, must be 1 to 7"},
		{"small cache", Options{CacheGB: 0.1}, "cache is 0.1 GB, must be 0.25 or more"},
		{"negative oplog", Options{OplogMB: -1}, "oplog is -1 MB, must be 1 or more"},
		{"too many shards", Options{Shards: 9}, "shards is 9, must be 0 to 8"},
		{"too many routers", Options{Shards: 1, Routers: 9}, "routers is 9, must be 0 to 8"},
		{"routers without shards", Options{Routers: 1}, "only a sharded cluster has routers"},
		{"standalone shards", Options{Shards: 2, Standalone: true}, "a standalone has no shards"},
		{"standalone set", Options{Nodes: 2, Standalone: true}, "a standalone has one node"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := Start(t.Context(), tc.options)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}
