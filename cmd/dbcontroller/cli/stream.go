package cli

import (
	"fmt"

	"connectrpc.com/connect"
)

// received waits for the report of a long call. report gets each message, says how far the
// call is, and returns the report once there is one.
func received[M, R any](stream *connect.ServerStreamForClient[M], what string, report func(*M) *R) (*R, error) {
	defer stream.Close() //nolint:errcheck // nothing more is wanted of it
	var r *R
	for stream.Receive() {
		if got := report(stream.Msg()); got != nil {
			r = got
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("the controller ended the %s without a report: try again", what)
	}
	return r, nil
}
