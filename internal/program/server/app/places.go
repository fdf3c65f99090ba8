package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// places finds the collections of a version, active or not, under the names of the Deployment.
type places struct {
	version     string
	deployments *deployment.Store
	latest      atomic.Pointer[upgradestate.Deployment]
}

// fencedFor bounds the time that a call waits for the Deployment to name collections that it can
// use. A switch moves them several times within a second.
const fencedFor = 15 * time.Second

// use calls do with the names that the kinds have or get next. If none of them works, it asks for
// the Deployment again.
func (s *places) use(ctx context.Context, kinds []string, do func(record.Tokens) error) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(5*time.Millisecond), backoff.WithMaxInterval(200*time.Millisecond), backoff.WithMaxElapsedTime(fencedFor))
	for {
		err := fmt.Errorf("%s: %w", s.version, record.ErrFenced)
		for _, toks := range s.tries(kinds) {
			if err = do(toks); !errors.Is(err, record.ErrFenced) {
				return err
			}
		}
		wait := retry.NextBackOff()
		if wait == backoff.Stop {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		d, err := s.deployments.Get(ctx)
		if err != nil {
			return err
		}
		s.latest.Store(&d)
	}
}

// tries returns the tokens of kinds for each attempt, the present names first. A kind with fewer
// names than others keeps its last one.
func (s *places) tries(kinds []string) (tries []record.Tokens) {
	d := s.latest.Load()
	if d == nil {
		return nil
	}
	all := upgradestate.EnginePlaces(*d, s.version)
	most := 0
	for _, kind := range kinds {
		if len(all[kind]) == 0 {
			return nil
		}
		most = max(most, len(all[kind]))
	}
	for n := range most {
		toks := record.Tokens{}
		for _, kind := range kinds {
			p := all[kind][min(n, len(all[kind])-1)]
			toks[kind] = record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
		}
		tries = append(tries, toks)
	}
	return tries
}
