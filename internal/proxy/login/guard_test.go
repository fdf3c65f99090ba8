package login

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func from(t *testing.T, address string) net.Addr {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestGuard: guesses for one user from one address are slow, also if their clients go away. Other users and other
// addresses do not wait, and neither do right passwords.
func TestGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		life := t.Context()
		var attack sync.WaitGroup
		const all = 10 * guesses
		begun := time.Now()
		enter := func(address, name string) (*Place, error) { return g.Enter(life, from(t, address), "admin", name) }
		for range all {
			attack.Go(func() {
				p, err := enter("10.0.0.1:1", "shop")
				if err != nil {
					t.Error(err)
					return
				}
				p.Leave(life, true)
			})
		}
		synctest.Wait()
		for _, other := range [][2]string{{"10.0.0.2:1", "shop"}, {"10.0.0.1:2", "other"}, {"[2001:db8::1]:1", "shop"}} {
			p, err := enter(other[0], other[1])
			if err != nil {
				t.Fatal(err)
			}
			p.Leave(life, false)
			if waited := time.Since(begun); waited != 0 {
				t.Errorf("%s of %s has waited %s", other[1], other[0], waited)
			}
		}
		attack.Wait()
		if took := time.Since(begun); took != all/guesses*penalty {
			t.Errorf("%d guesses took %s", all, took)
		}
		if len(g.of) != 0 {
			t.Errorf("%d entries are left", len(g.of))
		}
	})
}

// TestGuardIsBusy: a login waits for a place, and not for ever. The proxy's end ends the wait.
func TestGuardIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		life, end := context.WithCancel(t.Context())
		var held []*Place
		for range guesses {
			p, err := g.Enter(life, from(t, "[2001:db8::1]:1"), "admin", "shop")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, p)
		}
		begun := time.Now()
		// The same network of IPv6.
		if _, err := g.Enter(life, from(t, "[2001:db8::ffff]:2"), "admin", "shop"); !errors.Is(err, errBusy) || time.Since(begun) != longestWait {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		var g2 sync.WaitGroup
		g2.Go(func() {
			if _, err := g.Enter(life, from(t, "[2001:db8::1]:3"), "admin", "shop"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		end()
		g2.Wait()
		for _, p := range held {
			p.Leave(life, true)
		}
		if len(g.of) != 0 {
			t.Errorf("%d entries are left", len(g.of))
		}
	})
}
