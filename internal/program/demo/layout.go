package app

import (
	"crypto/rand"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"dbcontroller.dev/examples/bbs"
)

// ringSize is the number of shards of a demo.
const ringSize = 16

// The deployments of a demo: the sample services, with records in etcd at first, and an existing
// application's collection.
const (
	servicesName    = "services/" + bbs.Service + "/deployments/local"
	applicationName = "services/packages.example.com/deployments/local"
)

// Files that the demo's processes read.
const (
	servicesFile    = "services.yaml"
	applicationFile = "application.yaml"
	lensFile        = "packages.yaml"
	proxyFile       = "proxy.yaml"
)

//go:embed packages.yaml
var lensText []byte

// layout holds the files and database names of a demo.
type layout struct {
	dir string // configurations, lens, logs, etcd
	// Databases in MongoDB for this run only: the application's two, and the services' second one.
	oldDB, newDB, servicesDB string
}

func newLayout() (layout, error) {
	dir, err := os.MkdirTemp("", "dbcontroller-demo-")
	if err != nil {
		return layout{}, fmt.Errorf("make a folder for the demo: %w", err)
	}
	// Runs on the same server must not share databases.
	run := strings.ToLower(rand.Text()[:10])
	name := "dbc_demo_" + run + "_"
	return layout{dir: dir, oldDB: name + oldVersion, newDB: name + newVersion, servicesDB: name + "services_" + newVersion}, nil
}

// databases returns the databases that a run creates in MongoDB.
func (l layout) databases() []string { return []string{l.oldDB, l.newDB, l.servicesDB} }

func (l layout) file(name string) string { return filepath.Join(l.dir, name) }

// uriVariable passes MongoDB's connection string to the processes, so that the configuration holds
// no secret.
const uriVariable = "MONGO_URI"

// write writes the files for the processes. The configurations contain no ports, because each
// process chooses its own.
func (l layout) write(etcd []string) error {
	endpoints := strings.Join(etcd, `", "`)
	common := func(deployment string) string {
		return fmt.Sprintf(`deployment: %s
sharding: {ringSize: %d}
etcd: {endpoints: ["%s"]}
copy: {auto: false, workers: 1}   # the copy begins with the upgrade, so that it can be watched
switch: {maxLag: 3s}            # clients and all servers share this machine
initialVersion: %s              # a service that begins would begin at the newest
`, deployment, ringSize, endpoints, oldVersion)
	}
	inMongo := func(of, version, database string) string {
		return fmt.Sprintf("- {namespace: demo/%s/%s, backend: mongo, apiVersion: %s, mongo: {endpoint: \"$(%s)\", database: %s}}\n", of, version, version, uriVariable, database)
	}
	services := "# Two services that move from etcd to MongoDB with their second version.\n" + common(servicesName) +
		fmt.Sprintf("dbs:\n- {namespace: demo/services/%[1]s, backend: etcd, apiVersion: %[1]s, etcd: {endpoints: [\"%[2]s\"]}}\n", oldVersion, endpoints) +
		inMongo("services", newVersion, l.servicesDB) + "kinds: []\n"
	application := "# An existing application's collection, on one machine.\n" + common(applicationName) +
		"dbs:\n" + inMongo("packages", oldVersion, l.oldDB) + inMongo("packages", newVersion, l.newDB) +
		fmt.Sprintf("kinds:\n- {from: %[1]s, to: %[1]s, lens: %[2]s}\n", packagesKind, lensFile)
	for name, content := range map[string][]byte{servicesFile: []byte(services), applicationFile: []byte(application), lensFile: lensText} {
		if err := os.WriteFile(l.file(name), content, 0o600); err != nil {
			return fmt.Errorf("write the demo's files: %w", err)
		}
	}
	return nil
}

// writeProxy writes the configuration of the proxies. Each chooses its own port.
func (l layout) writeProxy(controllers []string) error {
	text := fmt.Sprintf(`# The proxies between the application and MongoDB.
listen: 127.0.0.1:0
upstream: $(%[1]s)
deployments:
- application: packages
  controllers: ["%[2]s"]
  database: %[3]s
  collections: {%[4]s: %[4]s}
  uris: {%[5]s: "$(%[1]s)", %[6]s: "$(%[1]s)"}
`, uriVariable, strings.Join(controllers, `", "`), l.oldDB, packagesKind, oldVersion, newVersion)
	if err := os.WriteFile(l.file(proxyFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the demo's files: %w", err)
	}
	return nil
}
