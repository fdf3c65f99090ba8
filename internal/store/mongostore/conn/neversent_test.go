package conn

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// noConnection is the driver's error of a pool that gives no connections, because another one has failed.
type noConnection struct{}

func (noConnection) Error() string   { return "connection pool was cleared" }
func (noConnection) Retryable() bool { return true }

// TestSentBeforeTheLastAttempt: a commit was sent, its answer was lost, and the driver's next attempt found no
// connection. The driver gives the error of that attempt alone. The commit may have happened all the same.
func TestSentBeforeTheLastAttempt(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		noConnection{},
		mongo.CommandError{Labels: []string{"NetworkError"}, Wrapped: fmt.Errorf("commit: %w", noConnection{})}, // as the driver shows it
	} {
		if !NeverSent(err) {
			t.Errorf("%v: the last attempt found no connection", err)
		}
		if !OutcomeUnknown(err) || !WorthRepeating(err) {
			t.Errorf("%v: unknown %t, worth repeating %t", err, OutcomeUnknown(err), WorthRepeating(err))
		}
	}
}
