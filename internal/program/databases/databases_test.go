package databases_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/config"
	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/record"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

const patience = 5 * time.Minute

// configured is a configuration of v1 at uri, and of v2 where nothing listens.
func configured(uri string) config.Config {
	const nowhere = "mongodb://127.0.0.1:1/?replicaSet=rs0"
	return config.Config{Path: "/etc/config.yaml", DBs: []config.DB{
		{Version: "v1", Backend: "mongo", Database: "dbc_opened", Endpoint: config.NewSecret(uri)},
		{Version: "v2", Backend: "mongo", Database: "dbc_opened", Endpoint: config.NewSecret(nowhere)},
	}}
}

func open(t *testing.T, cfg config.Config, checks ...databases.Check) *databases.Set {
	set := databases.New(cfg, databases.Config{App: "test", Checks: checks, Log: zaptest.NewLogger(t)})
	t.Cleanup(func() { set.Close(context.Background()) })
	return set
}

func own(ctx context.Context, t *testing.T, o localmongo.Options) *localmongo.Server {
	t.Helper()
	o.Own = true
	server, err := localmongo.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server
}

// TestOnlyWhatIsUsedIsOpened: the other database may be away for ever.
func TestOnlyWhatIsUsedIsOpened(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.Database(t)
	set := open(t, configured(uri))
	if _, err := set.Database("v1").Position(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v2 := set.Database("v2"); !set.Database("v1").Opened() || v2.Opened() || v2.Problem() != nil {
		t.Errorf("v1 open: %v; v2 open: %v, problem %v; want v1 alone, and no problem", set.Database("v1").Opened(), v2.Opened(), v2.Problem())
	}
	if set.Database("v3") != nil {
		t.Error("v3 is not configured")
	}
}

// TestUnreachableIsWaitedFor: the reason is told while the server is away, and the database
// opened when it is there.
func TestUnreachableIsWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := own(ctx, t, localmongo.Options{})
	node := server.Nodes()[0]
	node.Kill()
	db := open(t, configured(server.URI())).Database("v1")
	_, err := db.Position(ctx)
	if !errors.Is(err, record.ErrUnavailable) || !errors.Is(db.Problem(), record.ErrUnavailable) {
		t.Fatalf("got %v, problem %v, want record.ErrUnavailable", err, db.Problem())
	}
	for _, want := range []string{"database of v1", node.Addr(), "refused", "start the server, or correct mongo.endpoint in config.yaml"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
	waited := make(chan error, 1)
	go func() { waited <- db.Wait(ctx) }()
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil || !db.Opened() || db.Problem() != nil {
		t.Errorf("got %v, open: %v, problem %v", err, db.Opened(), db.Problem())
	}
}

// TestNoPrimaryIsWaitedFor: a step-down during a start ends nothing.
func TestNoPrimaryIsWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := own(ctx, t, localmongo.Options{})
	stepDown(ctx, t, server.URI(), 20)
	db := open(t, configured(server.URI()), func(ctx context.Context, _ config.DB, ns record.Namespace) error {
		return ns.Check(ctx)
	}).Database("v1")
	if _, err := db.Get(ctx); !errors.Is(err, record.ErrUnavailable) || !strings.Contains(err.Error(), "no primary") || db.Refused(err) {
		t.Errorf("got %v, want that there is no primary", err)
	}
	if err := db.Wait(ctx); err != nil {
		t.Error(err)
	}
}

// TestStepDownDuringChecks: what was open for a moment and lost its primary in the middle
// of a check is tried again, too.
func TestStepDownDuringChecks(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := own(ctx, t, localmongo.Options{TestCommands: true})
	checks := 0
	db := open(t, configured(server.URI()), func(ctx context.Context, _ config.DB, ns record.Namespace) error {
		if checks++; checks == 1 {
			refuse(ctx, t, server.URI(), "create", 189) // PrimarySteppedDown
		}
		return ns.Check(ctx)
	}).Database("v1")
	if err := db.Wait(ctx); err != nil || checks < 2 {
		t.Errorf("after %d checks: %v", checks, err)
	}
}

// TestRefusalIsNotWaitedFor: a wrong password is for a person.
func TestRefusalIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := own(ctx, t, localmongo.Options{Auth: true})
	_, rest, _ := strings.Cut(server.URI(), "@")
	db := open(t, configured("mongodb://nobody:wrong@"+rest)).Database("v1")
	err := db.Wait(ctx)
	if err == nil || errors.Is(err, record.ErrUnavailable) || !strings.Contains(err.Error(), "authenticat") || ctx.Err() != nil {
		t.Errorf("got %v, want at once that the login is refused", err)
	}
	if !db.Refused(err) {
		t.Error("it is taken for silence")
	}
	if strings.Contains(err.Error(), "wrong") {
		t.Error("the password is shown")
	}
}

// TestCheckRefuses: nothing reaches a database that a check refuses.
func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.Database(t)
	somebodyElses := errors.New("it is somebody else's")
	db := open(t, configured(uri), func(context.Context, config.DB, record.Namespace) error { return somebodyElses }).Database("v1")
	if err := db.Wait(t.Context()); !errors.Is(err, somebodyElses) {
		t.Errorf("got %v", err)
	}
	if _, err := db.Position(t.Context()); !errors.Is(err, somebodyElses) {
		t.Errorf("got %v", err)
	}
	key, err := record.KeyOf(bson.RawValue{Type: bson.TypeInt32, Value: []byte{1, 0, 0, 0}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Client().Get(t.Context(), record.Token{Kind: "a", Name: "a"}, key); !errors.Is(err, somebodyElses) {
		t.Errorf("got %v", err)
	}
}

func stepDown(ctx context.Context, t *testing.T, uri string, seconds int) {
	t.Helper()
	command(ctx, t, uri, bson.D{{Key: "replSetStepDown", Value: seconds}, {Key: "secondaryCatchUpPeriodSecs", Value: 0}, {Key: "force", Value: true}})
}

// refuse lets a server answer the next such commands with an error, as many as the driver
// repeats.
func refuse(ctx context.Context, t *testing.T, uri, what string, code int) {
	t.Helper()
	command(ctx, t, uri, bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
		{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{what}}, {Key: "errorCode", Value: code}, {Key: "appName", Value: "test"}}},
	})
}

func command(ctx context.Context, t *testing.T, uri string, cmd bson.D) {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(ctx) //nolint:errcheck // of a test
	if err := client.Database("admin").RunCommand(ctx, cmd).Err(); err != nil {
		t.Fatal(err)
	}
}
