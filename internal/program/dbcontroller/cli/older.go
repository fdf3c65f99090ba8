package cli

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"dbcontroller.dev/appclient/client"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

// needs returns the controller feature that a request requires, and the flag that depends on it. An
// older controller would ignore the flag and act unconfirmed. It returns "" for dry runs and other
// requests.
func needs(request any) (feature, flag string) {
	switch r := request.(type) {
	case *dbv1.CompleteRequest:
		if !r.GetDryRun() {
			return api.ConfirmsComplete, "--confirm"
		}
	case *dbv1.WaiveKindRequest:
		if !r.GetDryRun() {
			return api.CountsWaived, "--count"
		}
	case *dbv1.BeginUpgradeRequest:
		if !r.GetDryRun() && (r.GetAcceptLoss() || r.GetConfirm() != "") {
			return api.ConfirmsLoss, "--confirm"
		}
	}
	return "", ""
}

// refusesOlder asks a controller for its features before a request that an older one would carry
// out unconfirmed. Limit: if --server names several controllers, the request may reach another one
// than was asked.
func refusesOlder(plain dbcontrollerv1connect.DeploymentServiceClient, at string) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			feature, flag := needs(req.Any())
			if feature == "" {
				return next(ctx, req)
			}
			there, err := plain.GetVersion(client.Repeatable(ctx), connect.NewRequest(&dbv1.GetVersionRequest{}))
			switch {
			// Releases without GetVersion lack the feature as well.
			case connect.CodeOf(err) == connect.CodeUnimplemented:
			case err != nil:
				return nil, &client.NotSentError{Err: fmt.Errorf("ask the controller for its version: %w", err)}
			case slices.Contains(there.Msg.GetFeatures(), feature):
				return next(ctx, req)
			}
			return nil, exit.With(exit.Refused, &client.NotSentError{Err: fmt.Errorf(
				"the controller at %s is older than this command and ignores %s, so nothing was sent: update the controllers first", at, flag)})
		}
	}
}
