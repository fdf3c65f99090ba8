package sealed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

const (
	// lookEvery is the maximum age of a writer's State.
	lookEvery = time.Second
	// readEvery is the maximum age of a reader's State while the database answers. A record that
	// the State does not allow makes a reader load it at once. A State that newly forbids a record
	// does not, hence this limit.
	readEvery = 10 * time.Second
	// problemFor is the time for which Problem reports a record that this process cannot decrypt.
	problemFor = time.Minute
	// writeLimit is the maximum time of a write that the database refuses for its key. If a
	// controller dies between changing the State and changing the database, the others need less
	// than that to repair it.
	writeLimit = 20 * time.Second
)

// Sealer encrypts and decrypts the records of one namespace. Its methods are safe for concurrent
// use.
type Sealer struct {
	// Log receives failures that no caller gets as an error. New sets it to a no-op logger.
	Log *zap.Logger

	version string
	keys    func() *Keys
	notes   Notes

	seen  atomic.Pointer[seen]
	top   atomic.Uint64 // highest State.Count that this process has verified
	older atomic.Bool   // an older State was logged once
	mu    sync.Mutex    // held during a read of the State
	// problem is the latest decryption failure for lack of a key, with the keys at that time.
	problem atomic.Pointer[problem]

	noting   sync.Mutex // held while a stray is stored
	nextNote time.Time
	unnoted  string // last logged error of storing one; empty: none

	trials sync.Map // trial by scratch kind
}

type seen struct {
	State
	noted State // as stored in the database
	at    time.Time
}

type problem struct {
	err  error
	keys *Keys
	at   time.Time
}

// New returns a Sealer for the namespace of a version. keys returns the present Keys. It must
// return the same pointer until the configuration changes, because Sealer compares pointers.
func New(version string, keys func() *Keys, notes Notes) *Sealer {
	return &Sealer{Log: zap.NewNop(), version: version, keys: keys, notes: notes}
}

// Keys returns the present keys of this process.
func (s *Sealer) Keys() *Keys { return s.keys() }

// Check returns an error if this process lacks a key that records are under. Call it before any
// read or write.
func (s *Sealer) Check(ctx context.Context) error {
	st, err := s.look(ctx, 0)
	if err != nil {
		return err
	}
	return st.lacks(s.keys())
}

// Problem returns the latest error about a missing key. It returns nil once the keys have changed,
// or after a minute without another failure. A tampered record is no problem in this sense, because
// other records still work.
func (s *Sealer) Problem() error {
	if p := s.problem.Load(); p != nil && p.keys == s.keys() && time.Since(p.at) < problemFor {
		return p.err
	}
	return nil
}

// Suits refuses keys that lack one which records are under, as far as this process knows the State.
// It also refuses an active key for a State without a valid Seal.
func (s *Sealer) Suits(k *Keys) error {
	seen := s.seen.Load()
	// Without a State there is nothing to compare with.
	if seen == nil || seen.New {
		return nil
	}
	if err := seen.lacks(k); err != nil {
		return err
	}
	return seen.noted.trusted(k, s.notes.Whose())
}

// State reads the present State from the database.
func (s *Sealer) State(ctx context.Context) (State, error) { return s.look(ctx, 0) }

