package secrets_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/gen/secrets/v2/secretsv2connect"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// flippable is a Deployment that a test flips: what controllers do before, it does at once.
type flippable struct {
	dbs  map[string]*memstore.Store
	seen chan struct{} // closed when the server has said that it serves

	mu   sync.Mutex
	d    upgradestate.Deployment
	news chan struct{}
	once sync.Once
}

func newFlippable(t *testing.T) *flippable {
	t.Helper()
	f := &flippable{news: make(chan struct{}), seen: make(chan struct{}), dbs: map[string]*memstore.Store{}}
	f.d = upgradestate.Deployment{Format: upgradestate.Format, Name: "services/s/deployments/d", CurrentVersion: secrets.V1, Epoch: 1, Revision: 1}
	for _, version := range []string{secrets.V1, secrets.V2} {
		f.dbs[version] = memstore.New()
		tok, err := f.dbs[version].Provision(context.Background(), record.KindSpec{Name: secrets.Kind}, record.PhysicalName(secrets.Kind, 1))
		if err != nil {
			t.Fatal(err)
		}
		f.d.Namespaces = append(f.d.Namespaces, upgradestate.Namespace{Version: version, Kinds: []upgradestate.Kind{{Kind: secrets.Kind, Physical: tok.Name, ID: tok.ID}}})
	}
	return f
}

func (f *flippable) Get(context.Context) (upgradestate.Deployment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.d, nil
}

func (f *flippable) Watch(ctx context.Context) <-chan upgradestate.Deployment {
	out := make(chan upgradestate.Deployment)
	go func() {
		defer close(out)
		for {
			f.mu.Lock()
			d, news := f.d, f.news
			f.mu.Unlock()
			select {
			case out <- d:
			case <-ctx.Done():
				return
			}
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (f *flippable) Announce(context.Context, upgradestate.ServerState) error {
	f.once.Do(func() { close(f.seen) })
	return nil
}

// flip fences the source, brings all records over and makes the other version the active
// one. A server that has not seen it yet is refused by the database.
func (f *flippable) flip(t *testing.T, d transform.Direction) {
	t.Helper()
	token := func(version string) record.Token {
		p := upgradestate.EnginePlaces(f.d, version)[secrets.Kind][0]
		return record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID}
	}
	ctx := context.Background()
	source := token(d.From())
	fence := record.Fence{Class: record.FenceUUID, Token: source, To: record.PhysicalName(secrets.Kind, f.d.Epoch+1)}
	if err := f.dbs[d.From()].Fence(ctx, fence); err != nil {
		t.Fatal(err)
	}
	source.Name = fence.To
	recs, err := f.dbs[d.From()].List(ctx, record.ListRequest{Token: source})
	if err != nil {
		t.Fatal(err)
	}
	held, err := f.dbs[d.To()].List(ctx, record.ListRequest{Token: token(d.To())})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		id, _, err := d.GroupOf(r.Kind, r.Key)
		if err != nil {
			t.Fatal(err)
		}
		have := transform.Group{Name: id.Name}
		for _, h := range held {
			if of, _, err := d.GroupOfTarget(h.Kind, h.Key); err == nil && of == id {
				have.Records = append(have.Records, h)
			}
		}
		out, err := d.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{r}}, have)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.dbs[d.To()].Write(ctx, record.Tokens{secrets.Kind: token(d.To())}, []record.Mutation{{Kind: secrets.Kind, Key: out[0].Key, Doc: out[0].Doc}}); err != nil {
			t.Fatal(err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ns := range f.d.Namespaces {
		if ns.Version == d.From() {
			ns.Kinds[0].Physical = fence.To
		}
	}
	f.d.CurrentVersion, f.d.Epoch, f.d.Revision = d.To(), f.d.Epoch+1, f.d.Revision+1
	close(f.news)
	f.news = make(chan struct{})
}

// serve runs a server over the deployment.
func (f *flippable) serve(t *testing.T) api {
	t.Helper()
	srv := httptest.NewServer(f.handler(t))
	t.Cleanup(srv.Close)
	<-f.seen
	return api{secretsv1connect.NewSecretServiceClient(srv.Client(), srv.URL), secretsv2connect.NewSecretServiceClient(srv.Client(), srv.URL)}
}

// handler is that of a server over the deployment.
func (f *flippable) handler(t *testing.T) http.Handler {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	databases := map[string]vrunner.Database{}
	for version, db := range f.dbs {
		databases[version] = vrunner.Database{Client: db, Watcher: db}
	}
	runner := vrunner.New(f, databases, func(version string, views map[string]*vrunner.View) vrunner.Stack {
		h := secrets.StackV2(vrunner.StoreOf(views[secrets.V2]))
		if version == secrets.V1 {
			h = secrets.StackV1(vrunner.StoreOf(views[secrets.V1]), vrunner.StoreOf(views[secrets.V2]))
		}
		return vrunner.Stack{Handler: h, Write: func(r *http.Request) bool { return secrets.IsWrite(r.URL.Path) }}
	}, vrunner.Config{ID: "server"}, nil)
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = runner.Run(ctx) }() // ends with its context
	t.Cleanup(func() { stop(); <-stopped })
	mux := http.NewServeMux()
	mux.Handle("/", runner)
	secrets.MountWatches(mux, runner)
	return mux
}

// TestRevisionsAcrossTheSwitches: a v1 client's compare-and-set goes on over the flip and the
// rollback, by whichever version the secret was changed, with the revisions and errors of v1.
func TestRevisionsAcrossTheSwitches(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	f := newFlippable(t)
	a := f.serve(t)
	made := createV1(t, a, "a", secretV1())
	revision := made.GetRevision()
	stale := revision - 1
	update := func(what string) {
		t.Helper()
		owner := "team/" + what
		call := func(expected int64) (*connect.Response[secretsv1.UpdateSecretResponse], error) {
			return a.v1.UpdateSecret(t.Context(), connect.NewRequest(&secretsv1.UpdateSecretRequest{
				Secret: &secretsv1.Secret{Name: made.GetName(), Owner: owner}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"owner"}}, ExpectedRevision: &expected,
			}))
		}
		_, err := call(stale)
		sampletest.WantCode(t, err, connect.CodeAborted)
		wantTold(t, err, fmt.Sprintf("%s: its revision is %d: it has changed since that revision", made.GetName(), revision))
		res, err := call(revision)
		if err != nil || res.Msg.GetSecret().GetRevision() != revision+1 || res.Msg.GetSecret().GetOwner() != owner {
			t.Fatalf("%s: %v, %v", what, res, err)
		}
		stale, revision = revision, revision+1
	}
	update("v1")
	f.flip(t, up)
	update("v2")
	rotated, err := a.v2.RotateSecret(t.Context(), connect.NewRequest(&secretsv2.RotateSecretRequest{Name: v2Name("a"), Payload: []byte("new")}))
	if err != nil {
		t.Fatal(err)
	}
	stale, revision = revision, rotated.Msg.GetSecret().GetRevision()
	update("after v2's client")
	f.flip(t, down)
	update("back")
	f.flip(t, up)
	update("again")
	if got := getV1(t, a, made.GetName()); got.GetRevision() != revision || got.GetExpiresAt() != made.GetExpiresAt() || string(got.GetPayload()) != "new" {
		t.Errorf("at the end %v", got)
	}
}

