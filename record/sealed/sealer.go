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
	// lookEvery is how old what a writer knows of the State may be.
	lookEvery = time.Second
	// readEvery is how old what a reader knows of it may be where the database answers: what the
	// State does not explain makes one look at once, but what it ought to forbid does not.
	readEvery = 10 * time.Second
	// problemFor is how long a record that cannot be decrypted is a reason not to serve.
	problemFor = time.Minute
	// writeLimit is after how long a write is given up that the database refuses for its key: longer
	// than the controllers need to agree with the State again when one of them has died in between.
	writeLimit = 20 * time.Second
)

// Sealer encrypts and decrypts the records of one namespace. Its methods may be called concurrently.
type Sealer struct {
	// Log is where it says what nobody is told who calls it.
	Log *zap.Logger

	version string
	keys    func() *Keys
	notes   Notes

	seen  atomic.Pointer[seen]
	top   atomic.Uint64 // the highest State.Count that was proven here
	older atomic.Bool   // the log says that an older State was put back
	mu    sync.Mutex    // held while the State is read
	// problem is the latest reason why a record could not be decrypted, and with which keys.
	problem atomic.Pointer[problem]

	noting   sync.Mutex // held while a stray is noted
	nextNote time.Time
	unnoted  string // why the latest could not be

	trials sync.Map // of trial, by scratch kind
}

type seen struct {
	State
	noted State // as the database has it
	at    time.Time
}

type problem struct {
	err  error
	keys *Keys
	at   time.Time
}

// New makes what encrypts the namespace of a version. keys returns those of now, the very same
// until others are configured.
func New(version string, keys func() *Keys, notes Notes) *Sealer {
	return &Sealer{Log: zap.NewNop(), version: version, keys: keys, notes: notes}
}

// Keys are those that this process has now.
func (s *Sealer) Keys() *Keys { return s.keys() }

// Check refuses a namespace whose records this process could not read. It is to be called
// before anything is read or written.
func (s *Sealer) Check(ctx context.Context) error {
	st, err := s.look(ctx, 0)
	if err != nil {
		return err
	}
	return st.lacks(s.keys())
}

// Problem returns which key was lacking lately, for as long as the keys are those that were
// tried. A record that was tampered with is none: others are served all the same.
func (s *Sealer) Problem() error {
	if p := s.problem.Load(); p != nil && p.keys == s.keys() && time.Since(p.at) < problemFor {
		return p.err
	}
	return nil
}

// Suits refuses keys without one that records are under, as far as that is known here, and an
// active key where nobody with one of the keys has vouched for the State.
func (s *Sealer) Suits(k *Keys) error {
	seen := s.seen.Load()
	if seen == nil || seen.New {
		return nil
	}
	if err := seen.lacks(k); err != nil {
		return err
	}
	return seen.noted.trusted(k, s.notes.Whose())
}

// State reads what is noted now.
func (s *Sealer) State(ctx context.Context) (State, error) { return s.look(ctx, 0) }

