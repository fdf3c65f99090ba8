package deployment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// DefaultPrefix is the key prefix of all deployments unless Config sets another one. Its last part
// is the version of the key layout.
const DefaultPrefix = "/dbcontroller/1"

var (
	// ErrNotFound means that the deployment does not exist. The caller may create it.
	ErrNotFound error = &sentinel{"deployment does not exist", coord.ErrNotFound}
	// ErrOwnership means that one of the caller's conditions, such as the lock of a shard, does not
	// hold. Nothing was written. The caller should check its ownership and decide again.
	ErrOwnership error = &sentinel{"ownership is lost", coord.ErrConflict}
	// ErrFormat means that a newer binary wrote the record. Only a binary of that version can use
	// it.
	ErrFormat = errors.New("record has a newer format")
	// ErrCorrupt means that a stored value cannot be read, or must not be used. An operator must
	// look at it.
	ErrCorrupt = errors.New("stored value is corrupt")
)

// AbsentError is the ErrNotFound of the deployment with that name.
type AbsentError struct{ Name string }

func (e *AbsentError) Error() string { return fmt.Sprintf("%s: %v", e.Name, ErrNotFound) }

// Unwrap makes it an ErrNotFound.
func (e *AbsentError) Unwrap() error { return ErrNotFound }

// sentinel is an error that also matches an error of the coordination store with errors.Is.
type sentinel struct {
	text string
	is   error
}

func (e *sentinel) Error() string { return e.text }
func (e *sentinel) Unwrap() error { return e.is }