// TestWatchGoesOnOverTheFlip: a client of each version keeps one stream over the flip. It
// is sent what has changed, and nothing that it has.
func TestWatchGoesOnOverTheFlip(t *testing.T) {
	t.Parallel()
	up, _ := directions(t)
	f := newFlippable(t)
	ctx, a := context.Background(), f.serve(t)
	first := createV1(t, a, "a", secretV1())
	next := watchV1(t, a, &secretsv1.WatchSecretsRequest{})
	expect(t, next(), put(first))
	expect(t, next(), caughtUp())
	page, err := a.v1.ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{}))
	if err != nil || len(page.Msg.GetSecrets()) != 1 {
		t.Fatal(page, err)
	}

	f.flip(t, up)
	// The write goes to v2, and comes back on the stream that began over v1.
	second := createV1(t, a, "b", &secretsv1.Secret{Owner: "search/bob"})
	expect(t, next(), put(second))
	if got := getV2(t, a, v2Name("b")); got.GetOwnerPerson() != "bob" {
		t.Errorf("v2 reads %v", got)
	}
	if _, err := a.v2.DeleteSecret(ctx, connect.NewRequest(&secretsv2.DeleteSecretRequest{Name: v2Name("a")})); err != nil {
		t.Fatal(err)
	}
	expect(t, next(), deleted(first.GetName()))
	rotated, err := a.v2.RotateSecret(ctx, connect.NewRequest(&secretsv2.RotateSecretRequest{Name: v2Name("b"), Payload: []byte("new")}))
	if err != nil {
		t.Fatal(err)
	}
	want := proto.CloneOf(second)
	want.Payload, want.Revision = rotated.Msg.GetSecret().GetPayload(), rotated.Msg.GetSecret().GetRevision()
	expect(t, next(), put(want))
}
