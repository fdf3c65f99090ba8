package switchover_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/upgradestate"
)

// lookout notes, in their order, the looks at the databases before a flip and the tries of the flip.
type lookout struct {
	mu   sync.Mutex
	seen []string
	fail func() error // of a look at the marks; nil: none fails
}

func (l *lookout) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, what)
}

func (l *lookout) BeforeFlip(context.Context, upgradestate.Deployment) error {
	l.note("marks")
	if l.fail != nil {
		return l.fail()
	}
	return nil
}

func (l *lookout) BeforeAbort(context.Context, upgradestate.Deployment) error { return nil }

func (l *lookout) Since(context.Context, string) (string, error) { return "a place", nil }

func (l *lookout) Changed(context.Context, upgradestate.Deployment) (func(context.Context, upgradestate.Deployment) error, error) {
	l.note("target")
	return nil, nil
}

// stored returns the record that a commit stores, if it does.
func stored(ops []coord.Op) (d upgradestate.Deployment) {
	for _, op := range ops {
		if strings.HasSuffix(op.Key, "/record") && json.Unmarshal(op.Value, &d) == nil {
			return d
		}
	}
	return d
}

// TestEachFlipLooksAgain: a database may be restored, or changed by others, while a flip fails. So
// the driver looks at both again before each try. What it read before the last rename counts only
// if that rename succeeds at once.
func TestEachFlipLooksAgain(t *testing.T) {
	t.Parallel()
	once := func() func() bool {
		var n atomic.Int64
		return func() bool { return n.Add(1) == 1 }
	}
	looks := []string{"marks", "target"}
	for _, tc := range []struct {
		name   string
		fault  memcoord.Fault             // of the first commit of the flip
		rename bool                       // the last rename of the source fails at first
		look   func() (fail func() error) // nil: no look fails
		want   [][]string                 // what happens, each group in any order
	}{
		{name: "nothing fails", want: [][]string{looks, {"flip"}}},
		{name: "the answer is lost", fault: memcoord.LoseAnswer, want: [][]string{looks, {"flip"}}},
		{name: "the commit is lost", fault: memcoord.LoseRequest, want: [][]string{looks, {"flip"}, looks, {"flip"}}},
		{name: "the last rename fails", rename: true, want: [][]string{looks, looks, {"flip"}}},
		{
			name: "a look fails", want: [][]string{looks, looks, {"flip"}},
			look: func() func() error {
				first := once()
				return func() error {
					if first() {
						return errors.New("no primary")
					}
					return nil
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			kinds, sealing := simple, new(atomic.Bool)
			first := once()
			kinds.inject = map[string]faultstore.Injector{"v1": faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
				if op.Command == faultstore.Fence && sealing.Load() && tc.rename && first() {
					return faultstore.Down()
				}
				return faultstore.Fault{}
			})}
			inBubble(t, kinds, func(ctx context.Context, w *world) {
				l := &lookout{}
				if tc.look != nil {
					l.fail = tc.look()
				}
				lost := once()
				w.coord.OnCommit(func(_ []coord.Condition, ops []coord.Op) memcoord.Fault {
					d := stored(ops)
					if d.Upgrade != nil && d.Upgrade.Step == upgradestate.StepSealSource {
						sealing.Store(true)
					}
					if d.CurrentVersion != "v2" || d.LastSwitch == nil || d.Upgrade != nil {
						return memcoord.Deliver
					}
					l.note("flip")
					if lost() {
						return tc.fault
					}
					return memcoord.Deliver
				})
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{Marks: l, Target: l})
				w.await(ctx, "the flip", open("v2"))
				l.mu.Lock()
				defer l.mu.Unlock()
				at := 0
				for _, group := range tc.want {
					end := min(at+len(group), len(l.seen))
					got := slices.Sorted(slices.Values(l.seen[at:end]))
					if !slices.Equal(got, group) {
						t.Errorf("it did %v, want %v", l.seen, tc.want)
						return
					}
					at = end
				}
				if at != len(l.seen) {
					t.Errorf("it did %v, want %v", l.seen, tc.want)
				}
			})
		})
	}
}

var (
	_ switchover.Marks  = (*lookout)(nil)
	_ switchover.Target = (*lookout)(nil)
)
