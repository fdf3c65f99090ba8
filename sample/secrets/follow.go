package secrets

import (
	"net/http"

	"connectrpc.com/connect"

	secretsv1 "dbcontroller/gen/secrets/v1"
	"dbcontroller/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller/gen/secrets/v2"
	"dbcontroller/gen/secrets/v2/secretsv2connect"
	"dbcontroller/vrunner"
)

// MountWatches mounts the watches of both API versions in front of a runner, so that a
// client's stream goes on over a flip: what the other stack sends is compared with what
// the client has.
func MountWatches(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption) {
	mux.Handle(vrunner.NewWatchHandler[secretsv1.WatchSecretsRequest](r, vrunner.WatchProcedure[secretsv1.WatchSecretsResponse]{
		Procedure: secretsv1connect.SecretServiceWatchSecretsProcedure,
		Event: func(m *secretsv1.WatchSecretsResponse) (vrunner.Event, error) {
			return vrunner.Event{Type: vrunner.EventType(m.GetEvent()), Name: m.GetName()}, nil
		},
		Deleted: func(name string) *secretsv1.WatchSecretsResponse {
			return &secretsv1.WatchSecretsResponse{Event: secretsv1.WatchSecretsResponse_EVENT_DELETE, Name: name}
		},
	}, opts...))
	mux.Handle(vrunner.NewWatchHandler[secretsv2.WatchSecretsRequest](r, vrunner.WatchProcedure[secretsv2.WatchSecretsResponse]{
		Procedure: secretsv2connect.SecretServiceWatchSecretsProcedure,
		Event: func(m *secretsv2.WatchSecretsResponse) (vrunner.Event, error) {
			return vrunner.Event{Type: vrunner.EventType(m.GetEvent()), Name: m.GetName()}, nil
		},
		Deleted: func(name string) *secretsv2.WatchSecretsResponse {
			return &secretsv2.WatchSecretsResponse{Event: secretsv2.WatchSecretsResponse_EVENT_DELETE, Name: name}
		},
	}, opts...))
}
