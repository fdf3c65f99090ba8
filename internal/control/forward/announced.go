package forward

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/control/deployment"
)

// maxNames is the maximum number of deployments with announced controllers. Others can write
// announcements, too.
const maxNames = 2 * limits.Deployments

// announced replaces what is known about other controllers.
func (o *Others) announced(all []deployment.Addressed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, live := map[string][]string{}, map[string]bool{}
	for _, a := range all {
		if a.ID == o.cfg.ID {
			// This process answers about its own deployments itself.
			if a.Address == o.cfg.Address {
				continue
			}
			o.warnOnce(a, "another controller has the id of this one: give each its own --id", nil)
		}
		if err := o.usable(a.Address); err != nil {
			o.warnOnce(a, "cannot use the address of a controller: calls are not forwarded to it", err)
			continue
		}
		live[a.Address] = true
		for _, name := range a.Deployments {
			if len(at) < maxNames || at[name] != nil {
				at[name] = append(at[name], a.Address)
			}
		}
	}
	owners, placed := map[string]*place{}, map[string]*place{}
	for name, addresses := range at {
		slices.Sort(addresses)
		addresses = slices.Compact(addresses)
		key := strings.Join(addresses, ",")
		p := placed[key]
		if p == nil {
			p = o.placed[key] // with its connections
		}
		if p == nil {
			var err error
			if p, err = newPlace("", addresses, o.cfg.Peers, o.trusts); err != nil {
				o.cfg.Log.Warn("cannot forward calls", zap.String("deployment", name), zap.Error(err))
				continue
			}
		}
		placed[key], owners[name] = p, p
	}
	// The list comes again when the watch was silent.
	if maps.Equal(o.owners, owners) && maps.Equal(o.live, live) {
		return
	}
	o.owners, o.placed, o.live = owners, placed, live
	close(o.changed)
	o.changed = make(chan struct{})
}

// usable returns why an announced address cannot be called with the certificates of this process.
func (o *Others) usable(address string) error {
	c := o.cfg.Peers
	c.Server = address
	urls, err := c.URLs()
	switch {
	case err != nil:
		return err
	case len(urls) > 1:
		return errors.New("want one address")
	}
	// No controller listens there, but services for machines do, such as those with a cloud's metadata.
	if ip, err := netip.ParseAddr(urls[0].Hostname()); err == nil {
		if ip = ip.Unmap(); ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
			return fmt.Errorf("%s is no address of one machine for others: give its name, or another address of it", ip)
		}
	}
	return nil
}

// warnOnce writes one line to the log about each announced address.
func (o *Others) warnOnce(a deployment.Addressed, text string, err error) {
	if o.warned[a.Address] || len(o.warned) == limits.Deployments {
		return
	}
	o.warned[a.Address] = true
	o.cfg.Log.Warn(text, zap.String("other", a.ID), zap.String("address", withoutUser(a.Address)), zap.Error(err))
}

// withoutUser hides text before an @, which may be a password.
func withoutUser(address string) string {
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		return "***" + address[i:]
	}
	return address
}

// trusts reports whether the configuration of this process vouches for an announced address. Whoever can
// write the coordination store can announce any address, so the announcement itself proves nothing.
func (o *Others) trusts(address string) bool {
	switch {
	case !private(address):
		return false
	case o.cfg.Peers.CA != "" && strings.HasPrefix(address, "https://"):
		return true // TLS asks for a certificate of these authorities
	}
	return slices.ContainsFunc(o.cfg.Known, func(known string) bool { return canonical(known) == canonical(address) })
}

// canonical returns one spelling of an address, with its port.
func canonical(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// owner returns the announced controllers of a deployment, nil if there are none, and a channel that is
// closed when announcements change.
func (o *Others) owner(name string) (*place, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owners[name], o.changed
}

// isLive reports whether a controller of a place is announced. Regions announce nothing here, and count as
// live. The channel is closed when announcements change.
func (o *Others) isLive(p *place) (bool, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return p.region != "" || slices.ContainsFunc(p.addresses, func(a string) bool { return o.live[a] }), o.changed
}

// errGone ends a call to controllers that are not announced any more: they have stopped, or hang.
var errGone = errors.New("it is not announced any more, so it has stopped or hangs")

// whileLive returns a context that also ends once a place has not been live for a while.
func (o *Others) whileLive(ctx context.Context, p *place, while time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if p.region == "" {
		go func() {
			gone, waits := time.NewTimer(while), true
			defer gone.Stop()
			for {
				live, changed := o.isLive(p)
				switch {
				case live:
					gone.Stop()
				case !waits:
					gone.Reset(while)
				}
				waits = !live
				select {
				case <-changed:
				case <-gone.C:
					cancel(errGone)
					return
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}
