package app

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

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
	c := &bbsClient{service: s}
	for _, addr := range servers {
		c.v1 = append(c.v1, bbsv1connect.NewDesiredLRPServiceClient(h, "http://"+addr))
		c.v2 = append(c.v2, bbsv2connect.NewLRPDeploymentServiceClient(h, "http://"+addr))
	}
	return c
}

// read reads one process through one of the APIs.
func (c *bbsClient) read(ctx context.Context, l *ledger, t *tally, guid string, v2 bool) {
	c.readOne(ctx, l, t, guid, v2, func(ctx context.Context, s int) (string, http.Header, error) {
		if v2 {
			res, err := c.v2[s].GetLRPDeployment(ctx, connect.NewRequest(&bbsv2.GetLRPDeploymentRequest{ProcessGuid: guid}))
			if err != nil {
				return "", nil, err
			}
			return printV2(res.Msg.GetLrpDeployment()), header(res), nil
		}
		res, err := c.v1[s].GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: guid}))
		if err != nil {
			return "", nil, err
		}
		return printV1(res.Msg.GetDesiredLrp()), header(res), nil
	})
}
