package library_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev"
	"dbcontroller.dev/config"
	v1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/gen/library/v1/libraryv1connect"
	v2 "dbcontroller.dev/gen/library/v2"
	"dbcontroller.dev/gen/library/v2/libraryv2connect"
	"dbcontroller.dev/integration/library"
	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/integration/subprocess"
	"dbcontroller.dev/record"
)

func TestMain(m *testing.M) {
	code := mongotest.Run(m)
	localetcd.Remove()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// TestLines: all that is written for the service, its messages, programs and configuration
// included, is bounded.
func TestLines(t *testing.T) {
	t.Parallel()
	lines := 0
	for _, dir := range []string{".", "../../proto/library"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			lines += bytes.Count(text, []byte("\n"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if lines < 300 || lines > 550 {
		t.Errorf("the service has %d lines, at most 550 are few", lines)
	}
}

// system is one controller and two servers of the service.
type system struct {
	t       testing.TB
	ctx     context.Context
	service dbcontroller.Service
	config  string
	control string   // address of the controller
	servers []string // addresses
	db      map[string]*mongo.Database
	http    *http.Client
}

func start(ctx context.Context, t testing.TB) *system {
	return startService(ctx, t, withRoute(library.Service))
}

func startService(ctx context.Context, t testing.TB, service dbcontroller.Service) *system {
	t.Helper()
	s := &system{t: t, ctx: ctx, service: service, config: filepath.Join(t.TempDir(), "library.yaml"), http: &http.Client{Transport: &http.Transport{}}}
	etcd := localetcd.Start(t, localetcd.Options{})
	uri := mongotest.Server(t).URI()
	t.Setenv("MONGO_URI", uri)
	text, err := os.ReadFile("library.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = fmt.Appendf(text, "etcd: {endpoints: [%q]}\n", etcd)
	if err := os.WriteFile(s.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(ctx)) })
	s.db = map[string]*mongo.Database{}
	for _, v := range []string{"v1", "v2"} {
		s.db[v] = client.Database(config.DatabaseName("library/" + v))
	}
	s.control = freePort(t)
	running, stop := context.WithCancel(ctx)
	var g errgroup.Group
	t.Cleanup(func() {
		stop()
		s.http.CloseIdleConnections()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		for _, db := range s.db {
			if err := db.Drop(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
	})
	g.Go(func() error {
		return s.command(running, "run", "--config", s.config, "--id", "controller", "--api-listen", s.control, "--operator-listen", "127.0.0.1:0", "--log-level", "error")
	})
	s.eventually("the controller answers", func() error { return s.command(ctx, "get", "deployment", "--server", s.control) })
	listening := make(chan string)
	for i := range 2 {
		service := s.service
		service.Listening = func(api, _ string) { listening <- api }
		args := []string{"--config", s.config, "--id", fmt.Sprintf("server-%d", i), "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0", "--log-level", "error"}
		g.Go(func() error { return dbcontroller.ServeArgs(running, service, args) })
		select {
		case api := <-listening:
			s.servers = append(s.servers, "http://"+api)
		case <-ctx.Done():
			t.Fatal("a server does not listen")
		}
	}
	s.eventually("the servers serve", func() error {
		for _, server := range s.servers {
			if _, err := libraryv1connect.NewLibraryServiceClient(s.http, server).ListBooks(ctx, connect.NewRequest(&v1.ListRequest{})); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

// withRoute is a service whose versions mount routes besides their APIs. The route of v2 writes
// notes, a kind that only v2 has.
func withRoute(service dbcontroller.Service) dbcontroller.Service {
	service.Versions = slices.Clone(service.Versions)
	mount := service.Versions[0].Mount
	service.Versions[0].Mount = func(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
		mount(mux, data, opts...)
		mux.HandleFunc("GET /hours", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "9 to 5") })
	}
	two := service.Versions[1].Mount
	service.Versions[1].Kinds = []string{"notes"}
	service.Versions[0].Indexes = map[string][]string{"books": {"title", "library"}}
	service.Versions[1].Indexes = map[string][]string{"books": {"title", "branch"}}
	service.Versions[1].Mount = func(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
		two(mux, data, opts...)
		mux.HandleFunc("POST /notes", func(w http.ResponseWriter, r *http.Request) {
			doc, _ := bson.Marshal(bson.D{{Key: "_id", Value: "n"}})
			if err := data.Write(r.Context(), []record.Mutation{{Kind: "notes", Key: record.StringKey("n"), Doc: doc}}); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	return service
}

// notes counts the notes in the database of v2.
func (s *system) notes() (n int64) {
	s.t.Helper()
	names, err := s.db["v2"].ListCollectionNames(s.ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: `^notes\.n[0-9]+$`}}})
	if err != nil || len(names) != 1 {
		s.t.Fatalf("collections of notes are %v, %v", names, err)
	}
	if n, err = s.db["v2"].Collection(names[0]).CountDocuments(s.ctx, bson.D{}); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// route checks that a real server serves the route.
func (s *system) route() {
	s.t.Helper()
	for path, want := range map[string]string{"/hours": "200 9 to 5", "/nothing": "404 404 page not found\n"} {
		res, err := s.http.Get(s.servers[0] + path)
		if err != nil {
			s.t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if got := fmt.Sprintf("%d %s", res.StatusCode, body); err != nil || got != want {
			s.t.Errorf("%s answers %q, %v, want %q", path, got, err, want)
		}
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	ports, err := subprocess.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// command runs the controller's program with arguments.
func (s *system) command(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	if err := dbcontroller.ControllerArgs(ctx, s.service, args, &out, &out); err != nil {
		return fmt.Errorf("%s: %w %s", args[0], err, out.String())
	}
	return nil
}

func (s *system) eventually(what string, try func() error) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-s.ctx.Done():
			s.t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// session runs the client once, at one of the servers.
func (s *system) session(server int) *session {
	return s.sessionOver(server, func(libraryv1connect.LibraryServiceClient) {})
}

// sessionOver runs the client, and something else when half of its requests are answered.
func (s *system) sessionOver(server int, midway func(api libraryv1connect.LibraryServiceClient)) *session {
	c := &session{
		ctx: s.ctx, api: libraryv1connect.NewLibraryServiceClient(s.http, s.servers[server%len(s.servers)]),
		first: map[string]int64{}, served: map[string]int{}, midway: midway,
	}
	c.run()
	return c
}

// same compares what a session was told with what the first one was.
func (s *system) same(phase string, want, got *session) {
	s.t.Helper()
	if got.requests != requestsOfSession {
		s.t.Errorf("%s: a session has %d requests, want %d", phase, got.requests, requestsOfSession)
	}
	if diff := cmp.Diff(want.told, got.told); diff != "" {
		s.t.Errorf("%s: the client is told (-before +now):\n%s", phase, diff)
	}
}

// switchTo switches to a version in the middle of a session, and runs more until it serves all servers.
func (s *system) switchTo(want *session, version string, args ...string) {
	s.t.Helper()
	done := make(chan error, 1)
	over := s.sessionOver(0, func(api libraryv1connect.LibraryServiceClient) {
		go func() { done <- s.command(s.ctx, append(args, "--server", s.control)...) }()
		s.eventually("an answer of "+version, func() error { return s.during(api, version) })
	})
	s.same("over the switch to "+version, want, over)
	if len(over.served) != 2 || over.served[version] == 0 {
		s.t.Errorf("the session over the switch to %s was served by %v", version, over.served)
	}
	if err := <-done; err != nil {
		s.t.Fatal(err)
	}
	for i := 0; ; i++ {
		got := s.session(i)
		s.same("during the switch to "+version, want, got)
		if got.served[version] == requestsOfSession-refusedOfSession {
			break
		}
		if s.ctx.Err() != nil || s.t.Failed() {
			s.t.Fatalf("no switch to %s", version)
		}
	}
	s.t.Logf("switched to %s; the session over it was served by %v", version, over.served)
}

// during makes a book and deletes it, which always works. It is an error as long as another
// version answers.
func (s *system) during(api libraryv1connect.LibraryServiceClient, version string) error {
	_, err := api.CreateBook(s.ctx, connect.NewRequest(&v1.CreateBookRequest{BookId: "during", Book: &v1.Book{Title: "During", Library: "libraries/north"}}))
	if err != nil {
		s.t.Fatalf("make a book during a switch: %v", err)
	}
	res, err := api.DeleteBook(s.ctx, connect.NewRequest(&v1.DeleteRequest{Name: "books/during"}))
	if err != nil {
		s.t.Fatalf("delete a book during a switch: %v", err)
	}
	if by := res.Header().Get(dbcontroller.VersionHeader); by != version {
		return fmt.Errorf("served by %s", by)
	}
	return nil
}

// TestService: a client of v1 that knows nothing of v2 is told the same, whichever version
// is active and while that changes; its watch goes on; what only v2 knows, and what no
// version of the program knows, survives.
func TestService(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute) // a hang fails here, and not a slow machine
	defer cancel()
	s := start(ctx, t)
	s.seed()
	before := s.session(0)
	if before.served["v1"] == 0 || len(before.served) != 1 {
		t.Fatalf("served by %v", before.served)
	}
	if n := requestsOfSession - before.served["v1"]; n != refusedOfSession {
		t.Fatalf("%d requests of a session are refused, want %d: %s", n, refusedOfSession, strings.Join(before.told, "\n"))
	}
	s.same("before", before, s.session(1))
	s.route()
	s.planned("v1")
	w := s.watch()
	s.switchTo(before, "v2", "begin-upgrade", "deployment", "--target-version", "v2")
	for i := range 2 {
		s.same("after the switch", before, s.session(i))
	}
	s.route()
	s.planned("v2")
	s.indexed("v1")
	res, err := s.http.Post(s.servers[0]+"/notes", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if n := s.notes(); res.StatusCode != http.StatusOK || n != 1 {
		t.Errorf("writing a note: %s, %d notes", res.Status, n)
	}
	// What only v2 knows stays when v1 changes the book.
	now := libraryv2connect.NewLibraryServiceClient(s.http, s.servers[0])
	if _, err := now.UpdateBook(ctx, connect.NewRequest(&v2.UpdateBookRequest{Book: &v2.Book{Name: "books/s01", Shelf: "A3"}})); err != nil {
		t.Fatal(err)
	}
	old := libraryv1connect.NewLibraryServiceClient(s.http, s.servers[1])
	if _, err := old.LendBook(ctx, connect.NewRequest(&v1.LendBookRequest{Name: "books/s01"})); err != nil {
		t.Fatal(err)
	}
	book, err := now.GetBook(ctx, connect.NewRequest(&v2.GetRequest{Name: "books/s01"}))
	if err != nil || book.Msg.GetShelf() != "A3" || book.Msg.GetLent() != 1 || book.Msg.GetBranch() != "branches/main" {
		t.Errorf("v2 has %v, %v", book, err)
	}
	w.expect("books/s01", func(b *v1.Book) bool { return b.GetCopies().GetLent() == 1 })
	s.eventually("each record has what the program does not know of it", func() error { return s.unknown(1) })
	changed := s.session(0) // one copy of a seeded book is lent now
	s.switchTo(changed, "v1", "rollback")
	for i := range 2 {
		s.same("after the rollback", changed, s.session(i))
	}
	if n := s.notes(); n != 1 {
		t.Errorf("%d notes after the rollback", n)
	}
	s.planned("v1")
	s.indexed("v2")
	if _, err := old.LendBook(ctx, connect.NewRequest(&v1.LendBookRequest{Name: "books/s01"})); err != nil {
		t.Fatal(err)
	}
	w.expect("books/s01", func(b *v1.Book) bool { return b.GetCopies().GetLent() == 2 })
	s.eventually("each record has what the program does not know of it", func() error { return s.unknown(2) })
}
