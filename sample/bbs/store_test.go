package bbs

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"dbcontroller/gen/bbs/v1/bbsv1connect"
	"dbcontroller/gen/bbs/v2/bbsv2connect"
	"dbcontroller/record"
	"dbcontroller/record/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tokenStore is a namespace in memory whose tokens never change.
type tokenStore struct {
	client record.Client
	tokens record.Tokens

	mu      sync.Mutex
	writes  [][]record.Mutation
	onWrite func([]record.Mutation) error // an error refuses the write
}

var _ Store = (*tokenStore)(nil)

func newStore(t testing.TB, kinds ...string) *tokenStore {
	t.Helper()
	ns := memstore.New()
	s := &tokenStore{client: ns, tokens: record.Tokens{}}
	for _, k := range kinds {
		tok, err := ns.Provision(context.Background(), record.KindSpec{Name: k}, record.PhysicalName(k, 1))
		if err != nil {
			t.Fatal(err)
		}
		s.tokens[k] = tok
	}
	return s
}

func (s *tokenStore) Get(ctx context.Context, kind, key string) (record.Record, error) {
	return s.client.Get(ctx, s.tokens[kind], record.StringKey(key))
}

func (s *tokenStore) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	return s.client.List(ctx, record.ListRequest{Token: s.tokens[kind], Prefix: prefix, After: after, Limit: limit})
}

func (s *tokenStore) Write(ctx context.Context, ms []record.Mutation) error {
	s.mu.Lock()
	s.writes = append(s.writes, ms)
	on := s.onWrite
	s.mu.Unlock()
	if on != nil {
		if err := on(ms); err != nil {
			return err
		}
	}
	return s.client.Write(ctx, s.tokens, ms)
}

func (s *tokenStore) refuse(f func([]record.Mutation) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onWrite = f
}

func (s *tokenStore) all(t testing.TB, kind string) []record.Record {
	t.Helper()
	recs, err := s.List(context.Background(), kind, "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

// put stores a document as a foreign writer would.
func (s *tokenStore) put(t testing.TB, kind string, d bson.D) {
	t.Helper()
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.client.Write(context.Background(), s.tokens, []record.Mutation{{Kind: kind, Key: key, Doc: raw}}); err != nil {
		t.Fatal(err)
	}
}

// api are clients of one stack.
type api struct {
	v1 bbsv1connect.DesiredLRPServiceClient
	v2 bbsv2connect.LRPDeploymentServiceClient
}

func serve(t testing.TB, h http.Handler, opts ...connect.ClientOption) api {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return api{bbsv1connect.NewDesiredLRPServiceClient(srv.Client(), srv.URL, opts...), bbsv2connect.NewLRPDeploymentServiceClient(srv.Client(), srv.URL, opts...)}
}

// stacks returns the v1 API over both versions of the data.
func stacks(t *testing.T) map[string]func(t *testing.T) (api, *tokenStore) {
	return map[string]func(t *testing.T) (api, *tokenStore){
		"v1 data": func(t *testing.T) (api, *tokenStore) {
			s := newStore(t, KindDesiredLRPs)
			return serve(t, StackV1(s, newStore(t, KindDeployments, KindDefinitions))), s
		},
		"v2 data": func(t *testing.T) (api, *tokenStore) {
			s := newStore(t, KindDeployments, KindDefinitions)
			return serve(t, StackV2(s)), s
		},
	}
}

func wantCode(t testing.TB, err error, code connect.Code) {
	t.Helper()
	if connect.CodeOf(err) != code || err == nil {
		t.Errorf("error is %v, want code %s", err, code)
	}
}
