package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// endless is the deployment of a stage that never becomes ready.
type endless struct {
	StageDeployment
	progress func() []syncer.Progress
	parked   func() []syncer.Parked
	pace     upgradestate.Pace
}

func (e *endless) Get(context.Context) (upgradestate.Deployment, error) {
	return upgradestate.Deployment{Upgrade: &upgradestate.Upgrade{}, Pace: e.pace}, nil
}
func (e *endless) Apply(context.Context, upgradestate.Event, ...coord.Condition) (upgradestate.Deployment, error) {
	return upgradestate.Deployment{}, nil
}
func (e *endless) Progress(context.Context) ([]syncer.Progress, error) { return e.progress(), nil }
func (e *endless) ParkedNow(context.Context) ([]syncer.Parked, error)  { return e.parked(), nil }
func (e *endless) Waive(context.Context, string, string) (syncer.Parked, error) {
	return syncer.Parked{}, nil
}

type sameDeployment struct{}

func (sameDeployment) Get(context.Context) (upgradestate.Deployment, error) {
	return upgradestate.Deployment{}, nil
}

// TestRehearsalEnds: whatever a stage does, its wait ends with what stands in the way, within a
// time that what it does does not lengthen.
func TestRehearsalEnds(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Hour // of a whole rehearsal
	none := func() []syncer.Parked { return nil }
	n := int64(0)
	for name, tc := range map[string]struct {
		e    endless
		want []string
		at   time.Duration // within which it ends
	}{
		"a group that differs and agrees by turns": {endless{parked: none, progress: func() []syncer.Progress {
			n++
			return []syncer.Progress{{Copied: 10, Total: 10, Verified: 10 + n, Mismatched: 1 + n%2}}
		}}, []string{"it makes no progress", "groups that differ"}, stallLimit + time.Minute},
		"a busy source": {endless{parked: none, progress: func() []syncer.Progress {
			n++
			return []syncer.Progress{{Copied: 10, Total: 10, Verified: 10, Applied: n, WaitsFor: "changes"}}
		}}, []string{"it makes no progress", "changes"}, stallLimit + time.Minute},
		"an error for ever": {endless{parked: none, progress: func() []syncer.Progress {
			return []syncer.Progress{{Total: 10, LastError: "apply changes: record exists"}}
		}}, []string{"record exists"}, stallLimit + time.Minute},
		"an index that is never built": {endless{parked: none, progress: func() []syncer.Progress {
			return []syncer.Progress{{Copied: 7, Total: 10, WaitsFor: "index mail_1 of people is being built"}}
		}}, []string{"limit of 2h0m0s (7 of 10)", "copy everything", "index mail_1 of people is being built"}, limit + time.Minute},
		"a pause for ever": {endless{parked: none, pace: upgradestate.Pace{Paused: true}, progress: func() []syncer.Progress {
			return []syncer.Progress{{Copied: 7, Total: 10, WaitsFor: "an operator paused it"}}
		}}, []string{"limit", "an operator paused it"}, limit + time.Minute},
		"a pace that lets nothing through": {endless{parked: none, progress: func() []syncer.Progress {
			return []syncer.Progress{{Copied: 7, Total: 10, Pace: "outside its window"}}
		}}, []string{"limit"}, limit + time.Minute},
		"every record fails": {endless{progress: func() []syncer.Progress { return nil }, parked: func() (out []syncer.Parked) {
			for i := range 100 {
				n++
				out = append(out, syncer.Parked{Kind: "k", Key: fmt.Sprint(n, i), Error: "poison"})
			}
			return out
		}}, []string{"records cannot be migrated"}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rehearsal{Rehearser: &Rehearser{Deployment: sameDeployment{}}, report: &pb.RehearseReport{}}
				r.say = func(w api.Work) { r.last.Store(&w) }
				s := &stage{deployment: &tc.e, ended: make(chan error, 1)}
				begun := time.Now()
				err := r.within(t.Context(), limit, func(ctx context.Context) error {
					_, err := r.await(ctx, s, "copy everything", func(upgradestate.Deployment) bool { return false })
					return err
				})
				if !errors.Is(err, errVerdict) || time.Since(begun) > tc.at {
					t.Fatalf("after %s: %v", time.Since(begun), err)
				}
				for _, want := range tc.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v does not name %q", err, want)
					}
				}
			})
		})
	}
}
