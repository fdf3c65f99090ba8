package deployment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/access"
	"dbcontroller.dev/coord"
	"dbcontroller.dev/upgradestate"
)

type askedByKey struct{}

// AskedBy returns a context whose transitions the history ascribes to somebody. Others are
// ascribed to Config.By.
func AskedBy(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, askedByKey{}, who)
}

func (s *Store) askedBy(ctx context.Context) string {
	if who, _ := ctx.Value(askedByKey{}).(string); who != "" {
		return who
	}
	return s.cfg.By
}

// maxConditions is what a commit of the record has room for: the record itself takes a
// condition and an operation.
const maxConditions = coord.MaxOps - 2

// Apply makes one transition: it reads the record, applies the event, and stores the
// result if the record and all conditions are still as they were. A conflict of the
// record is tried again, until ctx ends.
//
// A condition that does not hold is ErrOwnership. What upgradestate refuses is its
// *upgradestate.RefusedError or ErrOutdated. An event that changes nothing returns the
// record as it is, without asking the conditions. coord.ErrUnknown is returned only
// where ctx ended, or the store was lost, before the outcome could be read.
func (s *Store) Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error) {
	_, d, err := s.Transition(ctx, ev, conditions...)
	return d, err
}

// Transition is Apply that also returns what the record was before.
func (s *Store) Transition(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (before, after upgradestate.Deployment, err error) {
	before, after, err = s.apply(ctx, ev, conditions)
	if err != nil {
		return upgradestate.Deployment{}, upgradestate.Deployment{}, fmt.Errorf("%s: %w", EventName(ev), err)
	}
	return before, after, nil
}

// EventName is "begin" for upgradestate.Begin.
func EventName(ev upgradestate.Event) string {
	name := fmt.Sprintf("%T", ev)
	name = name[len("upgradestate."):]
	return string(name[0]|0x20) + name[1:]
}

func (s *Store) apply(ctx context.Context, ev upgradestate.Event, conditions []coord.Condition) (before, after upgradestate.Deployment, err error) {
	if len(conditions) > maxConditions {
		return before, after, fmt.Errorf("%d conditions, at most %d fit into a commit: report fewer shards at once",
			len(conditions), maxConditions)
	}
	var failed error // the last commit's, and what it tried
	var tried attempt
	wait := newBackOff()
	for {
		cur, err := s.Get(ctx)
		if err != nil {
			if errors.Is(failed, coord.ErrUnknown) {
				err = fmt.Errorf("%w: %w", coord.ErrUnknown, err)
			}
			return before, after, err
		}
		now, err := json.Marshal(cur)
		if err != nil {
			return before, after, err
		}
		switch {
		case errors.Is(failed, coord.ErrUnknown) && cur.Revision > tried.revision && bytes.Equal(now, tried.value):
			return tried.before, cur, nil
		case errors.Is(failed, coord.ErrConflict) && cur.Revision == tried.revision:
			// The record is as it was, so it was one of the conditions.
			return before, after, ErrOwnership
		}
		next, err := upgradestate.Apply(cur, ev)
		if err != nil {
			return before, after, err
		}
		by, at := s.askedBy(ctx), time.Now().UTC().Format(time.RFC3339Nano)
		next = upgradestate.Note(cur, next, by, at)
		if caller, ok := access.CallerOf(ctx); ok && caller.Proven() {
			next = upgradestate.Ascribe(next, by, at, caller.Name, caller.Address)
		}
		value, err := json.Marshal(next)
		if err != nil {
			return before, after, err
		}
		if bytes.Equal(value, now) {
			return cur, cur, nil
		}
		if err := upgradestate.Validate(next); err != nil {
			return before, after, fmt.Errorf("would leave an invalid record: %w", err)
		}
		s.export(cur, next)
		rev, err := s.coord.Commit(ctx,
			append([]coord.Condition{{Key: s.recordKey(), Revision: cur.Revision}}, conditions...),
			[]coord.Op{{Key: s.recordKey(), Value: packRecord(value)}})
		if err == nil {
			next.Revision = rev
			return cur, next, nil
		}
		if !again(err) {
			return before, after, err
		}
		failed, tried = err, attempt{before: cur, revision: cur.Revision, value: value}
		if err := pause(ctx, wait); err != nil {
			return before, after, fmt.Errorf("%w: %w", failed, err)
		}
	}
}

// export tells the log of the entries that a transition takes out of the history, before it
// does: they are nowhere else then. A commit that is tried again tells them again.
func (s *Store) export(cur, next upgradestate.Deployment) {
	gone := min(next.HistoryDropped-cur.HistoryDropped, len(cur.History))
	for _, e := range cur.History[:max(0, gone)] {
		s.cfg.Log.Named(access.AuditLog).Info("history", zap.String("deployment", s.name), zap.Any("entry", e))
	}
}

// attempt is what a commit tried: this value over this revision of that record.
type attempt struct {
	before   upgradestate.Deployment
	revision int64
	value    []byte
}

// put changes the value of a key by compare-and-swap, so that a put that was lost on
// its way cannot come late over a newer one. old is nil where the key is absent.
func (s *Store) put(ctx context.Context, key string, lease coord.LeaseID, change func(old []byte) ([]byte, error)) error {
	var unknown []byte // what a commit of unknown outcome tried
	wait := newBackOff()
	for {
		kv, err := s.coord.Get(ctx, key)
		if err != nil && !errors.Is(err, coord.ErrNotFound) {
			return err
		}
		if unknown != nil && kv.Mod > 0 && bytes.Equal(kv.Value, unknown) && (lease == keepLease || kv.Lease == lease) {
			return nil
		}
		value, err := change(kv.Value)
		if err != nil {
			return err
		}
		id := lease
		if id == keepLease {
			id = kv.Lease
		}
		_, err = s.coord.Commit(ctx,
			[]coord.Condition{{Key: key, Revision: kv.Mod}}, []coord.Op{{Key: key, Value: value, Lease: id}})
		if err == nil || !again(err) {
			return err
		}
		unknown = nil
		if errors.Is(err, coord.ErrUnknown) {
			unknown = value
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// keepLease has put keep the lease that the key has.
const keepLease coord.LeaseID = -1
