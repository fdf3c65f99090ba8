package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/upgradestate"
)

// TestStartsAreAdmitted: deployments start a few at a time, each one as soon as another's start is over.
// One whose upgrade runs does not wait, because its switch may hold writes.
func TestStartsAreAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		steady := func(context.Context) (upgradestate.Deployment, error) {
			return upgradestate.Deployment{}, errors.New("there is none yet")
		}
		switching := func(context.Context) (upgradestate.Deployment, error) {
			return upgradestate.Deployment{Upgrade: &upgradestate.Upgrade{}}, nil
		}
		s := newStarts()
		const all = startsAtOnce + 3
		admitted, ended := make(chan func(), all), make(chan error, all)
		for range all {
			go func() {
				leave, err := s.admit(ctx, steady)
				if err == nil {
					admitted <- leave
				}
				ended <- err
			}()
		}
		synctest.Wait()
		if n := len(admitted); n != startsAtOnce {
			t.Fatalf("%d deployments start at once, want %d", n, startsAtOnce)
		}
		leave, err := s.admit(ctx, switching)
		if err != nil {
			t.Fatal(err)
		}
		leave() // gives no place to others
		synctest.Wait()
		if n := len(admitted); n != startsAtOnce {
			t.Errorf("%d deployments start at once after one of a switch, want %d", n, startsAtOnce)
		}
		(<-admitted)()
		synctest.Wait()
		if n := len(admitted); n != startsAtOnce {
			t.Errorf("%d deployments start after one start is over, want %d", n, startsAtOnce)
		}
		cancel()
		for range all {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// TestReadyAfterTheStart: a process of many deployments is not ready while one of them has not been
// tried, although others work.
func TestReadyAfterTheStart(t *testing.T) {
	f := &Fleet{members: []*member{{}, {failed: errors.New("its database does not fit")}}}
	f.members[1].tried.Store(true)
	if err := f.Ready(); err == nil || !strings.Contains(err.Error(), "1 of 2 deployments have not started yet") {
		t.Errorf("ready: %v", err)
	}
	f.members[0].tried.Store(true)
	if err := f.Ready(); err == nil || !strings.Contains(err.Error(), "none of 2 deployments works") {
		t.Errorf("ready, with all tried and none at work: %v", err)
	}
}
