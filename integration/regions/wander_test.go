package regions_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"connectrpc.com/connect"

	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	resource "dbcontroller.dev/resource/region"
)

// Clients move secrets between the regions: those that roam their own ones, and one client the shared ones.

// destination returns a region that a secret moves to, or "" if there is none. A secret of a newer region
// would wait there until the others are as new.
func (c *crowd) destination(rng *rand.Rand, from string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := names[rng.IntN(len(names))]
	if to == from || c.newer[to] || c.newer[from] && rng.IntN(8) > 0 {
		return ""
	}
	return to
}

// older lets secrets move to a region, or not.
func (c *crowd) older(region string, older bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newer[region] = !older
}

// move moves one of the secrets. If it moves already, it is sent back or to a third region.
func (c *client) move() {
	i := c.rng.IntN(len(c.live))
	s := c.live[i]
	through, to := c.through(s), c.destination(c.rng, s.home)
	if to == "" {
		return
	}
	s.home, s.moves, s.moved = to, true, true
	switch c.write(s, s.payload, func(api secretsv1connect.SecretServiceClient) error { return rehome(c.w.ctx, api, s.id, to) }, through) {
	case done:
		c.live[i] = s
	case unknown:
		c.live = append(c.live[:i:i], c.live[i+1:]...)
	}
}

func rehome(ctx context.Context, api secretsv1connect.SecretServiceClient, id, home string) error {
	_, err := api.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: "projects/p/secrets/" + id, Home: home}}))
	return err
}

// wander moves a shared secret from time to time.
func (c *crowd) wander(ctx context.Context, id string, interval time.Duration, rng *rand.Rand) {
	c.every(ctx, interval, func() {
		if to := c.destination(rng, ""); to != "" {
			through := c.w.regions[names[rng.IntN(len(names))]]
			c.outcomeOf(through.at(rng, func(api secretsv1connect.SecretServiceClient) error { return rehome(c.w.ctx, api, id, to) }), true)
		}
	})
}

// move waits until so many more secrets have moved.
func (c *crowd) movesGoOn(what string, more int64) {
	c.w.t.Helper()
	least := c.moved.Load() + more
	c.w.eventually(what, func() error {
		if now := c.moved.Load(); now < least {
			return fmt.Errorf("%d secrets have moved, want %d", now, least)
		}
		return nil
	})
}

// endMoves waits until no secret moves. Those that wait for an older region return.
func (c *crowd) endMoves(active map[string]string) {
	w := c.w
	w.t.Helper()
	cancelled := 0
	for _, name := range names {
		r := w.regions[name]
		for _, s := range r.stored(active[name], "secrets") {
			m := resource.ParseMove(s.Move)
			if form, _ := resource.OfID(m.ID); m.Step != resource.Leaving || form <= active[m.Region] {
				continue
			}
			id := s.ID[strings.LastIndex(s.ID, "/")+1:]
			w.must("a cancel of the move of "+id, func() error {
				res, err := r.v1.GetSecret(w.ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/secrets/" + id}))
				if err != nil {
					return err
				}
				if strings.HasPrefix(id, sharedPrefix) {
					return r.rehome(id, name)
				}
				c.secrets.Begin(id, name+":"+string(res.Msg.GetSecret().GetPayload()))
				if err := r.rehome(id, name); err != nil {
					return err
				}
				c.secrets.Ack(id)
				return nil
			})
			cancelled++
		}
	}
	for _, name := range names {
		w.eventually("no move is left in "+name, func() error {
			text, err := w.regions[name].get()
			if err == nil && (strings.Contains(text, "moves ") || strings.Contains(text, "OWNED TWICE")) {
				err = errors.New(text)
			}
			return err
		})
	}
	w.t.Logf("%d moves to an older region were cancelled", cancelled)
}

// ownedOnce waits until the collections themselves show that each secret is owned by one region, its
// home, that no region has a copy of a record of its own, and that no part of a move is left.
func (w *world) ownedOnce(active map[string]string) {
	w.t.Helper()
	w.eventually("each secret is owned once", func() error {
		owner := map[string]string{}
		for _, name := range names {
			r := w.regions[name]
			for _, version := range []string{"v1", "v2"} {
				for _, s := range r.stored(version, "secrets") {
					if s.Home != name || !resource.ParseMove(s.Move).Owns() {
						return fmt.Errorf("%s owns %s of %q in %s, moves %q", name, s.ID, s.Home, version, s.Move)
					}
					id := s.ID[strings.LastIndex(s.ID, "/")+1:]
					if other := owner[id]; version == active[name] && other != "" {
						return fmt.Errorf("%s is owned by %s and %s", id, other, name)
					} else if version == active[name] {
						owner[id] = name
					}
				}
			}
		}
		for _, name := range names {
			for _, version := range []string{"v1", "v2"} {
				for _, s := range w.regions[name].stored(version, "secrets_copies") {
					// The copy of a former owner may stay for a minute.
					if of, _, _ := resource.OfCopy(s.ID); of == name {
						return fmt.Errorf("%s has the copy %s of %q in %s", name, s.ID, s.Home, version)
					}
				}
			}
		}
		return nil
	})
}

// number returns what a shared secret holds where it is owned, or errNoOwner while it moves.
func (w *world) number(rng *rand.Rand, id string) (text string, err error) {
	for _, i := range rng.Perm(len(names)) {
		var s *secretsv1.Secret
		err = w.regions[names[i]].at(rng, func(api secretsv1connect.SecretServiceClient) error {
			req := connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/secrets/" + id})
			req.Header().Set(resource.OwnedHeader, "1") // not a copy
			res, err := api.GetSecret(w.ctx, req)
			if err == nil {
				s = res.Msg.GetSecret()
			}
			return err
		})
		switch {
		case connect.CodeOf(err) == connect.CodeNotFound && err != nil:
		case err != nil:
			return "", err
		case resource.ParseMove(s.GetMove()).Owns():
			return string(s.GetPayload()), nil
		}
	}
	return "", errNoOwner
}

var errNoOwner = errors.New("it is on its way")
