package forward

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/limits"
)

// ListDeployments implements the API. It adds the deployments of all other regions.
func (h *Handler) ListDeployments(ctx context.Context, req *connect.Request[pb.ListDeploymentsRequest]) (*connect.Response[pb.ListDeploymentsResponse], error) {
	c := h.callerOf(ctx, req.Header())
	if c.forwarded || len(h.regions) == 0 {
		return h.local.ListDeployments(ctx, req)
	}
	lists, errs := make([]*pb.ListDeploymentsResponse, len(h.regions)), make([]error, len(h.regions))
	var g errgroup.Group
	for i, r := range h.regions {
		g.Go(func() error {
			lists[i], errs[i] = r.list(ctx, c)
			return nil
		})
	}
	own, err := h.local.ListDeployments(ctx, req)
	_ = g.Wait()
	if err != nil {
		return nil, err
	}
	res := own.Msg
	has := map[string]string{} // names, with the region that has them
	for _, d := range res.Deployments {
		has[d.Name] = ""
	}
	for _, u := range res.Unreadable {
		has[u.Name] = ""
	}
	for i, r := range h.regions {
		state := &pb.ListDeploymentsResponse_Region{Name: r.region}
		if res.Regions = append(res.Regions, state); errs[i] != nil {
			state.Unavailable = line(errs[i])
			continue
		}
		h.merge(res, r, lists[i], has)
	}
	return own, nil
}

// merge adds the list of a region. Calls about a name go to one deployment, so a second one with the same
// name is not shown as if it could be called here.
func (h *Handler) merge(res *pb.ListDeploymentsResponse, r *place, list *pb.ListDeploymentsResponse, has map[string]string) {
	unreadable := func(name, reason string) {
		res.Unreadable = append(res.Unreadable, &pb.ListDeploymentsResponse_Unreadable{Name: name, Reason: reason})
	}
	for _, d := range list.Deployments[:min(len(list.Deployments), limits.Deployments)] {
		other, twice := has[d.Name]
		switch {
		case twice && other == "":
			unreadable(d.Name, fmt.Sprintf("%s: region %s has a deployment of this name, too: ask the controllers there about it", d.Name, r.region))
			continue
		case twice:
			unreadable(d.Name, fmt.Sprintf("%s: regions %s and %s both have a deployment of this name: ask the controllers of one of them", d.Name, other, r.region))
			continue
		}
		has[d.Name], d.Region = r.region, r.region
		res.Deployments = append(res.Deployments, d)
		h.remember(r, d.Name)
	}
	for _, u := range list.Unreadable[:min(len(list.Unreadable), limits.Deployments)] {
		unreadable(u.Name, fmt.Sprintf("region %s: %s", r.region, line(fmt.Errorf("%s", u.Reason))))
	}
}

// list returns the deployments of a region, within regionWait.
func (p *place) list(ctx context.Context, c caller) (*pb.ListDeploymentsResponse, error) {
	at, err := p.peersFor(c)
	if err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, regionWait)
	defer cancel()
	if err := at.calls.Acquire(short, 1); err != nil {
		return nil, p.silent()
	}
	defer at.calls.Release(1)
	res, err := at.ListDeployments(short, request(c, &pb.ListDeploymentsRequest{}))
	switch {
	case err == nil:
		return res.Msg, nil
	case short.Err() != nil:
		return nil, p.silent()
	}
	return nil, p.relayed(ctx, at, err, true)
}