// Config configures a Store. The zero value is valid.
type Config struct {
	Prefix string      // empty: DefaultPrefix
	By     string      // author of transitions without AskedBy, such as "controller c-1"
	Log    *zap.Logger // for errors that no call returns, such as a restarted watch; nil: none
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// Store is one deployment in the coordination store. Its methods may be called
// concurrently.
type Store struct {
	coord coord.Store
	name  string
	cfg   Config
	log   *zap.Logger // with the name; cfg.Log goes on to Other

	newestMu    sync.Mutex
	newest      upgradestate.Deployment // the last decoded record
	newestValue []byte                  // its value; nil: none yet

	record lastKnown // the value of the record, for transitions
	puts   lastKnown // the values of other keys, for put

	confirmedMu sync.Mutex
	confirmed   Confirmation // by the latest beat that found everything as known

	watched follower[coord.KV] // the record, by callers of Watch

	parkedMu sync.Mutex
	parked   map[string]*parkedShard // by key prefix of the shard's parked groups
}

// New returns the Store of a deployment, which need not exist yet. It reads nothing.
func New(c coord.Store, name string, cfg Config) *Store {
	cfg = cfg.withDefaults()
	return &Store{
		coord: c, name: name, cfg: cfg, log: cfg.Log.With(zap.String("deployment", name)),
		// A commit sends the known value again as its condition, which bounds the record.
		record: lastKnown{maxKeys: 1, maxBytes: 256 << 10},
		puts:   lastKnown{maxKeys: 4096, maxBytes: 4 << 10},
		parked: map[string]*parkedShard{},
	}
}

// Name returns the deployment's name.
func (s *Store) Name() string { return s.name }

// Other returns the Store of another deployment in the same coordination store, with the same
// configuration. It returns an InvalidError for an invalid name.
func (s *Store) Other(name string) (*Store, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return New(s.coord, name, s.cfg), nil
}

var validName = regexp.MustCompile(`^services/[A-Za-z0-9][A-Za-z0-9._-]*/deployments/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// InvalidError reports an invalid argument and the allowed values.
type InvalidError struct{ Field, Value, Want string }

func (e *InvalidError) Error() string {
	value := e.Value
	// The value comes from a request, and the error goes into the audit.
	if len(value) > maxQuoted {
		value = value[:maxQuoted] + "..."
	}
	return fmt.Sprintf("%s %q: want %s", e.Field, value, e.Want)
}

// maxQuoted is the maximum length of a value in an InvalidError.
const maxQuoted = 200

func checkName(name string) error {
	if len(name) > limits.NameBytes {
		return &InvalidError{"name", name[:20] + "...", fmt.Sprintf("at most %d bytes", limits.NameBytes)}
	}
	if !validName.MatchString(name) {
		return &InvalidError{"name", name, "services/{service}/deployments/{region}"}
	}
	return nil
}

// Create creates the deployment unless it exists. It returns the stored record in both cases.
func (s *Store) Create(ctx context.Context, version string, ringSize int) (upgradestate.Deployment, error) {
	if err := checkName(s.name); err != nil {
		return upgradestate.Deployment{}, err
	}
	d := upgradestate.New(s.name, version, ringSize)
	if err := upgradestate.Validate(d); err != nil {
		return upgradestate.Deployment{}, fmt.Errorf("create %s: %w", s.name, &upgradestate.RefusedError{Reason: err.Error()})
	}
	value, err := json.Marshal(d)
	if err != nil {
		return upgradestate.Deployment{}, fmt.Errorf("create %s: %w", s.name, err)
	}
	wait := newBackOff()
	for {
		// After an unknown outcome, reading shows whether the commit happened.
		stands, err := s.Get(ctx)
		if !errors.Is(err, ErrNotFound) {
			return stands, err
		}
		// The index entry goes with the record, so that lists never miss a deployment.
		_, err = s.coord.Commit(ctx,
			[]coord.Condition{{Key: s.recordKey()}},
			[]coord.Op{{Key: s.recordKey(), Value: packRecord(value)}, {Key: indexKey(s.cfg.Prefix, s.name)}})
		if err != nil && !again(err) {
			return upgradestate.Deployment{}, fmt.Errorf("create %s: %w", s.name, err)
		}
		if err != nil {
			if err := pause(ctx, wait); err != nil {
				return upgradestate.Deployment{}, fmt.Errorf("create %s: %w", s.name, err)
			}
		}
	}
}

// Get reads the record, linearizably. It returns ErrNotFound (as *AbsentError), ErrFormat or ErrCorrupt.
func (s *Store) Get(ctx context.Context) (upgradestate.Deployment, error) {
	kv, err := s.record.read(ctx, s.coord, s.recordKey())
	if err != nil {
		return upgradestate.Deployment{}, fmt.Errorf("get %s: %w", s.name, err)
	}
	return s.stored(kv)
}

// stored decodes a value that was read, or the absence of one.
func (s *Store) stored(kv coord.KV) (upgradestate.Deployment, error) {
	if kv.Mod == 0 {
		return upgradestate.Deployment{}, &AbsentError{s.name}
	}
	d, err := s.decode(kv)
	if err != nil {
		return upgradestate.Deployment{}, fmt.Errorf("get %s: %w", s.name, err)
	}
	return d, nil
}

// decode is decodeRecord with a cache. Each change of the record reaches all watches and readers of
// a process, and they share the decoding. Every caller gets its own copy.
func (s *Store) decode(kv coord.KV) (upgradestate.Deployment, error) {
	s.newestMu.Lock()
	defer s.newestMu.Unlock()
	// Compare the bytes, not the revision: after etcd was restored, another value can have the same
	// revision.
	if s.newestValue != nil && bytes.Equal(s.newestValue, kv.Value) {
		s.newest.Revision = kv.Mod
		return upgradestate.Clone(s.newest), nil
	}
	d, err := decodeRecord(kv)
	if err == nil {
		s.newest, s.newestValue = upgradestate.Clone(d), kv.Value
	}
	return d, err
}

// learn decodes a record that a watch has delivered, and keeps its value for the next transition.
func (s *Store) learn(kv coord.KV) (upgradestate.Deployment, error) {
	d, err := s.decode(kv)
	if err == nil {
		s.record.set(kv)
	}
	return d, err
}

// remember keeps a record that this process has stored, so that nothing decodes it again.
func (s *Store) remember(d upgradestate.Deployment, value []byte) {
	s.newestMu.Lock()
	defer s.newestMu.Unlock()
	s.newest, s.newestValue = upgradestate.Clone(d), value
}

func decodeRecord(kv coord.KV) (upgradestate.Deployment, error) {
	var err error
	if kv.Value, err = unpackRecord(kv.Value); err != nil {
		return upgradestate.Deployment{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	var d upgradestate.Deployment
	if err := json.Unmarshal(kv.Value, &d); err != nil {
		// A newer format may not decode at all.
		var head struct {
			Format int `json:"format"`
		}
		if json.Unmarshal(kv.Value, &head) == nil && head.Format > upgradestate.Format {
			d.Format = head.Format
		} else {
			return upgradestate.Deployment{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	if d.Format > upgradestate.Format {
		if err := removalIn(kv.Value); err != nil {
			return upgradestate.Deployment{}, err
		}
		return upgradestate.Deployment{}, fmt.Errorf("%w: %d, this binary knows %d", ErrFormat, d.Format, upgradestate.Format)
	}
	// An invalid record must not drive anything.
	if err := upgradestate.Validate(d); err != nil {
		return upgradestate.Deployment{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	d.Revision = kv.Mod
	return d, nil
}

// All returns all deployments with the prefix of this one, by name. An unreadable record does not
// hide the others: unreadable holds its error, by deployment name.
func (s *Store) All(ctx context.Context) (ds []upgradestate.Deployment, unreadable map[string]error, err error) {
	prefix := indexKey(s.cfg.Prefix, "")
	kvs, _, err := s.coord.List(ctx, prefix)
	if err != nil {
		return nil, nil, fmt.Errorf("list deployments: %w", err)
	}
	ds, unreadable = make([]upgradestate.Deployment, 0, len(kvs)), map[string]error{}
	for _, kv := range kvs {
		name := kv.Key[len(prefix):]
		d, err := New(s.coord, name, s.cfg).Get(ctx)
		switch {
		// Deleted between the list and this read.
		case errors.Is(err, ErrNotFound):
		// One unreadable deployment must not hide the others.
		case errors.Is(err, ErrCorrupt), errors.Is(err, ErrFormat):
			unreadable[name] = err
		case err != nil:
			return nil, nil, fmt.Errorf("list deployments: %w", err)
		default:
			ds = append(ds, d)
		}
	}
	return ds, unreadable, nil
}

// Count returns the number of deployments with the prefix of this one.
func (s *Store) Count(ctx context.Context) (int, error) {
	kvs, _, err := s.coord.List(ctx, indexKey(s.cfg.Prefix, ""))
	return len(kvs), err
}

// newBackOff returns the backoff of compare-and-swap loops: short, with jitter, and bounded only by
// the caller's ctx.
func newBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(2*time.Millisecond), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(250*time.Millisecond), backoff.WithMaxElapsedTime(0))
}

func pause(ctx context.Context, b backoff.BackOff) error {
	select {
	case <-time.After(b.NextBackOff()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// again reports whether the caller should read and decide again after a commit: a conflict, or an
// unknown outcome.
func again(err error) bool {
	return errors.Is(err, coord.ErrConflict) || errors.Is(err, coord.ErrUnknown)
}

// Replace stores a record that no transition has made, in place of the one with the given revision.
// Revision 0 means that there is none. A conflict means that another record is stored by now. The
// data of directions in earlier epochs stays; nothing reads it.
func (s *Store) Replace(ctx context.Context, d upgradestate.Deployment, revision int64, by, at string) error {
	if err := checkName(d.Name); err != nil {
		return err
	}
	var before upgradestate.Deployment
	if revision != 0 { // log the entries of the replaced record: no copy remains
		var err error
		if before, err = s.Get(ctx); err != nil {
			return fmt.Errorf("replace %s: %w", s.name, err)
		}
		// The history continues across the replacement.
		d = upgradestate.Continue(d, before)
	}
	d = upgradestate.Note(d, d, by, at)
	value, err := json.Marshal(d)
	if err == nil {
		err = upgradestate.Validate(d)
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", s.name, err)
	}
	s.export(before, d)
	_, err = s.coord.Commit(ctx,
		[]coord.Condition{{Key: s.recordKey(), Revision: revision}},
		[]coord.Op{{Key: s.recordKey(), Value: packRecord(value)}, {Key: indexKey(s.cfg.Prefix, s.name)}})
	if err != nil {
		return fmt.Errorf("replace %s: %w", s.name, err)
	}
	return nil
}

// Condition returns a condition that holds as long as nobody changes the record.
func (s *Store) Condition(d upgradestate.Deployment) coord.Condition {
	return coord.Condition{Key: s.recordKey(), Revision: d.Revision}
}
