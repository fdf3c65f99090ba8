package app

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"dbcontroller.dev/sample/bbs"
	"dbcontroller.dev/sample/packages"
)

// ringSize is the number of shards of a demo.
const ringSize = 16

// deploymentName names what a demo moves.
const deploymentName = "services/" + bbs.Service + "/deployments/local"

// layout is where a demo keeps its things.
type layout struct {
	dir          string // configuration, lens, logs, etcd
	oldDB, newDB string // databases, of this run alone
}

func newLayout() (layout, error) {
	dir, err := os.MkdirTemp("", "dbcontroller-demo-")
	if err != nil {
		return layout{}, fmt.Errorf("make a folder for the demo: %w", err)
	}
	run := strings.ToLower(rand.Text()[:10])
	return layout{dir: dir, oldDB: "dbc_demo_" + run + "_" + oldVersion, newDB: "dbc_demo_" + run + "_" + newVersion}, nil
}

func (l layout) file(name string) string { return filepath.Join(l.dir, name) }

// uriVariable carries MongoDB's connection string to the processes: the configuration
// holds no secret.
const uriVariable = "MONGO_URI"

// write writes what the processes read. Each has its own ports, so the configuration
// names none.
func (l layout) write(etcd []string) error {
	text := fmt.Sprintf(`# One service, two versions of its database, on one machine.
deployment: %s
sharding: {ringSize: %d}
etcd: {endpoints: [%q]}
copy: {auto: false, workers: 1}   # the copy begins with the upgrade, so that it can be watched
initialVersion: %[4]s              # a service that begins would begin at the newest
dbs:
- namespace: demo/bbs/%[4]s
  backend: mongo
  apiVersion: %[4]s
  mongo: {endpoint: "$(%[5]s)", database: %[6]s}
- namespace: demo/bbs/%[7]s
  backend: mongo
  apiVersion: %[7]s
  mongo: {endpoint: "$(%[5]s)", database: %[8]s}
kinds:
- {from: %[9]s, to: %[9]s, lens: packages.yaml}
`, deploymentName, ringSize, strings.Join(etcd, `", "`), oldVersion, uriVariable, l.oldDB, newVersion, l.newDB, packagesKind)
	for name, content := range map[string][]byte{"config.yaml": []byte(text), "packages.yaml": packages.Lens()} {
		if err := os.WriteFile(l.file(name), content, 0o600); err != nil {
			return fmt.Errorf("write the demo's files: %w", err)
		}
	}
	return nil
}
