package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// patience is the limit of every wait, on a busy machine.
const patience = 2 * time.Minute

const deployment = "services/shop.example.com/deployments/eu"

// The lens refuses records whose size is no int.
const lens = `lens: 1
operations:
  - rename: {from: mail, to: email}
  - convert: {field: size, from: int, to: long}
`

// hostile is a key that would run as a script if the page took it for HTML.
const hostile = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`

// tokens of the two users.
const (
	operatorToken = "0123456789abcdef0123456789abcdef-operator"
	viewerToken   = "0123456789abcdef0123456789abcdef-viewer"
)

// system is two controllers over one MongoDB. The first one also has the etcd.
type system struct {
	addresses []string // of the APIs, http://host:port
	processes []*exec.Cmd
	suffix    string // of the names of its databases
}

// start loads records, one of them hostile, and starts the controllers.
func start(t *testing.T) *system {
	t.Helper()
	uri, program := os.Getenv("DBCONTROLLER_TEST_MONGODB"), os.Getenv("DBCONTROLLER_PROGRAM")
	if uri == "" || program == "" {
		t.Skip("run it by 'make ui', which starts MongoDB and names the program")
	}
	dir := t.TempDir()
	suffix := fmt.Sprint(time.Now().UnixNano())
	load(t, uri, "page_"+suffix)
	s := &system{suffix: suffix}
	for range 2 {
		s.addresses = append(s.addresses, "http://"+free(t))
	}
	write(t, filepath.Join(dir, "customers.yaml"), lens)
	write(t, filepath.Join(dir, "tokens"), "ann "+operatorToken+"\nvic "+viewerToken+"\n")
	for i, at := range s.addresses {
		write(t, filepath.Join(dir, fmt.Sprintf("shop%d.yaml", i)), fmt.Sprintf(`deployment: %s
sharding: {ringSize: 8}
dataDir: data
operator: {listen: "127.0.0.1:0"}
api: {listen: %q, controllers: [%q, %q], records: true}
access: {tokens: tokens, roles: {operator: ["token:ann"], viewer: ["token:vic"]}}
dbs:
- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: %q, database: page_%s}}
- {namespace: shop/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: %q, database: page_v2_%s}}
kinds:
- {from: customers, to: customers, lens: customers.yaml}
`, deployment, strings.TrimPrefix(at, "http://"), s.addresses[0], s.addresses[1], uri, suffix, uri, suffix))
		args := []string{"run", "--config", fmt.Sprintf("shop%d.yaml", i), "--id", fmt.Sprintf("controller-%d", i+1)}
		if i == 0 {
			args = append(args, "--embedded-etcd")
		}
		cmd := exec.Command(program, args...)
		var log bytes.Buffer
		cmd.Dir, cmd.Stderr, cmd.Stdout = dir, &log, &log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.processes = append(s.processes, cmd)
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				t.Logf("controller %d:\n%s", i+1, log.String())
			}
		})
		s.ready(t, at)
	}
	return s
}

// ready waits until a controller answers with its deployment.
func (s *system) ready(t *testing.T, at string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if d, err := get(t, at); err == nil && len(d.AvailableUpgrades) > 0 {
			return
		}
	}
	t.Fatalf("the controller at %s is not ready after %s", at, patience)
}

// answer is the part of a deployment that tests look at.
type answer struct {
	CurrentVersion    string
	AvailableUpgrades []struct{ TargetVersion string }
}

func get(t *testing.T, at string) (answer, error) {
	var d answer
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/dbcontroller.v1.DeploymentService/GetDeployment", strings.NewReader("{}"))
	if err != nil {
		return d, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+operatorToken)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return d, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return d, fmt.Errorf("status %s", res.Status)
	}
	return d, json.NewDecoder(res.Body).Decode(&d)
}

// kill ends a controller as a crash does.
func (s *system) kill(t *testing.T, i int) {
	t.Helper()
	if err := s.processes[i].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.processes[i].Wait() // it was killed
}

// load writes the records of v1.
func load(t *testing.T, uri, database string) {
	t.Helper()
	docs := []any{bson.M{"_id": hostile, "mail": "x", "size": "<script>window.hacked=1</script>"}}
	for i := range 500 {
		docs = append(docs, bson.M{"_id": fmt.Sprintf("c-%d", i), "mail": "m@example.com", "size": i})
	}
	if _, err := connect(t, uri).Database(database).Collection("customers").InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
}

// breach replaces the view that fences v1's collection after a switch by a collection with a record.
func (s *system) breach(t *testing.T) {
	t.Helper()
	old := connect(t, os.Getenv("DBCONTROLLER_TEST_MONGODB")).Database("page_" + s.suffix).Collection("customers")
	if err := old.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := old.InsertOne(t.Context(), bson.M{"_id": "late", "mail": "late@example.com", "size": 1}); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, uri string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}

// free returns an address that nothing listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
