package app

import (
	"context"
	"net/http"

	bbsv1 "dbcontroller/gen/bbs/v1"
	"dbcontroller/gen/bbs/v1/bbsv1connect"
	bbsv2 "dbcontroller/gen/bbs/v2"
	"dbcontroller/gen/bbs/v2/bbsv2connect"
)

// bbsClient talks to the BBS service.
type bbsClient struct {
	*service
	v1 []bbsv1connect.DesiredLRPServiceClient
	v2 []bbsv2connect.LRPDeploymentServiceClient
}

func newBBSClient(h *http.Client, s *service, servers []string) *bbsClient {
	return &bbsClient{service: s, v1: clientsOf(h, servers, bbsv1connect.NewDesiredLRPServiceClient), v2: clientsOf(h, servers, bbsv2connect.NewLRPDeploymentServiceClient)}
}

// read reads one process through one of the APIs.
func (c *bbsClient) read(ctx context.Context, l *ledger, t *tally, guid string, v2 bool) {
	c.readOne(ctx, l, t, guid, v2, func(ctx context.Context, s int) (string, http.Header, error) {
		if v2 {
			return asked(ctx, c.v2[s].GetLRPDeployment, &bbsv2.GetLRPDeploymentRequest{ProcessGuid: guid}, func(res *bbsv2.GetLRPDeploymentResponse) string { return printV2(res.GetLrpDeployment()) })
		}
		return asked(ctx, c.v1[s].GetDesiredLRP, &bbsv1.GetDesiredLRPRequest{ProcessGuid: guid}, func(res *bbsv1.GetDesiredLRPResponse) string { return printV1(res.GetDesiredLrp()) })
	})
}
