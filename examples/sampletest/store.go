// Package sampletest provides tests of the sample services with an in-memory namespace, and with
// checks of lists that both services share. Nothing is fenced. A test can observe and intercept
// reads and writes. Begin to read at Store. The package does not own the switch between versions;
// tests of switches use vrunner.
//
// It is not for users and may change with any version.
package sampletest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// Store is an in-memory namespace whose tokens never change. Its methods may be called
// concurrently.
type Store struct {
	Tokens record.Tokens // of all its kinds; read-only
	client record.Client

	mu      sync.Mutex
	writes  [][]record.Mutation
	reads   map[string]int
	onWrite func([]record.Mutation) error
	onList  func(kind string)
	indexed map[string][]string
	feeds   map[*feed]bool
}

var _ vrunner.IndexStore = (*Store)(nil)

// New returns a Store with these kinds and no records.
func New(t testing.TB, kinds ...string) *Store {
	t.Helper()
	s, err := Open(kinds...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Open is New for an example, which has no testing.TB.
func Open(kinds ...string) (*Store, error) {
	ns := memstore.New()
	s := &Store{client: ns, Tokens: record.Tokens{}, reads: map[string]int{}, indexed: map[string][]string{}, feeds: map[*feed]bool{}}
	for _, k := range kinds {
		// Epoch 1 is the first one of a namespace, and no switch ever raises it here.
		tok, err := ns.Provision(context.Background(), record.KindSpec{Name: k}, record.PhysicalName(k, 1))
		if err != nil {
			return nil, err
		}
		s.Tokens[k] = tok
	}
	return s, nil
}

func (s *Store) Get(ctx context.Context, kind, key string) (record.Record, error) {
	s.read(kind)
	return s.client.Get(ctx, s.Tokens[kind], record.StringKey(key))
}

func (s *Store) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	s.read(kind)
	recs, err := s.client.List(ctx, record.ListRequest{Token: s.Tokens[kind], Prefix: prefix, After: after, Limit: limit})
	s.mu.Lock()
	// The hook runs after the list, so that a test can change records between two pages.
	on := s.onList
	s.mu.Unlock()
	if on != nil {
		on(kind)
	}
	return recs, err
}

// ListBounded is List with a limit on bytes. The record that reaches the limit is the last one.
func (s *Store) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) ([]record.Record, bool, error) {
	s.read(kind)
	more := false
	recs, err := s.client.List(ctx, record.ListRequest{Token: s.Tokens[kind], Prefix: prefix, After: after, Limit: limit, Bytes: bytes, Cut: &more})
	s.mu.Lock()
	on := s.onList
	s.mu.Unlock()
	if on != nil {
		on(kind)
	}
	return recs, more || len(recs) == limit, err
}

// BuildIndex declares fields of a kind and builds their indexes. ListIndexed can then read by them.
func (s *Store) BuildIndex(t testing.TB, kind string, fields ...string) {
	t.Helper()
	spec := record.WithIndexed(record.KindSpec{Name: kind, Indexed: fields})
	if err := s.client.(*memstore.Store).BuildIndexes(context.Background(), s.Tokens[kind], spec); err != nil { //nolint:forcetypeassert // Open has made it
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexed[kind] = append(s.indexed[kind], fields...)
}

// Indexed reports whether a field of a kind is declared.
func (s *Store) Indexed(kind, field string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.indexed[kind], field)
}

// ListIndexed reads records by a declared field.
func (s *Store) ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error) {
	s.read(kind + " by " + req.Field)
	req.Token = s.Tokens[kind]
	return s.client.(record.IndexReader).ListIndexed(ctx, req) //nolint:forcetypeassert // Open has made it
}

func (s *Store) Write(ctx context.Context, ms []record.Mutation) error {
	s.mu.Lock()
	s.writes = append(s.writes, ms)
	// The attempt counts even if the hook refuses it.
	on := s.onWrite
	s.mu.Unlock()
	// Hooks run without the lock, so that they may use the store.
	if on != nil {
		if err := on(ms); err != nil {
			return err
		}
	}
	if err := s.client.Write(ctx, s.Tokens, ms); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Only a successful write is a change.
	for f := range s.feeds {
		f.add(ms)
	}
	return nil
}

// BeforeWrite makes each later write call f first; an error of f refuses the write. Nil stops that.
func (s *Store) BeforeWrite(f func([]record.Mutation) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onWrite = f
}

// OnList makes each later list call f afterwards. Nil stops that.
func (s *Store) OnList(f func(kind string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onList = f
}

// AfterList makes the next list of a kind call f afterwards, once.
func (s *Store) AfterList(kind string, f func()) {
	s.OnList(func(listed string) {
		if listed == kind {
			s.OnList(nil)
			f()
		}
	})
}

func (s *Store) read(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads[kind]++
}

// Reads returns the number of reads of a kind, by Get or List.
func (s *Store) Reads(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[kind]
}

// Writes returns all attempted writes in order, including refused ones.
func (s *Store) Writes() [][]record.Mutation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// All returns the records of a kind, ordered by name.
func (s *Store) All(t testing.TB, kind string) []record.Record {
	t.Helper()
	recs, err := s.List(context.Background(), kind, "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

// Put stores a document as a foreign writer would: it bypasses conditions, hooks and subscribers.
func (s *Store) Put(t testing.TB, kind string, doc any) {
	t.Helper()
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.client.Write(context.Background(), s.Tokens, []record.Mutation{{Kind: kind, Key: key, Doc: raw}}); err != nil {
		t.Fatal(err)
	}
}

// feed is a subscription. The store's lock guards dirty.
type feed struct {
	store *Store
	kinds []string
	dirty []vrunner.Dirty
	wake  chan struct{}
}

func (s *Store) Changes(_ context.Context, kinds ...string) (vrunner.Subscription, error) {
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
	// A full channel already holds a wake-up, and Next sees all names at once.
	select {
	// The channel holds one wake-up. A second one would tell Next nothing new.
	case f.wake <- struct{}{}:
	default:
	}
}

// Next delivers the names of one change one at a time, as a stream may.
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

// Close ends the subscription.
func (f *feed) Close() {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	delete(f.store.feeds, f)
}

// WantCode checks the code of a call's error.
func WantCode(t testing.TB, err error, code connect.Code) {
	t.Helper()
	if connect.CodeOf(err) != code || err == nil {
		t.Errorf("error is %v, want code %s", err, code)
	}
}

// WantError checks the code of a call's error, and that its message contains each of texts.
func WantError(t testing.TB, err error, code connect.Code, texts ...string) {
	t.Helper()
	WantCode(t, err, code)
	for _, text := range texts {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("error is %q, which does not say %q", err, text)
		}
	}
}
