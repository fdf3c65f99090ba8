package api

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/deployment/deploymenttest"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// TestLeasesOfRegistrations: a caller that changes its ttl_ms with each call gets so many leases at
// once and so many a second. A renewal with the same ttl_ms goes on.
func TestLeasesOfRegistrations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := deploymenttest.New(t)
		v := New(w.Coord, w.Store, Config{})
		ctx, stop := context.WithCancel(t.Context())
		go v.Run(ctx) //nolint:errcheck // it ends with ctx
		synctest.Wait()
		register := func(ttl int32) error {
			_, err := v.RegisterClient(ctx, connect.NewRequest(&pb.RegisterClientRequest{ClientId: "client-shop-1", TtlMs: ttl}))
			return err
		}
		hostile := func() (n int) {
			for ; ; n++ {
				err := register(100_000 + int32(n%2))
				var full *FullError
				if errors.As(err, &full) || n > 2*leaseBurst {
					return n
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := hostile(); n != leaseBurst {
			t.Errorf("%d leases at once, want %d", n, leaseBurst)
		}
		time.Sleep(time.Second)
		last := hostile()
		if last < leaseRate || last > leaseRate+1 { // the first may be the renewal of the last
			t.Errorf("%d leases a second later, want %d", last, leaseRate)
		}
		if err := register(100_000 + int32((last-1)%2)); err != nil {
			t.Errorf("a renewal: %v", err)
		}
		stop()
		synctest.Wait()
	})
}
