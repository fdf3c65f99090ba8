package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/rollout"
)

// ErrNoRollout means that there is no rollout with this name.
var ErrNoRollout error = &sentinel{"rollout does not exist", coord.ErrNotFound}

// Rollouts are the rollouts in the coordination store, over all deployments with one prefix. Its
// methods may be called concurrently.
type Rollouts struct {
	store   *Store                      // any deployment of the prefix
	watched follower[[]rollout.Rollout] // all of them, by callers of Watch
}

// Rollouts returns the rollouts in the coordination store of this deployment.
func (s *Store) Rollouts() *Rollouts { return &Rollouts{store: s} }

func (r *Rollouts) prefix() string { return r.store.cfg.Prefix + "/rollouts/" }

// DriverKey returns the key of the lock of the one process that drives rollouts.
func (r *Rollouts) DriverKey() string { return r.store.cfg.Prefix + "/rolloutdriver" }

// turnKey returns the key that changes whenever a rollout becomes active.
func (r *Rollouts) turnKey() string { return r.store.cfg.Prefix + "/rolloutturn" }

// turn is a point between two rollouts that become active.
type turn struct{ condition coord.Condition }

// turn returns the present turn. It is read before the caller reads all rollouts. put then fails if
// another rollout became active since.
func (r *Rollouts) turn(ctx context.Context) (turn, error) {
	key := r.turnKey()
	kv, err := r.store.coord.Get(ctx, key)
	switch {
	case errors.Is(err, coord.ErrNotFound):
		return turn{coord.Condition{Key: key}}, nil
	case err != nil:
		return turn{}, fmt.Errorf("read the turn of rollouts: %w", err)
	}
	return turn{coord.Condition{Key: key, Revision: kv.Mod}}, nil
}

// Condition returns a condition that holds as long as nobody changes the rollout.
func (r *Rollouts) Condition(ro rollout.Rollout) coord.Condition {
	return coord.Condition{Key: r.prefix() + ro.Name, Revision: ro.Revision}
}

// Get reads a rollout, linearizably. It returns ErrNoRollout, ErrFormat or ErrCorrupt.
func (r *Rollouts) Get(ctx context.Context, name string) (rollout.Rollout, error) {
	if err := rollout.CheckName(name); err != nil {
		return rollout.Rollout{}, &InvalidError{"name", name, "a rollout: up to 63 lower-case letters, digits and dashes"}
	}
	kv, err := r.store.coord.Get(ctx, r.prefix()+name)
	switch {
	case errors.Is(err, coord.ErrNotFound):
		return rollout.Rollout{}, fmt.Errorf("%s: %w", name, ErrNoRollout)
	case err != nil:
		return rollout.Rollout{}, fmt.Errorf("get rollout %s: %w", name, err)
	}
	return decodeRollout(kv)
}

// UnreadableRolloutError reports a stored rollout that this process cannot read. It wraps ErrFormat or
// ErrCorrupt. The rollout may be active.
type UnreadableRolloutError struct {
	Name     string
	Revision int64
	err      error
}

func (e *UnreadableRolloutError) Error() string { return e.err.Error() }

func (e *UnreadableRolloutError) Unwrap() error { return e.err }

func decodeRollout(kv coord.KV) (rollout.Rollout, error) {
	var r rollout.Rollout
	value, err := unpackRecord(kv.Value)
	if err == nil {
		err = json.Unmarshal(value, &r)
	}
	switch {
	case err == nil && r.Format > rollout.Format:
		err = fmt.Errorf("%w: %d, this binary knows %d", ErrFormat, r.Format, rollout.Format)
		return rollout.Rollout{}, &UnreadableRolloutError{path.Base(kv.Key), kv.Mod, fmt.Errorf("%s: %w", kv.Key, err)}
	case err == nil:
		err = rollout.Validate(r)
	}
	// An invalid record must not drive anything.
	if err != nil {
		return rollout.Rollout{}, &UnreadableRolloutError{path.Base(kv.Key), kv.Mod, fmt.Errorf("%s: %w: %w", kv.Key, ErrCorrupt, err)}
	}
	r.Revision = kv.Mod
	return r, nil
}

// All returns all rollouts by name. An unreadable one does not hide the others: unreadable holds its
// error.
func (r *Rollouts) All(ctx context.Context) (all []rollout.Rollout, unreadable []error, err error) {
	kvs, _, err := r.store.coord.List(ctx, r.prefix())
	if err != nil {
		return nil, nil, fmt.Errorf("list rollouts: %w", err)
	}
	all, unreadable = decodeRollouts(kvs)
	return all, unreadable, nil
}

func decodeRollouts(kvs []coord.KV) (all []rollout.Rollout, unreadable []error) {
	for _, kv := range kvs {
		ro, err := decodeRollout(kv)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		all = append(all, ro)
	}
	return all, unreadable
}

