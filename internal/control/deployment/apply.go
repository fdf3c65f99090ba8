package deployment

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

type askedByKey struct{}

// AskedBy returns a context whose transitions the history attributes to who. Without it the history
// attributes them to Config.By.
func AskedBy(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, askedByKey{}, who)
}

// Asker returns the name that AskedBy set, "" for none.
func Asker(ctx context.Context) string {
	who, _ := ctx.Value(askedByKey{}).(string)
	return who
}

func (s *Store) askedBy(ctx context.Context) string {
	return cmp.Or(Asker(ctx), s.cfg.By)
}

// maxConditions bounds the caller's conditions in a commit of the record. The record itself takes
// one condition and one operation.
const maxConditions = coord.MaxOps - 2

// Apply makes one transition. It applies the event to the record that this process knows, and stores
// the result if the record and all conditions still hold. It reads the record where that result is
// a refusal or no change, and after an unknown outcome. It retries a conflict until ctx ends, on the
// record that the conflict brings. So a transition usually takes one call of the store, and one more
// for each conflict: those of a switch run while writes are held.
//
// ErrOwnership means that a condition does not hold. A refusal by upgradestate is
// *upgradestate.RefusedError or ErrOutdated. An event that changes nothing returns the record as it
// is, without checking the conditions. Apply returns coord.ErrUnknown only if ctx ended or the
// store was lost before it could read the outcome.
//
// A flip is committed only once, because the caller has to check both databases before each try. If
// that commit fails and the flip can still happen, Apply returns the error of the commit.
func (s *Store) Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error) {
	_, d, err := s.Transition(ctx, ev, conditions...)
	return d, err
}

// Transition is Apply, but also returns the record before the transition.
func (s *Store) Transition(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (before, after upgradestate.Deployment, err error) {
	before, after, err = s.apply(ctx, ev, conditions)
	if err != nil {
		return upgradestate.Deployment{}, upgradestate.Deployment{}, fmt.Errorf("%s: %w", EventName(ev), err)
	}
	return before, after, nil
}

// EventName returns an event's name, "begin" for upgradestate.Begin.
func EventName(ev upgradestate.Event) string {
	name := fmt.Sprintf("%T", ev)
	name = name[len("upgradestate."):]
	return string(name[0]|0x20) + name[1:]
}

func (s *Store) apply(ctx context.Context, ev upgradestate.Event, conditions []coord.Condition) (before, after upgradestate.Deployment, err error) {
	// Refuse here: the commit would fail with a less useful error.
	if len(conditions) > maxConditions {
		return before, after, fmt.Errorf("%d conditions, but at most %d fit into a commit: report fewer shards at once",
			len(conditions), maxConditions)
	}
	kv, err := s.record.swap(ctx, s.coord, s.recordKey(), conditions, func(kv coord.KV, failed error) (*coord.Op, error) {
		cur, err := s.stored(kv)
		if err != nil {
			return nil, unresolved(failed, err)
		}
		now, err := json.Marshal(cur)
		if err != nil {
			return nil, err
		}
		before, after = cur, cur
		next, value, err := s.decide(ctx, cur, now, ev)
		switch {
		case err != nil || value == nil:
			return nil, err
		// The caller's checks of both databases are older than the failed commit.
		case failed != nil && isFlip(ev):
			return nil, fmt.Errorf("%w: it is unknown whether the flip happened, so both databases must be checked again", failed)
		}
		// Before the commit, because afterwards the dropped entries exist nowhere else.
		s.export(cur, next)
		after = next
		return &coord.Op{Value: packRecord(value)}, nil
	})
	if err != nil {
		return before, after, err
	}
	if after.Revision = kv.Mod; after.Revision != before.Revision {
		s.remember(after, kv.Value)
	}
	return before, after, nil
}

// decide applies an event to a record, whose encoding is now. It returns the new record with its
// encoding, which is nil if nothing changes.
func (s *Store) decide(ctx context.Context, cur upgradestate.Deployment, now []byte, ev upgradestate.Event) (next upgradestate.Deployment, value []byte, err error) {
	if next, err = upgradestate.Apply(cur, ev); err != nil {
		return next, nil, err
	}
	// Note the history in the same record, so that a transition and its entry cannot come apart.
	by, at := s.askedBy(ctx), time.Now().UTC().Format(time.RFC3339Nano)
	next = upgradestate.Note(cur, next, by, at)
	// Only a proven identity may appear as the caller in the history.
	if caller, ok := access.CallerOf(ctx); ok && caller.Proven() {
		next = upgradestate.Ascribe(next, by, at, caller.Name, caller.Address)
	}
	if value, err = json.Marshal(next); err != nil {
		return next, nil, err
	}
	// Do not write an equal value: every watcher of the record would wake up.
	if bytes.Equal(value, now) {
		return next, nil, nil
	}
	if err := upgradestate.Validate(next); err != nil {
		return next, nil, fmt.Errorf("would leave an invalid record: %w", err)
	}
	return next, value, nil
}

func isFlip(ev upgradestate.Event) bool {
	_, ok := ev.(upgradestate.Flip)
	return ok
}

// export logs the history entries that a transition is about to drop. The log is then their only
// copy. A retried commit logs them again.
func (s *Store) export(cur, next upgradestate.Deployment) {
	gone := min(next.HistoryDropped-cur.HistoryDropped, len(cur.History))
	for _, e := range cur.History[:max(0, gone)] {
		s.log.Named(access.AuditLog).Info("history", zap.Any("entry", e))
	}
}
