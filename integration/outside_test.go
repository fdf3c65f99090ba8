package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	gomod "golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/integration/page"
)

// TestServiceOutsideTheTree is a stranger's first hour: 'init service' writes a service, a module
// of its own, which gets this one as go get gives it to everybody. It builds, its tests pass,
// no test container and no etcd server comes with it, and its programs serve v1, go to v2 and
// back, with what was written on either side.
//
// Commands and requests are those of docs/library.md. Its mongod and mongosh are not: the server
// of the tests stands for them. 'watch' ends only by an interrupt; TestGuideAsShown has it.
func TestServiceOutsideTheTree(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds all that a service links")
	}
	dbc := built.path(t)
	under := t.TempDir()
	dir := filepath.Join(under, "tasks")
	o := outsider{t: t, dir: dir}
	first := program(dbc, o.shown("dbcontroller init service")[1:], nil)
	first.Dir = under
	out, err := first.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "README.md there says how to run it") {
		t.Fatalf("init service: %v\n%s", err, out)
	}
	if out, err := program(dbc, []string{"init", "service", dir}, nil).CombinedOutput(); err == nil || !strings.Contains(string(out), "is not empty") {
		t.Errorf("a second time: %v %s", err, out)
	}
	o.publish()
	o.latest(o.shown("go get"))
	// What only tests of libraries need may not be on this machine: -e goes on without.
	said := o.latest(append(o.shown("go mod tidy"), "-e"))
	sums := o.read("go.sum")
	for _, found := range regexp.MustCompile(`(?m)\S*(testcontainers|docker|moby|containerd|etcd/server|etcd/raft|bbolt)\S*`).FindAllString(sums+said, -1) {
		t.Errorf("who uses the library gets %s", found)
	}
	// A service has what it imports: rest.Front, of which this one has nothing, brings a library along.
	// The line of a go.mod alone is no download.
	if regexp.MustCompile(`(?m)^connectrpc\.com/vanguard \S+ h1:`).MatchString(sums) {
		t.Error("who serves no REST gets its library")
	}
	if !strings.Contains(sums, "go.etcd.io/etcd/client/v3 ") || len(sums) < 5000 {
		t.Errorf("go.sum has not what a service needs:\n%s", sums)
	}
	t.Logf("go.sum has %d lines", strings.Count(sums, "\n"))
	o.latest(o.shown("go build"))
	o.latest(o.shown("go test"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o.upgrade(ctx, dbc)
}

// outsider is a module that is none of ours.
type outsider struct {
	t       *testing.T
	dir     string
	version string
	env     []string
}

// publish offers this tree to the outsider's go command as a version of its module. All other
// modules come from the module cache of this machine, and those that the cache lacks from the
// configured proxy. A cache that only this tree's build has filled is not complete: a module that
// only Windows needs is missing, for example.
func (o *outsider) publish() {
	o.t.Helper()
	// What is built has the version in its paths: with the same one each time, packages that have
	// not changed since the last run are not compiled again. The go command keeps what it knows
	// of a version in its module cache, which is a new one each time.
	o.version = "v0.0.1"
	proxy := o.t.TempDir()
	at := filepath.Join(proxy, "dbcontroller.dev", "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		o.t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := zip.Create(&archive, gomod.Version{Path: "dbcontroller.dev", Version: o.version}, tree(o.t)); err != nil {
		o.t.Fatal(err)
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		o.t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		o.version + ".zip": archive.Bytes(), o.version + ".mod": mod, "list": []byte(o.version + "\n"),
		o.version + ".info": fmt.Appendf(nil, `{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, o.version),
	} {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o600); err != nil {
			o.t.Fatal(err)
		}
	}
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		o.t.Fatal(err)
	}
	known := strings.Split(strings.TrimSpace(string(out)), "\n")
	here := filepath.Join(known[0], "cache", "download")
	o.env = append(os.Environ(), "GOMODCACHE="+o.t.TempDir(), "GOPROXY=file://"+proxy+",file://"+here+","+known[1], "GOSUMDB=off",
		"GOWORK=off",
		// As releases are built, so that their cache serves; what tests found is not kept. make lint
		// vets the service in this tree, and nobody debugs this one.
		"GOFLAGS=-modcacherw -trimpath -count=1 -vet=off -ldflags=-s", "CGO_ENABLED=0")
}

// tree is what of this tree is part of its module.
func tree(t *testing.T) (files []zip.File) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(filepath.ToSlash(path), "../")
		switch {
		case d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || rel == "bin" || rel == "dist"):
			return filepath.SkipDir
		case d.Type().IsRegular():
			files = append(files, source{rel, path})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// source is a file of the tree.
type source struct{ name, path string }

func (s source) Path() string                 { return s.name }
func (s source) Lstat() (os.FileInfo, error)  { return os.Lstat(s.path) }
func (s source) Open() (io.ReadCloser, error) { return os.Open(s.path) }

// shown is the command of docs/library.md that begins so, in its words.
func (o *outsider) shown(begins string) []string {
	o.t.Helper()
	for _, b := range o.blocks() {
		for line := range strings.Lines(b.Text) {
			line, _, _ = strings.Cut(line, " #")
			for _, command := range strings.Split(line, " && ") {
				if words := strings.Fields(command); b.Language == "sh" && strings.HasPrefix(strings.Join(words, " "), begins) {
					return words
				}
			}
		}
	}
	o.t.Fatalf("docs/library.md has no command that begins with %q", begins)
	return nil
}

// posted is the request that docs/library.md has its reader send by curl.
func (o *outsider) posted(method string) (body string) {
	o.t.Helper()
	curl := regexp.MustCompile(`curl -d '([^']*)' \\\n +-H 'Content-Type: application/json' http://127\.0\.0\.1:8080/` + regexp.QuoteMeta(method) + `\n`)
	for _, b := range o.blocks() {
		if m := curl.FindStringSubmatch(b.Text); m != nil && b.Language == "sh" {
			return m[1]
		}
	}
	o.t.Fatalf("docs/library.md has no request of %s", method)
	return ""
}

// refused is the answer that docs/library.md shows, but for its details.
func (o *outsider) refused() string {
	o.t.Helper()
	for _, b := range o.blocks() {
		if b.Language == "json" {
			return strings.TrimSuffix(strings.TrimSpace(b.Text), "}")
		}
	}
	o.t.Fatal("docs/library.md shows no answer")
	return ""
}

func (o *outsider) blocks() []page.Block {
	o.t.Helper()
	text, err := os.ReadFile("../docs/library.md")
	if err != nil {
		o.t.Fatal(err)
	}
	return page.Blocks(string(text))
}

// latest runs such a command, for which the latest version is this tree.
func (o *outsider) latest(words []string) string {
	o.t.Helper()
	for i, word := range words {
		words[i] = strings.Replace(word, "@latest", "@"+o.version, 1)
	}
	return o.run(words[0], words[1:]...)
}

// run runs a command in the module, which has to succeed, and returns what it says.
func (o *outsider) run(name string, args ...string) string {
	o.t.Helper()
	out, err := o.try(name, args...)
	if err != nil {
		o.t.Fatal(err)
	}
	return out
}

func (o *outsider) try(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(o.t.Context(), name, args...)
	cmd.Dir, cmd.Env = o.dir, o.env
	began := time.Now()
	out, err := cmd.CombinedOutput()
	o.t.Logf("%s %s took %v", name, strings.Join(args, " "), time.Since(began).Round(time.Second))
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (o *outsider) read(name string) string {
	o.t.Helper()
	text, err := os.ReadFile(filepath.Join(o.dir, name))
	if err != nil {
		o.t.Fatal(err)
	}
	return string(text)
}

// upgrade runs the programs of the service, as README.md there says, to v2 and back.
func (o *outsider) upgrade(ctx context.Context, dbc string) {
	o.t.Helper()
	uri, first := mongotest.Database(o.t)
	_, second := mongotest.Database(o.t)
	text := o.read("config.yaml")
	for _, name := range []string{first, second} {
		text = strings.Replace(text, `"$(MONGO_URI)"}`, `"$(MONGO_URI)", database: `+name+`}`, 1)
	}
	if err := os.WriteFile(filepath.Join(o.dir, "config.yaml"), []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	// The ports of the page may be taken here.
	spawned := func(name, shown string, ports ...string) *child {
		words := append(o.shown(shown), ports...)
		if words[0] == "dbcontroller" {
			words[0] = dbc
		}
		cmd := program(words[0], words[1:], []string{"MONGO_URI=" + uri})
		cmd.Dir = o.dir
		return spawn(o.t, name, cmd)
	}
	spawned("etcd", "dbcontroller etcd")
	eventually(ctx, o.t, "etcd is there", func() error {
		_, err := os.Stat(filepath.Join(o.dir, "data", "etcd-endpoint"))
		return err
	})
	controller := spawned("controller", "bin/controller run", "--api-listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0").ready(ctx)
	server := spawned("server", "bin/server", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0").ready(ctx)
	api, _ := server.addresses()
	at, _ := controller.addresses()
	call := func(method, body string, want ...string) {
		o.t.Helper()
		eventually(ctx, o.t, method, func() error {
			said, err := post(ctx, "http://"+api+"/"+method, body)
			for _, w := range want {
				if err == nil && !strings.Contains(said, w) {
					err = fmt.Errorf("%s has no %s", said, w)
				}
			}
			return err
		})
	}
	o.env = append(o.env, "DBCONTROLLER_SERVER="+at)
	const name, fixture = `"name":"projects/home/tasks/paint"`, `"name":"projects/home/tasks/read"`
	call("tasks.v1.TaskService/GetTask", `{`+fixture+`}`, "read README.md")
	const create, get = "tasks.v1.TaskService/CreateTask", "tasks.v2.TaskService/GetTask"
	call(create, o.posted(create), name, `"title":"paint the door"`, "1800000000")
	call("tasks.v2.TaskService/UpdateTask", `{"task":{`+name+`,"priority":7},"updateMask":"priority"}`, o.refused())
	o.latest(o.shown("bin/controller begin-upgrade"))
	call("tasks.v2.TaskService/UpdateTask", `{"task":{`+name+`,"priority":7},"updateMask":"priority"}`, `"priority":7`, "2027-01-15T08:00:00Z")
	call("tasks.v1.TaskService/UpdateTask", `{"task":{`+name+`,"title":"paint the fence"},"updateMask":"title"}`, "paint the fence", "1800000000")
	call(get, o.posted(get), `"priority":7`, "paint the fence")
	call(get, `{`+fixture+`}`, "read README.md")
	// It is refused until the controller has announced that it can go back.
	eventually(ctx, o.t, "the rollback", func() error {
		back := o.shown("bin/controller rollback")
		_, err := o.try(back[0], back[1:]...)
		return err
	})
	call("tasks.v2.TaskService/DeleteTask", `{"name":"projects/home/tasks/none"}`, "v1 is the active version: write through tasks.v1.TaskService")
	call("tasks.v1.TaskService/GetTask", `{`+name+`}`, "paint the fence", "1800000000")
}

// post is a call of a unary method in JSON, whose errors are answers as well.
func post(ctx context.Context, url, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(res.Body)
	// JSON of proto messages has spaces at random.
	return strings.ReplaceAll(string(text), `": `, `":`), err
}