// Store stores a rollout in place of the one with the given revision; 0: there must be none. Besides
// the errors of Commit it returns an error for an invalid record. On coord.ErrConflict and
// coord.ErrUnknown the caller reads and decides again.
func (r *Rollouts) Store(ctx context.Context, next rollout.Rollout, revision int64) (rollout.Rollout, error) {
	return r.put(ctx, next, revision, turn{})
}

// Begin stores a new rollout that becomes active, and returns it. begin gets what is stored under the
// name, if anything is. It returns ok=false to change nothing. If another rollout becomes active
// meanwhile, begin is called again.
func (r *Rollouts) Begin(ctx context.Context, name string, begin func(now rollout.Rollout, exists bool) (next rollout.Rollout, ok bool, err error)) (rollout.Rollout, error) {
	wait := newBackOff()
	for {
		at, err := r.turn(ctx)
		if err != nil {
			return rollout.Rollout{}, err
		}
		now, err := r.Get(ctx, name)
		if err != nil && !errors.Is(err, ErrNoRollout) {
			return rollout.Rollout{}, err
		}
		next, ok, err := begin(now, err == nil)
		if err != nil || !ok {
			return next, err
		}
		stored, err := r.put(ctx, next, 0, at)
		if err == nil || !errors.Is(err, coord.ErrConflict) {
			return stored, err
		}
		if pause(ctx, wait) != nil {
			return rollout.Rollout{}, err
		}
	}
}

// put stores a rollout. It takes the turn unless that is the zero value.
func (r *Rollouts) put(ctx context.Context, next rollout.Rollout, revision int64, at turn) (rollout.Rollout, error) {
	if err := rollout.Validate(next); err != nil {
		return rollout.Rollout{}, fmt.Errorf("rollout %s would be invalid: %w", next.Name, err)
	}
	value, err := json.Marshal(next)
	if err != nil {
		return rollout.Rollout{}, err
	}
	key := r.prefix() + next.Name
	conditions, ops := []coord.Condition{{Key: key, Revision: revision}}, []coord.Op{{Key: key, Value: packRecord(value)}}
	if at.condition.Key != "" {
		conditions, ops = append(conditions, at.condition), append(ops, coord.Op{Key: at.condition.Key, Value: []byte(next.Name)})
	}
	next.Revision, err = r.store.coord.Commit(ctx, conditions, ops)
	if err != nil {
		return rollout.Rollout{}, fmt.Errorf("store rollout %s: %w", next.Name, err)
	}
	return next, nil
}

// Change changes a rollout by compare-and-swap, and returns it. It reads and decides again after a
// conflict or an unknown outcome. change returns ok=false to change nothing.
func (r *Rollouts) Change(ctx context.Context, name string, change func(rollout.Rollout) (next rollout.Rollout, ok bool, err error)) (rollout.Rollout, error) {
	return r.retry(ctx, name, func() (turn, error) { return turn{}, nil }, change)
}

// ChangeAlone is Change for a change that may make the rollout active. If another one becomes active
// meanwhile, change is called again.
func (r *Rollouts) ChangeAlone(ctx context.Context, name string, change func(rollout.Rollout) (next rollout.Rollout, ok bool, err error)) (rollout.Rollout, error) {
	return r.retry(ctx, name, func() (turn, error) { return r.turn(ctx) }, change)
}

func (r *Rollouts) retry(ctx context.Context, name string, take func() (turn, error), change func(rollout.Rollout) (next rollout.Rollout, ok bool, err error)) (rollout.Rollout, error) {
	wait := newBackOff()
	for {
		at, err := take()
		if err != nil {
			return rollout.Rollout{}, err
		}
		now, err := r.Get(ctx, name)
		if err != nil {
			return rollout.Rollout{}, err
		}
		next, ok, err := change(now)
		if err != nil || !ok {
			return now, err
		}
		stored, err := r.put(ctx, next, now.Revision, at)
		if err == nil || !again(err) {
			return stored, err
		}
		if pause(ctx, wait) != nil {
			return rollout.Rollout{}, err
		}
	}
}

// Delete deletes a rollout if it has not changed since it was read.
func (r *Rollouts) Delete(ctx context.Context, ro rollout.Rollout) error {
	return r.delete(ctx, ro.Name, ro.Revision)
}

// DeleteUnreadable is Delete for a rollout that cannot be read.
func (r *Rollouts) DeleteUnreadable(ctx context.Context, ro *UnreadableRolloutError) error {
	return r.delete(ctx, ro.Name, ro.Revision)
}

func (r *Rollouts) delete(ctx context.Context, name string, revision int64) error {
	key := r.prefix() + name
	if _, err := r.store.coord.Commit(ctx, []coord.Condition{{Key: key, Revision: revision}}, []coord.Op{{Key: key, Delete: true}}); err != nil {
		return fmt.Errorf("delete rollout %s: %w", name, err)
	}
	return nil
}
