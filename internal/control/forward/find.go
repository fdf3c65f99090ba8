package forward

import (
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/refusal"
)

// regionWait bounds the time that other regions have for an answer about where a deployment is.
const regionWait = 3 * time.Second

// find returns the place of a deployment, or nil if this process answers.
func (h *Handler) find(ctx context.Context, c caller, name string) (*place, error) {
	if c.forwarded || h.local.Runs(name) {
		return nil, nil
	}
	if p, _ := h.owner(name); p != nil {
		return p, nil
	}
	if len(h.regions) == 0 {
		return nil, nil
	}
	// A deployment of this coordination store is never another region's.
	if stored, err := h.local.Stored(ctx, name); err != nil || stored {
		return nil, nil //nolint:nilerr // the local answer has the same error
	}
	h.mu.Lock()
	p := h.homes[name]
	h.mu.Unlock()
	if p != nil {
		return p, nil
	}
	return h.home(ctx, c, name)
}

// home asks all other regions for a deployment. It returns nil if none has it.
func (o *Others) home(ctx context.Context, c caller, name string) (*place, error) {
	short, cancel := context.WithTimeout(ctx, regionWait)
	defer cancel()
	errs := make([]error, len(o.regions))
	var g errgroup.Group
	for i, r := range o.regions {
		g.Go(func() error {
			errs[i] = r.has(short, c, name)
			return nil
		})
	}
	_ = g.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var has []*place
	var away, denied []string
	for i, r := range o.regions {
		switch err := errs[i]; {
		case err == nil:
			has = append(has, r)
		case connect.CodeOf(err) == connect.CodeNotFound, connect.CodeOf(err) == connect.CodeInvalidArgument:
		case connect.CodeOf(err) == connect.CodePermissionDenied:
			denied = append(denied, line(err))
		default:
			away = append(away, line(err))
		}
	}
	switch {
	case len(has) == 1:
		o.remember(has[0], name)
		return has[0], nil
	case len(has) > 1:
		return nil, refusal.New(refusal.NotInThisState, fmt.Errorf("regions %s and %s both have %s: ask the controllers of one of them", has[0].region, has[1].region, name))
	case len(away) > 0:
		return nil, refusal.New(refusal.RegionUnavailable, fmt.Errorf("%s is not in this etcd, and not every other region can be asked: %s", name, strings.Join(away, "; ")))
	case len(denied) > 0:
		return nil, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s is not in this etcd: %s", name, strings.Join(denied, "; ")))
	}
	return nil, nil
}

// has returns nil if a region has a deployment.
func (p *place) has(ctx context.Context, c caller, name string) error {
	at, err := p.peersFor(c)
	if err != nil {
		return err
	}
	if err := at.calls.Acquire(ctx, 1); err != nil {
		return p.silent()
	}
	defer at.calls.Release(1)
	_, err = at.GetDeployment(ctx, request(c, &pb.GetDeploymentRequest{Name: name}))
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return p.silent()
	}
	return p.relayed(ctx, at, err, true)
}

// silent is the error of a region that did not answer within regionWait.
func (p *place) silent() error {
	return refusal.New(refusal.RegionUnavailable, fmt.Errorf("region %s at %s does not answer within %v", p.region, p.at, regionWait))
}

// remember keeps which region has a deployment.
func (o *Others) remember(p *place, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// The names come from callers and from regions, so their number is bounded.
	if len(o.homes) >= limits.Deployments*(len(o.regions)+1) {
		clear(o.homes)
	}
	o.homes[name] = p
}

// forget makes the next call about a deployment ask all regions again.
func (o *Others) forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.homes, name)
}
