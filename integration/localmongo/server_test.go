package localmongo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// start gives a server of the test's own and proves at the end that neither a
// process nor data is left of it.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	o.Own, o.Dir, o.Log = true, t.TempDir(), t.Output()
	began := time.Now()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes up after %v", len(s.Nodes()), time.Since(began))
	t.Cleanup(func() {
		var pids []int
		for _, n := range s.Nodes() {
			pids = append(pids, n.Pid())
		}
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		for _, pid := range pids {
			if pid != 0 && syscall.Kill(pid, 0) == nil {
				t.Errorf("process %d is left after Stop", pid)
			}
		}
		if left, _ := os.ReadDir(o.Dir); len(left) > 0 {
			t.Errorf("%s is left after Stop", left[0].Name())
		}
	})
	return s
}

func connect(t *testing.T, uri string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disconnect(context.Background(), client) })
	return client
}

func insert(ctx context.Context, client *mongo.Client, id any) error {
	_, err := client.Database("d").Collection("c").InsertOne(ctx, bson.D{{Key: "_id", Value: id}})
	return err
}

func TestOneNode(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	if s.Version() == "" {
		t.Error("version is empty")
	}
	client := connect(t, s.URI())
	// A transaction and a change stream are what a replica set is for.
	stream, err := client.Watch(t.Context(), mongo.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close(t.Context())
	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		return nil, insert(ctx, client, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Next(t.Context()) {
		t.Fatal(stream.Err())
	}
}

func TestShardedCluster(t *testing.T) {
	t.Parallel()
	for _, auth := range []bool{false, true} {
		t.Run(fmt.Sprintf("auth=%v", auth), func(t *testing.T) {
			s := start(t, Options{Shards: 2, Auth: auth})
			client := connect(t, s.URI())
			if h, err := ask(t.Context(), client); err != nil || h.Msg != "isdbgrid" {
				t.Errorf("the server calls itself %q, %v, want a mongos", h.Msg, err)
			}
			if err := insert(t.Context(), client, 1); err != nil {
				t.Fatal(err)
			}
			found := int64(0)
			for _, shard := range s.Shards() {
				n, err := connect(t, shard.URI).Database("d").Collection("c").CountDocuments(t.Context(), bson.D{})
				if err != nil {
					t.Fatal(err)
				}
				found += n
			}
			if len(s.Shards()) != 2 || found != 1 {
				t.Errorf("%d shards hold %d documents, want 2 with 1", len(s.Shards()), found)
			}
		})
	}
}

func TestKilledNodeComesBackWithItsData(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	client := connect(t, s.URI())
	if err := insert(t.Context(), client, 1); err != nil {
		t.Fatal(err)
	}
	n := s.Nodes()[0]
	before := n.Pid()
	n.Kill()
	if pid := n.Pid(); pid != 0 {
		t.Errorf("pid is %d after Kill, want 0", pid)
	}
	if err := n.Pause(); err == nil {
		t.Error("a node that does not run was paused")
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.Pid() == before {
		t.Error("pid is the same after a restart")
	}
	count, err := client.Database("d").Collection("c").CountDocuments(t.Context(), bson.D{})
	if err != nil || count != 1 {
		t.Errorf("count is %d, %v, want 1", count, err)
	}
}

func TestPausedNodeAnswersAfterResume(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	client := connect(t, s.URI())
	if err := insert(t.Context(), client, 1); err != nil {
		t.Fatal(err)
	}
	n := s.Nodes()[0]
	if err := n.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := insert(ctx, client, 2); err == nil {
		t.Error("a paused node answered")
	}
	if err := n.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := insert(t.Context(), client, 3); err != nil {
		t.Errorf("insert after resume: %v", err)
	}
}

func TestThreeNodesElectAnotherPrimary(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Nodes: 3})
	client := connect(t, s.URI())
	if err := insert(t.Context(), client, 1); err != nil {
		t.Fatal(err)
	}
	s.Nodes()[0].Kill()
	err := poll(t.Context(), func() error { return insert(t.Context(), client, bson.NewObjectID()) })
	if err != nil {
		t.Fatalf("no primary after the first was killed: %v", err)
	}
	second := primary(t, s)
	if second == s.Nodes()[0] {
		t.Error("the node that was killed is called primary")
	}
	if err := s.Nodes()[0].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.AwaitMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.StepDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := primary(t, s)
	if third == second {
		t.Error("the node that stepped down is called primary")
	}
	if err := third.Pause(); err != nil {
		t.Fatal(err)
	}
	if fourth := primary(t, s); fourth == third {
		t.Error("the node that is paused is called primary")
	}
	if err := third.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := s.AwaitMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func primary(t *testing.T, s *Server) *Node {
	t.Helper()
	n, err := s.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAuth(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Auth: true})
	if err := insert(t.Context(), connect(t, s.URI()), 1); err != nil {
		t.Errorf("insert with credentials: %v", err)
	}
	_, hosts, _ := strings.Cut(s.URI(), "@")
	hosts, _, _ = strings.Cut(hosts, "/")
	if err := insert(t.Context(), connect(t, "mongodb://"+hosts+"/?replicaSet=rs0"), 2); err == nil {
		t.Error("insert without credentials succeeded")
	}
}

func TestStandaloneHasNoChangeStreams(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Standalone: true})
	client := connect(t, s.URI())
	if err := insert(t.Context(), client, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Watch(t.Context(), mongo.Pipeline{}); err == nil {
		t.Error("a standalone opened a change stream")
	}
}

