package conn

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// TestFullDiskPasses: a server without room is one that can be used again once somebody has made
// some. A controller that starts meanwhile waits, and a client learns that the same may succeed.
func TestFullDiskPasses(t *testing.T) {
	t.Parallel()
	const said = "available disk space of 370827264 bytes is less than required minimum of 524288000"
	command := fmt.Errorf("check: %w", mongo.CommandError{Code: CodeOutOfDiskSpace, Name: "OutOfDiskSpace", Message: said})
	if !unavailable(command) || !IsUnavailable(command) {
		t.Errorf("%v does not pass by itself", command)
	}
}
