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

	"dbcontroller.dev/coord"
	"dbcontroller.dev/limits"
	"dbcontroller.dev/upgradestate"
)

// DefaultPrefix is where everything is kept unless Config says otherwise. Its last part
// is the version of the key layout.
const DefaultPrefix = "/dbcontroller/1"

var (
	// ErrNotFound: there is no such deployment. Create it.
	ErrNotFound error = &sentinel{"deployment does not exist", coord.ErrNotFound}
	// ErrOwnership: a condition that the caller gave does not hold (any longer), such as
	// the lock of a shard. Nothing was written. Look at what is owned and decide again.
	ErrOwnership error = &sentinel{"ownership is lost", coord.ErrConflict}
	// ErrFormat: the record was written by a newer binary. Use that one.
	ErrFormat = errors.New("record has a newer format")
	// ErrCorrupt: what is stored cannot be read, or must not be acted on. A person must look.
	ErrCorrupt = errors.New("stored value is corrupt")
)

// sentinel is an error that errors.Is also finds as the coordination store's own.
type sentinel struct {
	text string
	is   error
}

func (e *sentinel) Error() string { return e.text }
func (e *sentinel) Unwrap() error { return e.is }

// Config configures a Store. The zero value is fine.
type Config struct {
	Prefix string      // DefaultPrefix
	By     string      // who makes transitions that nobody else asked for, such as "controller c-1"
	Log    *zap.Logger // for what nobody returns: a watch that had to begin again; none
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

	newestMu    sync.Mutex
	newest      upgradestate.Deployment // as decoded last
	newestValue []byte                  // what it was decoded from; nil: nothing yet

	parkedMu sync.Mutex
	parked   map[string]*parkedShard // by key prefix of the shard's parked groups
}

// New returns the deployment of a name, which need not exist yet.
func New(c coord.Store, name string, cfg Config) *Store {
	return &Store{coord: c, name: name, cfg: cfg.withDefaults(), parked: map[string]*parkedShard{}}
}

// Name is the deployment's name.
func (s *Store) Name() string { return s.name }

// Other returns another deployment of the same coordination store, with the same
// configuration.
func (s *Store) Other(name string) (*Store, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return New(s.coord, name, s.cfg), nil
}

var validName = regexp.MustCompile(`^services/[A-Za-z0-9][A-Za-z0-9._-]*/deployments/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// InvalidError says that an argument is none, and what is allowed.
type InvalidError struct{ Field, Value, Want string }

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s %q: want %s", e.Field, e.Value, e.Want)
}

func checkName(name string) error {
	if len(name) > limits.NameBytes {
		return &InvalidError{"name", name[:20] + "...", fmt.Sprintf("at most %d bytes", limits.NameBytes)}
	}
	if !validName.MatchString(name) {
		return &InvalidError{"name", name, "services/{service}/deployments/{region}"}
	}
	return nil
}

// Create creates the deployment unless there is one, and returns the one that stands.
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
		stands, err := s.Get(ctx)
		if !errors.Is(err, ErrNotFound) {
			return stands, err
		}
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

// Get reads the record, linearizably. ErrNotFound, ErrFormat, ErrCorrupt.
func (s *Store) Get(ctx context.Context) (upgradestate.Deployment, error) {
	kv, err := s.coord.Get(ctx, s.recordKey())
	if errors.Is(err, coord.ErrNotFound) {
		return upgradestate.Deployment{}, fmt.Errorf("%s: %w", s.name, ErrNotFound)
	}
	if err != nil {
		return upgradestate.Deployment{}, fmt.Errorf("get %s: %w", s.name, err)
	}
	d, err := s.decode(kv)
	if err != nil {
		return upgradestate.Deployment{}, fmt.Errorf("get %s: %w", s.name, err)
	}
	return d, nil
}

// decode is decodeRecord, except that the watches and readers of a process share the work:
// each change of the record reaches all of them. Every caller gets a copy of its own.
func (s *Store) decode(kv coord.KV) (upgradestate.Deployment, error) {
	s.newestMu.Lock()
	defer s.newestMu.Unlock()
	// By its bytes, which tell more than its revision: that of another record of the same
	// name may be the same, after etcd was restored.
	if s.newestValue != nil && bytes.Equal(s.newestValue, kv.Value) {
		d := upgradestate.Clone(s.newest)
		d.Revision = kv.Mod
		return d, nil
	}
	d, err := decodeRecord(kv)
	if err == nil {
		s.newest, s.newestValue = upgradestate.Clone(d), kv.Value
	}
	return d, err
}

func decodeRecord(kv coord.KV) (upgradestate.Deployment, error) {
	var err error
	if kv.Value, err = unpackRecord(kv.Value); err != nil {
		return upgradestate.Deployment{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	var d upgradestate.Deployment
	if err := json.Unmarshal(kv.Value, &d); err != nil {
		// A newer format may not even decode.
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
		return upgradestate.Deployment{}, fmt.Errorf("%w: %d, this binary knows %d", ErrFormat, d.Format, upgradestate.Format)
	}
	if err := upgradestate.Validate(d); err != nil {
		return upgradestate.Deployment{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	d.Revision = kv.Mod
	return d, nil
}

// All returns all deployments below the prefix of this one, by name. One whose record cannot be
// read does not hide the others: unreadable has the reason by its name.
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
		case errors.Is(err, ErrNotFound):
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

// Count is how many deployments there are below the prefix of this one.
func (s *Store) Count(ctx context.Context) (int, error) {
	kvs, _, err := s.coord.List(ctx, indexKey(s.cfg.Prefix, ""))
	return len(kvs), err
}

// newBackOff is for loops of compare-and-swap: short, jittered, and bounded by the
// caller's ctx alone.
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

// again reports an outcome after which to read and to decide again.
func again(err error) bool {
	return errors.Is(err, coord.ErrConflict) || errors.Is(err, coord.ErrUnknown)
}

// Replace stores a record that was made by other means than a transition, in place of the
// one of a revision; 0: there is none. ErrOwnership says that it is another one by now.
// What is kept of directions in earlier epochs stays, and nobody looks at it.
func (s *Store) Replace(ctx context.Context, d upgradestate.Deployment, revision int64, by, at string) error {
	if err := checkName(d.Name); err != nil {
		return err
	}
	var before upgradestate.Deployment
	if revision != 0 { // the entries of the record that goes are nowhere else
		var err error
		if before, err = s.Get(ctx); err != nil {
			return fmt.Errorf("replace %s: %w", s.name, err)
		}
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
		[]coord.Op{{Key: s.recordKey(), Value: value}, {Key: indexKey(s.cfg.Prefix, s.name)}})
	if err != nil {
		return fmt.Errorf("replace %s: %w", s.name, err)
	}
	return nil
}
