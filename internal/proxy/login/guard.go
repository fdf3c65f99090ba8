package login

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Guard slows down those who guess passwords. A failed guess keeps one of a few places for a second, for each
// address and user name. So others are not slowed down: neither other addresses, nor other users of the same
// address. A right password gives its place back at once.
//
// Its own limits are those of the proxy's connections: a guess keeps the connection that it came over.
type Guard struct {
	mu sync.Mutex
	of map[source]*places
}

const (
	// guesses is the number of places.
	guesses = 32
	// penalty is the time for which a failed guess keeps its place.
	penalty = time.Second
	// longestWait is the time for which a login waits for a place.
	longestWait = 10 * time.Second
)

// source is where guesses come from and what they are for.
type source struct {
	address        netip.Prefix
	database, name string
}

type places struct {
	taken chan struct{}
	users int // logins that have a place or wait for one
}

// errBusy means that too many guesses for the same user came from the same address.
var errBusy = errors.New("too many wrong passwords for this user from this address")

// Enter waits for a place. The caller must call Leave.
func (g *Guard) Enter(ctx context.Context, from net.Addr, database, name string) (*Place, error) {
	key := source{sourceOf(from), database, name}
	g.mu.Lock()
	if g.of == nil {
		g.of = map[source]*places{}
	}
	p := g.of[key]
	if p == nil {
		p = &places{taken: make(chan struct{}, guesses)}
		g.of[key] = p
	}
	p.users++
	g.mu.Unlock()
	wait := time.NewTimer(longestWait)
	defer wait.Stop()
	var err error
	select {
	case p.taken <- struct{}{}:
		return &Place{g, key, p}, nil
	case <-wait.C:
		err = errBusy
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.forget(key, p)
	return nil, err
}

func (g *Guard) forget(key source, p *places) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(g.of, key)
	}
}

// Place is the place of one login.
type Place struct {
	guard *Guard
	key   source
	of    *places
}

// Leave gives the place back. After a failure it returns after a second, or when ctx ends. ctx must not be that
// of the client, who could go away and guess again.
func (p *Place) Leave(ctx context.Context, failed bool) {
	if failed {
		wait := time.NewTimer(penalty)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
	}
	<-p.of.taken
	p.guard.forget(p.key, p.of)
}

// sourceOf returns the network that a client has for itself: an address of IPv4, or a network of IPv6, whose
// addresses one machine can use all.
func sourceOf(a net.Addr) netip.Prefix {
	const own4, own6 = 32, 64
	to, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{} // tests have connections without addresses
	}
	ip := to.Addr().Unmap().WithZone("")
	bits := own6
	if ip.Is4() {
		bits = own4
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
