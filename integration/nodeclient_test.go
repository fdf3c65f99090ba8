package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const nodeFolder = "../clients/node"

// nodeClient installs what the client needs, unless it is there, and returns the application's script.
func nodeClient(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: this test needs Node.js 20.19 or later, with npm", err)
		}
	}
	nodeOnce.Do(func() {
		if nodeInstalled() {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
		cmd.Dir = nodeFolder
		if out, err := cmd.CombinedOutput(); err != nil {
			errNode = fmt.Errorf("npm ci in clients/node: %w\n%s", err, out)
		}
	})
	if errNode != nil {
		t.Fatal(errNode)
	}
	return nodeFolder + "/scenario/application.js"
}

var (
	nodeOnce sync.Once
	errNode  error
)

// nodeInstalled tells whether all that the lock file names is installed: npm would ask the
// registry for it again, and without a network fail.
func nodeInstalled() bool {
	type pinned struct{ Version, Integrity string }
	packages := func(name string) map[string]pinned {
		var lock struct{ Packages map[string]pinned }
		text, err := os.ReadFile(filepath.Join(nodeFolder, name))
		if err == nil {
			err = json.Unmarshal(text, &lock)
		}
		if err != nil {
			return nil
		}
		delete(lock.Packages, "") // the client itself
		return lock.Packages
	}
	// npm writes this one when it has installed everything.
	there := packages("node_modules/.package-lock.json")
	return len(there) > 0 && maps.Equal(there, packages("package-lock.json"))
}

// TestNodeClient runs the client's own tests.
func TestNodeClient(t *testing.T) {
	t.Parallel()
	nodeClient(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "test")
	cmd.Dir = nodeFolder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("npm test: %v\n%s", err, out)
	}
}

// TestNodeExample: the application that docs/application.md shows, over a switch and back. It
// ends when it is asked to.
func TestNodeExample(t *testing.T) {
	t.Parallel()
	nodeClient(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{
		service: "shop", lens: "lens: 1\noperations: [rename: {from: state, to: status}]\n",
		kinds: "[{from: orders, to: orders, lens: packages.yaml}]",
	})
	collections{t}.insert(s.db["v1"], "orders", `{"_id":"first","state":"NEW"}`)
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	shop := newNodeExample(ctx, t, s.uris["v1"], api)
	placed := func(id string) {
		t.Helper()
		if res := shop.call("place", bson.M{"id": id, "state": "PAID"}); res["insertedId"] != id {
			t.Errorf("place %s: %v", id, res)
		}
	}
	placed("one")
	for _, version := range []string{"v2", "v1"} {
		s.beginTo(ctx, version)
		s.await(ctx, "the flip to "+version, flipped(version))
		placed("at " + version)
		field := map[string]string{"v1": "state", "v2": "status"}[version]
		for id, want := range map[string]string{"first": "NEW", "one": "PAID", "at v2": "PAID", "at " + version: "PAID"} {
			if doc := shop.call("find", id); len(doc) != 2 || doc["_id"] != id || doc[field] != want {
				t.Errorf("at %s %s is %v, want %s %s", version, id, doc, field, want)
			}
		}
	}
	if err := shop.stdin.Close(); err != nil { // who waits for calls does not keep it
		t.Fatal(err)
	}
	if code := shop.terminate(patience); code != 0 {
		t.Errorf("it ends with code %d", code)
	}
	s.awaitClients(ctx, 0)
}

// nodeExample is a process of clients/node/example.js.
type nodeExample struct {
	*child
	answers *json.Decoder
}

func newNodeExample(ctx context.Context, t *testing.T, uri, controllers string) nodeExample {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	deadline, _ := ctx.Deadline() // of an answer that does not come
	if err := read.SetReadDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", filepath.Join(nodeFolder, "scenario", "example.js"))
	cmd.Env = append(os.Environ(), "MONGO_URI="+uri, "CONTROLLERS="+controllers)
	cmd.Stdout = write
	shop := nodeExample{spawn(t, "shop", cmd), json.NewDecoder(read)}
	t.Cleanup(func() { read.Close() })
	return shop
}

// call calls what the example exports, and returns what that resolves to.
func (e nodeExample) call(name string, of any) bson.M {
	e.t.Helper()
	call, err := json.Marshal(map[string]any{"call": name, "of": of})
	if err != nil {
		e.t.Fatal(err)
	}
	e.order(string(call))
	var answer struct {
		Result bson.M `json:"result"`
		Error  string `json:"error"`
	}
	if err := e.answers.Decode(&answer); err != nil || answer.Error != "" {
		e.t.Fatalf("%s: %v %s\n%s", name, err, answer.Error, e.output())
	}
	return answer.Result
}
