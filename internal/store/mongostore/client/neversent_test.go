package client

import (
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// cleared is what the driver answers where another one's failed connection has emptied the
// pool: its own type cannot be made here.
type cleared struct{ error }

func (cleared) Retryable() bool { return true }

// TestNeverSent: a write that got no connection had no effect and is made again; one whose
// connection broke may have had one.
func TestNeverSent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want ending
	}{
		"the pool was cleared": {fmt.Errorf("write: %w", cleared{errors.New("the login of another one was refused")}), endAgain},
		"the connection broke": {errors.New("connection closed"), endUnresolved},
		"the login is refused": {mongo.CommandError{Code: 18, Message: "Authentication failed."}, endRejected},
	} {
		if got, _ := endOf(tc.err); got != tc.want {
			t.Errorf("%s: ending %d, want %d", name, got, tc.want)
		}
	}
}
