package integration_test

import (
	"context"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// pace bounds how many records a second are copied; 0 removes that.
func (s *system) pace(ctx context.Context, rate int32) {
	s.t.Helper()
	if _, err := s.apis()[0].SetPace(ctx, connect.NewRequest(&dbv1.SetPaceRequest{MaxRate: &rate})); err != nil {
		s.t.Fatal(err)
	}
}

// beginHolding begins an upgrade that waits, when it is ready, to be told to switch.
func (s *system) beginHolding(ctx context.Context, to string) {
	s.t.Helper()
	if _, err := s.apis()[0].BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{
		TargetVersion: to, Policy: &dbv1.SwitchPolicy{Hold: true},
	})); err != nil {
		s.t.Fatal(err)
	}
}

// goOn has an upgrade that holds switch.
func (s *system) goOn(ctx context.Context) {
	s.t.Helper()
	if _, err := s.apis()[0].Switch(ctx, connect.NewRequest(&dbv1.SwitchRequest{})); err != nil {
		s.t.Fatal(err)
	}
}
