package secrets_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	secretsv1 "dbcontroller/gen/secrets/v1"
	"dbcontroller/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller/gen/secrets/v2"
	"dbcontroller/gen/secrets/v2/secretsv2connect"
	"dbcontroller/record"
	"dbcontroller/record/memstore"
	"dbcontroller/sample/secrets"
	"dbcontroller/vrunner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tokenStore is a namespace in memory whose tokens never change.
type tokenStore struct {
	client record.Client
	tokens record.Tokens

	mu      sync.Mutex
	writes  int
	onWrite func([]record.Mutation) error // an error refuses the write
	feeds   map[*feed]bool
}

var _ vrunner.Store = (*tokenStore)(nil)

func newStore(t testing.TB) *tokenStore {
	t.Helper()
	ns := memstore.New()
	tok, err := ns.Provision(context.Background(), record.KindSpec{Name: secrets.Kind}, record.PhysicalName(secrets.Kind, 1))
	if err != nil {
		t.Fatal(err)
	}
	return &tokenStore{client: ns, tokens: record.Tokens{secrets.Kind: tok}, feeds: map[*feed]bool{}}
}

func (s *tokenStore) Get(ctx context.Context, kind, key string) (record.Record, error) {
	return s.client.Get(ctx, s.tokens[kind], record.StringKey(key))
}

func (s *tokenStore) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	return s.client.List(ctx, record.ListRequest{Token: s.tokens[kind], Prefix: prefix, After: after, Limit: limit})
}

func (s *tokenStore) Write(ctx context.Context, ms []record.Mutation) error {
	s.mu.Lock()
	s.writes++
	on := s.onWrite
	s.mu.Unlock()
	if on != nil {
		if err := on(ms); err != nil {
			return err
		}
	}
	if err := s.client.Write(ctx, s.tokens, ms); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.feeds {
		for _, m := range ms {
			name, _ := m.Key.Name()
			f.dirty = append(f.dirty, vrunner.Dirty{Kind: m.Kind, Name: name})
		}
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// feed is a subscription, its dirty names guarded by the store's lock.
type feed struct {
	store *tokenStore
	dirty []vrunner.Dirty
	wake  chan struct{}
}

func (s *tokenStore) Changes(context.Context, ...string) (vrunner.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &feed{store: s, wake: make(chan struct{}, 1)}
	s.feeds[f] = true
	return f, nil
}

func (f *feed) Next(ctx context.Context) ([]vrunner.Dirty, error) {
	for {
		f.store.mu.Lock()
		dirty := f.dirty
		f.dirty = nil
		f.store.mu.Unlock()
		if len(dirty) > 0 {
			return dirty, nil
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *feed) Close() {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	delete(f.store.feeds, f)
}

// before has f run before each write; its error refuses the write.
func (s *tokenStore) before(f func([]record.Mutation) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onWrite = f
}

func (s *tokenStore) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *tokenStore) all(t testing.TB) []record.Record {
	t.Helper()
	recs, err := s.List(context.Background(), secrets.Kind, "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

func (s *tokenStore) doc(t testing.TB, name string) bson.Raw {
	t.Helper()
	rec, err := s.Get(context.Background(), secrets.Kind, name)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Doc
}

// put stores a document as a foreign writer would.
func (s *tokenStore) put(t testing.TB, doc any) {
	t.Helper()
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.client.Write(context.Background(), s.tokens, []record.Mutation{{Kind: secrets.Kind, Key: key, Doc: raw}}); err != nil {
		t.Fatal(err)
	}
}

// api are clients of one stack.
type api struct {
	v1 secretsv1connect.SecretServiceClient
	v2 secretsv2connect.SecretServiceClient
}

func serve(t testing.TB, h http.Handler, opts ...connect.ClientOption) api {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return api{secretsv1connect.NewSecretServiceClient(srv.Client(), srv.URL, opts...), secretsv2connect.NewSecretServiceClient(srv.Client(), srv.URL, opts...)}
}

// wantError checks code and text of an error: texts must name what is wrong.
func wantError(t testing.TB, err error, code connect.Code, texts ...string) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != code {
		t.Errorf("error is %v, want code %s", err, code)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error is %q, which does not say %q", err, text)
		}
	}
}

func secretV1() *secretsv1.Secret {
	return &secretsv1.Secret{
		Payload: []byte{0, 1, 255}, ExpiresAt: 1800000000, Owner: "payments/ada",
		Labels: map[string]string{"env": "prod", "tier": ""}, Replaces: "projects/p/secrets/before",
	}
}

func createV1(t testing.TB, a api, id string, s *secretsv1.Secret) *secretsv1.Secret {
	t.Helper()
	res, err := a.v1.CreateSecret(context.Background(), connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: id, Secret: s}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSecret()
}

func getV1(t testing.TB, a api, name string) *secretsv1.Secret {
	t.Helper()
	res, err := a.v1.GetSecret(context.Background(), connect.NewRequest(&secretsv1.GetSecretRequest{Name: name}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSecret()
}

func createV2(t testing.TB, a api, region, id string, s *secretsv2.Secret) *secretsv2.Secret {
	t.Helper()
	res, err := a.v2.CreateSecret(context.Background(), connect.NewRequest(&secretsv2.CreateSecretRequest{Parent: "projects/p/regions/" + region, SecretId: id, Secret: s}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSecret()
}

func getV2(t testing.TB, a api, name string) *secretsv2.Secret {
	t.Helper()
	res, err := a.v2.GetSecret(context.Background(), connect.NewRequest(&secretsv2.GetSecretRequest{Name: name}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSecret()
}

// fieldsOf are a document's fields but those named, in the order of their names.
func fieldsOf(t testing.TB, doc bson.Raw, but ...string) string {
	t.Helper()
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	d = slices.DeleteFunc(d, func(e bson.E) bool { return slices.Contains(but, e.Key) })
	slices.SortFunc(d, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return bson.Raw(raw).String()
}

// wantTold compares all that a client is told: the same over either version's data, and
// nothing of kinds, places and names that its API does not have.
func wantTold(t testing.TB, err error, text string) {
	t.Helper()
	if coded := new(connect.Error); !errors.As(err, &coded) || coded.Message() != text {
		t.Errorf("told %v, want %q", err, text)
	}
}
