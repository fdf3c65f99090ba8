package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
)

// TestLeasesOfRegistrations: a caller that changes its ttl_ms with each call gets so many leases at
// once and so many a second, and leaves as many to others. A renewal with the same ttl_ms goes on.
func TestLeasesOfRegistrations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := deploymenttest.New(t)
		v := New(w.Coord, w.Store, Config{})
		ctx, stop := context.WithCancel(t.Context())
		go v.Run(ctx) //nolint:errcheck // it ends with ctx
		synctest.Wait()
		register := func(who string, ttl int32) error {
			_, err := v.RegisterClient(access.WithCaller(ctx, access.Caller{Identity: access.Identity{Name: who}}), connect.NewRequest(&pb.RegisterClientRequest{ClientId: "client-shop-" + strings.TrimPrefix(who, "token:"), TtlMs: ttl}))
			return err
		}
		hostile := func(who string) (n int) {
			for ; ; n++ {
				err := register(who, 100_000+int32(n%2))
				var full *FullError
				if errors.As(err, &full) || n > 2*leaseBurst {
					return n
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := hostile("token:a"); n != ownLeases {
			t.Errorf("%d leases at once, want %d", n, ownLeases)
		}
		// Neither it nor a second one keeps a third one from registering.
		if n := hostile("token:b"); n != ownLeases/2 {
			t.Errorf("%d leases of a second caller at once, want half of what the first one has left", n)
		}
		if err := register("token:c", 1000); err != nil {
			t.Errorf("a third caller: %v", err)
		}
		time.Sleep(time.Second)
		if n := hostile("token:a"); n > leaseRate {
			t.Errorf("%d leases a second later, want no more than %d", n, leaseRate)
		}
		time.Sleep(time.Hour)
		if n := hostile("token:a"); n != ownLeases {
			t.Errorf("%d leases after an hour, want %d", n, ownLeases)
		}
		time.Sleep(time.Second)
		last := hostile("token:a")
		if last < leaseRate || last > leaseRate+1 { // the first may be the renewal of the last
			t.Errorf("%d leases a second later, want %d", last, leaseRate)
		}
		if err := register("token:a", 100_000+int32((last-1)%2)); err != nil {
			t.Errorf("a renewal: %v", err)
		}
		stop()
		synctest.Wait()
	})
}