// look returns the State as of at most that long ago.
func (s *Sealer) look(ctx context.Context, age time.Duration) (State, error) {
	if k := s.seen.Load(); k.within(age) {
		return k.State, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen := s.seen.Load(); seen.within(age) {
		return seen.State, nil
	}
	at := time.Now() // before it is read: it may be changed meanwhile
	st, err := s.notes.State(ctx)
	if err != nil {
		return State{}, fmt.Errorf("read which key records are under: %w", err)
	}
	k := s.keys()
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

// accepts refuses a State as it is noted that a process with these keys must not go by.
func (s *Sealer) accepts(st State) error {
	k := s.keys()
	if err := st.trusted(k, s.notes.Whose()); err != nil {
		return err
	}
	if err := st.fresh(k, s.top.Load()); err != nil {
		return err
	}
	if top := s.top.Load(); st.Count > top && st.proven(k, s.notes.Whose()) {
		s.top.CompareAndSwap(top, st.Count) // where another call was quicker, the next look raises it
	}
	return nil
}

// newer is the State to go by where the database answers with an older one that is weaker: either
// a deposed primary answered, or somebody has put it back.
func (s *Sealer) newer(why error) State {
	if s.older.CompareAndSwap(false, true) {
		s.Log.Warn("the database answers with an older state of keys, by which records may be plain: this process goes on by the newer one",
			zap.String("version", s.version), zap.Error(why))
	}
	return s.seen.Load().noted
}

// within reports whether k is young enough. That a namespace is not begun is never taken for
// true again: others may begin it under another key.
func (k *seen) within(age time.Duration) bool {
	return k != nil && !k.New && time.Since(k.at) < age
}

// known returns the State to read by: the one seen last where it cannot be read now.
func (s *Sealer) known(ctx context.Context) (State, error) {
	st, err := s.look(ctx, readEvery)
	if k := s.seen.Load(); err != nil && k != nil {
		return k.State, nil
	}
	return st, err
}

// writing is what writers need: the State as it is now, and the key in it.
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
	w.compares = w.state.encrypts() || len(k.named) > 0
	return w, nil
}

// retryEvery is how long a write waits that the database has refused for its key.
const retryEvery = 10 * time.Millisecond

// late reports whether a write is to be made again, after so many tries: the database has refused
// it for its key, and the State was read anew since. A refusal that goes on is that of a controller
// which died between the State and the database; another one is to come.
func (s *Sealer) late(ctx context.Context, err error, tries int) bool {
	if !errors.Is(err, record.ErrLabel) {
		return false
	}
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

// Open returns a stored record as it was written.
func (s *Sealer) Open(ctx context.Context, tok record.Token, r record.Record) (record.Record, error) {
	if tok.Fixed || r.Doc == nil {
		return r, nil
	}
	st, err := s.known(ctx)
	if err != nil {
		return r, err
	}
	name := Under(r.Doc)
	if !st.allows(name) {
		if st, err = s.look(ctx, 0); err != nil {
			return r, err
		}
	}
	if r, err = s.openBy(st, tok, r); err == nil && !st.allows(name) {
		s.found(ctx, name)
	}
	return r, err
}

// found notes a stray. Its reader is not kept waiting for long, nor told where that fails:
// the next one who reads it tries again. The log says why, once for each reason: until it is noted
// the promise is wrong.
func (s *Sealer) found(ctx context.Context, name string) {
	if !s.noting.TryLock() {
		return
	}
	defer s.noting.Unlock()
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
			s.Log.Warn("a record is under a key that none should be under, and that cannot be noted: no rotation brings it under the key until it is",
				zap.String("version", s.version), zap.String("key", name), zap.Error(err))
		}
	}
}

// openBy is Open by a State.
func (s *Sealer) openBy(st State, tok record.Token, r record.Record) (record.Record, error) {
	e, is := envelopeOf(r.Doc)
	if !is {
		e.name = Off
	}
	k := s.keys()
	doc, err := e.open(k, st, s.version, tok.Kind, r)
	if err != nil {
		err = fmt.Errorf("record %s of %s: %w", r.Key, tok.Kind, err)
		if errors.Is(err, ErrKey) {
			s.problem.Store(&problem{err, k, time.Now()})
		}
		return r, err
	}
	r.Doc = doc
	return r, nil
}

// openAll is Open for many, for clients: a list without one of them would say that it is gone.
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

// openOrMark is openAll for who parks what cannot be read, and goes on with the others. A key
// that this process lacks, of those that records are under, stays an error: it would be all of
// them.
func (s *Sealer) openOrMark(ctx context.Context, tokens func(kind string) record.Token, rs []record.Record) ([]record.Record, error) {
	for i := range rs {
		r, err := s.Open(ctx, tokens(rs[i].Kind), rs[i])
		if errors.Is(err, record.ErrUnreadable) {
			r.Err = err
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

// anyManaged reports whether a kind is one that may be encrypted.
func anyManaged(toks record.Tokens) bool {
	for _, tok := range toks {
		if !tok.Fixed {
			return true
		}
	}
	return false
}
