package page

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// named takes a token for the name of its owner. The token "wrong" has none.
type named struct{}

func (named) Wants() string { return "a token" }

func (named) Authenticate(_ context.Context, r *http.Request) (access.Identity, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return access.Identity{}, access.ErrNoProof
	}
	if name == "wrong" {
		return access.Identity{}, &access.UnprovenError{Reason: "the token is wrong"}
	}
	return access.Identity{Name: "token:" + name, Proof: "token"}, nil
}
