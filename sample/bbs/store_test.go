package bbs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"dbcontroller/gen/bbs/v1/bbsv1connect"
	"dbcontroller/gen/bbs/v2/bbsv2connect"
	"dbcontroller/integration/localmongo/mongotest"
	"dbcontroller/record"
	"dbcontroller/record/memstore"
	"dbcontroller/vrunner"
)

func TestMain(m *testing.M) {
	code := mongotest.Run(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// tokenStore is a namespace in memory whose tokens never change.
type tokenStore struct {
	client record.Client
	tokens record.Tokens

	mu      sync.Mutex
	writes  [][]record.Mutation
	reads   map[string]int                // Get and List calls, by kind
	onWrite func([]record.Mutation) error // an error refuses the write
	onList  func(kind string)             // after a list
	feeds   map[*feed]bool
}

var _ vrunner.Store = (*tokenStore)(nil)

func newStore(t testing.TB, kinds ...string) *tokenStore {
	t.Helper()
	ns := memstore.New()
	s := &tokenStore{client: ns, tokens: record.Tokens{}, reads: map[string]int{}, feeds: map[*feed]bool{}}
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
	s.read(kind)
	return s.client.Get(ctx, s.tokens[kind], record.StringKey(key))
}

func (s *tokenStore) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	s.read(kind)
	recs, err := s.client.List(ctx, record.ListRequest{Token: s.tokens[kind], Prefix: prefix, After: after, Limit: limit})
	s.mu.Lock()
	on := s.onList
	s.mu.Unlock()
	if on != nil {
		on(kind)
	}
	return recs, err
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
	if err := s.client.Write(ctx, s.tokens, ms); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.feeds {
		f.add(ms)
	}
	return nil
}

func (s *tokenStore) read(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads[kind]++
}

func (s *tokenStore) readsOf(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[kind]
}

// feed is a subscription, its dirty names guarded by the store's lock.
type feed struct {
	store *tokenStore
	kinds []string
	dirty []vrunner.Dirty
	wake  chan struct{}
}

func (s *tokenStore) Changes(_ context.Context, kinds ...string) (vrunner.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &feed{store: s, kinds: kinds, wake: make(chan struct{}, 1)}
	s.feeds[f] = true
	return f, nil
}

func (f *feed) add(ms []record.Mutation) {
	for _, m := range ms {
		if name, _ := m.Key.Name(); slices.Contains(f.kinds, m.Kind) {
			f.dirty = append(f.dirty, vrunner.Dirty{Kind: m.Kind, Name: name})
		}
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Next delivers the records of one change one by one, as a stream may.
func (f *feed) Next(ctx context.Context) ([]vrunner.Dirty, error) {
	for {
		f.store.mu.Lock()
		if len(f.dirty) > 0 {
			next := f.dirty[:1]
			f.dirty = f.dirty[1:]
			f.store.mu.Unlock()
			return next, nil
		}
		f.store.mu.Unlock()
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

func (s *tokenStore) refuse(f func([]record.Mutation) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onWrite = f
}

// afterList runs f once, after the next list of a kind.
func (s *tokenStore) afterList(kind string, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onList = func(listed string) {
		if listed != kind {
			return
		}
		s.mu.Lock()
		s.onList = nil
		s.mu.Unlock()
		f()
	}
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
		"v2 data, adapted": adaptedStack,
	}
}

func wantCode(t testing.TB, err error, code connect.Code) {
	t.Helper()
	if connect.CodeOf(err) != code || err == nil {
		t.Errorf("error is %v, want code %s", err, code)
	}
}

// wantError checks code and text of an error: texts must name what is wrong.
func wantError(t testing.TB, err error, code connect.Code, texts ...string) {
	t.Helper()
	wantCode(t, err, code)
	for _, text := range texts {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("error is %q, which does not say %q", err, text)
		}
	}
}

// wantTold compares all that a client is told: the same over either version's data, and
// nothing of kinds and places that its API does not have.
func wantTold(t testing.TB, err error, text string) {
	t.Helper()
	if coded := new(connect.Error); !errors.As(err, &coded) || coded.Message() != text {
		t.Errorf("told %v, want %q", err, text)
	}
}