func TestTestCommands(t *testing.T) {
	t.Parallel()
	s := start(t, Options{TestCommands: true})
	client := connect(t, s.URI())
	err := client.Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{"insert"}},
			{Key: "errorCode", Value: 2},
		}},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
	var failure mongo.ServerError
	if err := insert(t.Context(), client, 1); !errors.As(err, &failure) || !failure.HasErrorCode(2) {
		t.Errorf("insert returned %v, want error 2", err)
	}
}

func TestStopTwice(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForeignServerIsCheckedAndLeftRunning(t *testing.T) {
	t.Parallel()
	set, alone := start(t, Options{}), start(t, Options{Standalone: true})
	foreign := &Server{uri: set.URI()}
	if err := foreign.checkForeign(t.Context()); err != nil {
		t.Errorf("a replica set was refused: %v", err)
	}
	if err := foreign.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if set.Nodes()[0].Pid() == 0 {
		t.Error("Stop ended a server that was not ours")
	}
	err := (&Server{uri: alone.URI()}).checkForeign(t.Context())
	if err == nil || !strings.Contains(err.Error(), "standalone") {
		t.Errorf("a standalone gave %v, want a refusal", err)
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	o := Options{Own: true, Dir: t.TempDir()}.withDefaults()
	p, _, err := newFinder().find(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	// No mongod opens its storage and wins an election this fast.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := startOwn(ctx, p, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want the deadline", err)
	}
	if left, _ := os.ReadDir(o.Dir); len(left) > 0 {
		t.Errorf("%s is left after a cancelled start", left[0].Name())
	}
}

func TestCancelledSearchIsNotAMissingServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, Options{Own: true})
	var notFound *NotFoundError
	if !errors.Is(err, context.Canceled) || errors.As(err, &notFound) {
		t.Errorf("error is %v, want only the cancellation", err)
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	t.Parallel()
	p, _, err := newFinder().find(t.Context(), Options{Own: true}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(p, t.TempDir(), 1, setName, Options{}.withDefaults())
	n.args = append(n.args, "--noSuchFlag")
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	err = n.awaitListening(t.Context())
	if err == nil || !strings.Contains(err.Error(), "noSuchFlag") {
		t.Errorf("error is %v, want mongod's own words", err)
	}
}

// TestTakenPortIsRecognised: a node whose port another one has does not pass for started because the
// other one answers there.
func TestTakenPortIsRecognised(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	taken := s.Nodes()[0]
	n := newNode(taken.place, t.TempDir(), 0, setName, Options{}.withDefaults())
	n.addr = taken.addr
	n.args = append([]string(nil), taken.args...)
	n.args[1] = filepath.Join(n.dir, "data")
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	if err := n.awaitListening(t.Context()); !errors.Is(err, errPortTaken) {
		t.Errorf("error is %v, want errPortTaken", err)
	}
}