// look returns a State that is at most age old.
func (s *Sealer) look(ctx context.Context, age time.Duration) (State, error) {
	if k := s.seen.Load(); k.within(age) {
		return k.State, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Another caller may have read the State while this one waited for the lock.
	if seen := s.seen.Load(); seen.within(age) {
		return seen.State, nil
	}
	at := time.Now() // taken before the read, since the State may change during it
	st, err := s.notes.State(ctx)
	if err != nil {
		return State{}, fmt.Errorf("read the keys of the records: %w", err)
	}
	k := s.keys()
	// A deposed primary may answer with an older State. Keep the newer one instead of failing.
	if err := s.accepts(st); errors.Is(err, errOld) && s.seen.Load() != nil {
		st = s.newer(err)
	} else if err != nil {
		s.problem.Store(&problem{fmt.Errorf("namespace %s: %w", s.version, err), k, time.Now()})
		return State{}, err
	}
	now := &seen{st.normal(k), st, at}
	s.seen.Store(now)
	return now.State, nil
}

// accepts refuses a stored State that a process with these keys must not use.
func (s *Sealer) accepts(st State) error {
	k := s.keys()
	if err := st.trusted(k, s.notes.Whose()); err != nil {
		return err
	}
	if err := st.fresh(k, s.top.Load()); err != nil {
		return err
	}
	// Remember the newest proven State, so that an older one is noticed later.
	if top := s.top.Load(); st.Count > top && st.proven(k, s.notes.Whose()) {
		s.top.CompareAndSwap(top, st.Count) // if another call won, the next look raises it
	}
	return nil
}

// newer returns the State to use when the database answers with an older and weaker one. Either a
// deposed primary answered, or somebody restored an old State.
func (s *Sealer) newer(why error) State {
	// Log once: each look finds the same until the database answers with the newer State.
	if s.older.CompareAndSwap(false, true) {
		s.Log.Warn("the database returned an older and weaker state of keys: this process keeps the newer state",
			zap.String("version", s.version), zap.Error(why))
	}
	return s.seen.Load().noted
}

// within reports whether k is at most age old. An unstarted namespace never counts as recent,
// because another process may begin it under another key at any time.
func (k *seen) within(age time.Duration) bool {
	return k != nil && !k.New && time.Since(k.at) < age
}

// known returns the State for a reader. If the database does not answer, it returns the last one
// seen.
func (s *Sealer) known(ctx context.Context) (State, error) {
	st, err := s.look(ctx, readEvery)
	// Keep serving reads while the State cannot be read.
	if k := s.seen.Load(); err != nil && k != nil {
		return k.State, nil
	}
	return st, err
}

// writing returns what a writer needs: a recent State and its key.
func (s *Sealer) writing(ctx context.Context) (w writing, err error) {
	if w.state, err = s.look(ctx, lookEvery); err != nil {
		return w, err
	}
	k := s.keys()
	if err := w.state.lacks(k); err != nil {
		s.problem.Store(&problem{fmt.Errorf("namespace %s: %w", s.version, err), k, time.Now()})
		return w, err
	}
	w.Sealer, w.name, w.key = s, w.state.Key, k.named[w.state.Key]
	// Where keys exist, another process may turn encryption on at any moment.
	w.compares = w.state.encrypts() || len(k.named) > 0
	return w, nil
}

// retryEvery is the pause before a write that the database refused for its key is retried.
const retryEvery = 10 * time.Millisecond

// late reports whether the caller must retry a write. It is true if the database refused the write
// for its key and the State was read again since. If the refusal persists, a controller died
// between changing the State and the database, and another controller will finish its work.
func (s *Sealer) late(ctx context.Context, err error, tries int) bool {
	if !errors.Is(err, record.ErrLabel) {
		return false
	}
	// The first retry needs no pause: a new State normally explains the refusal.
	if tries > 1 {
		wait := time.NewTimer(time.Duration(min(tries, 100)) * retryEvery)
		defer wait.Stop()
		select {
		case <-ctx.Done():
			return false
		case <-wait.C:
		}
	}
	_, err = s.look(ctx, 0)
	return err == nil
}

// Open returns a stored record in its decrypted form.
func (s *Sealer) Open(ctx context.Context, tok record.Token, r record.Record) (record.Record, error) {
	// Fixed-name kinds and tombstones are never encrypted.
	if tok.Fixed || r.Doc == nil {
		return r, nil
	}
	st, err := s.known(ctx)
	if err != nil {
		return r, err
	}
	name := Under(r.Doc)
	// The State may be too old to know this key, so read it again before judging the record.
	if !st.allows(name) {
		if st, err = s.look(ctx, 0); err != nil {
			return r, err
		}
	}
	// If the record opens although the State excludes its key, the promise is wrong.
	if r, err = s.openBy(st, tok, r); err == nil && !st.allows(name) {
		s.found(ctx, name)
	}
	return r, err
}

// found stores a stray in the State. It delays the reader for at most a second and returns no
// error, since the next reader of the record tries again. It logs each reason once, because until
// the stray is stored the promise of the State is wrong.
func (s *Sealer) found(ctx context.Context, name string) {
	// Another reader is storing a stray already. Do not make this one wait.
	if !s.noting.TryLock() {
		return
	}
	defer s.noting.Unlock()
	// Limit the attempts, since many readers may find the same stray.
	if now := time.Now(); now.After(s.nextNote) {
		s.nextNote = now.Add(lookEvery)
		noting, cancel := context.WithTimeout(ctx, lookEvery)
		defer cancel()
		err := s.Admit(noting, name)
		switch {
		case err == nil:
			s.unnoted = ""
		case ctx.Err() == nil && err.Error() != s.unnoted:
			s.unnoted = err.Error()
			s.Log.Warn("a record is encrypted with an unexpected key, and this cannot be stored: no rotation rewrites the record until it is stored",
				zap.String("version", s.version), zap.String("key", name), zap.Error(err))
		}
	}
}

// openBy opens a record under the rules of the given State.
func (s *Sealer) openBy(st State, tok record.Token, r record.Record) (record.Record, error) {
	e, is := envelopeOf(r.Doc)
	// A document without an envelope is plain.
	if !is {
		e.name = Off
	}
	k := s.keys()
	doc, err := e.open(k, st, s.version, tok.Kind, r)
	if err != nil {
		err = fmt.Errorf("record %s of %s: %w", r.Key, tok.Kind, err)
		// Only a missing key is a problem of this process. Tampering concerns the one record.
		if errors.Is(err, ErrKey) {
			s.problem.Store(&problem{err, k, time.Now()})
		}
		return r, err
	}
	r.Doc = doc
	return r, nil
}

// openAll decrypts records for clients. It fails as a whole, because a list without one of the
// records would show that one as deleted.
func (s *Sealer) openAll(ctx context.Context, tokens func(kind string) record.Token, rs []record.Record) ([]record.Record, error) {
	for i := range rs {
		r, err := s.Open(ctx, tokens(rs[i].Kind), rs[i])
		if err != nil {
			return nil, err
		}
		rs[i] = r
	}
	return rs, nil
}

// openOrMark decrypts records and marks the unreadable ones, so that the caller can park them. A
// missing key that regular records are under stays an error, because it would affect all records.
func (s *Sealer) openOrMark(ctx context.Context, tokens func(kind string) record.Token, rs []record.Record) ([]record.Record, error) {
	for i := range rs {
		r, err := s.Open(ctx, tokens(rs[i].Kind), rs[i])
		if errors.Is(err, record.ErrUnreadable) {
			r.Err = err
			// The caller parks the record by its _id.
			r.Doc, err = bson.Marshal(bson.D{{Key: "_id", Value: r.Key.Value()}})
		}
		if err != nil {
			return nil, err
		}
		rs[i] = r
	}
	return rs, nil
}

func only(tok record.Token) func(string) record.Token {
	return func(string) record.Token { return tok }
}

func of(toks record.Tokens) func(string) record.Token {
	return func(kind string) record.Token { return toks[kind] }
}

// anyManaged reports whether a token belongs to a managed kind. Only those may be encrypted.
func anyManaged(toks record.Tokens) bool {
	for _, tok := range toks {
		if !tok.Fixed {
			return true
		}
	}
	return false
}
