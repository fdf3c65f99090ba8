package controller

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/record"
)

// endingStore tells its user to end while it is read, and fails as a place does that cannot be
// reached.
type endingStore struct {
	coord.Store
	end context.CancelFunc
}

func (s endingStore) Get(context.Context, string) (coord.KV, error) {
	s.end()
	return coord.KV{}, record.ErrUnavailable
}

type unavailableBackend struct{ Backend }

func (unavailableBackend) Unavailable(err error) bool { return errors.Is(err, record.ErrUnavailable) }

// TestToldToEndWhileItWaits: a controller that is told to end while it waits for a database has
// not failed.
func TestToldToEndWhileItWaits(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := App{
		backend: unavailableBackend{}, log: zap.NewNop(), connections: &connections{},
		deployment: deployment.New(endingStore{memcoord.New(), cancel}, "services/a/deployments/b", deployment.Config{}),
	}
	if _, err := a.awaitPrepared(ctx, func() {}); !errors.Is(err, context.Canceled) || errors.Is(err, record.ErrUnavailable) {
		t.Errorf("%v, want the end of the context alone", err)
	}
}
