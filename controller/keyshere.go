package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/deployment"
	"dbcontroller.dev/record/sealed"
	"dbcontroller.dev/upgradestate"
)

// lacking names the servers and controllers that could not decrypt what others write under the
// key: they do not have it, have another one of its name, or are of a binary that takes an
// envelope for a record.
func (r rotation) lacking(ctx context.Context, u upgradestate.Update, keys *sealed.Keys) (string, error) {
	if u.Key == sealed.Off {
		return "", nil
	}
	servers, err := r.deployment.Servers(ctx)
	if err != nil {
		return "", err
	}
	controllers, err := r.deployment.Controllers(ctx)
	if err != nil {
		return "", err
	}
	has, err := r.deployment.ControllerKeys(ctx)
	if err != nil {
		return "", err
	}
	key := keys.Check(u.Key)
	var lack []string
	for _, s := range servers {
		if !s.Client && !slices.Contains(s.Keys[u.Version], key) {
			lack = append(lack, "server "+s.ID)
		}
	}
	for _, id := range controllers {
		if !slices.Contains(has[id][u.Version], key) {
			lack = append(lack, "controller "+id)
		}
	}
	if len(lack) == 0 {
		return "", nil
	}
	return fmt.Sprintf("processes that have no key %s for %s yet, or another one than %s: add it to encryption.keys there (%s)", u.Key, u.Version, r.opts.ID, strings.Join(lack, ", ")), nil
}

// announceKeys tells others which keys this controller has, as soon as it has any.
func (a *App) announceKeys(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	presence := deployment.NewPresence(a.deployment)
	look := time.NewTicker(lookAtKeys)
	defer look.Stop()
	var said map[string][]string // nil: nothing
	for {
		keys := map[string][]string{}
		for version, db := range a.databases {
			if e, ok := db.(Encrypted); ok && len(e.KeysHere()) > 0 {
				keys[version] = e.KeysHere()
			}
		}
		if !maps.EqualFunc(keys, said, slices.Equal) {
			if said == nil {
				g.Go(func() error { return presence.Run(ctx) })
				said = map[string][]string{}
			}
			// What there is no lease for yet is announced with it.
			if err := presence.AnnounceKeys(ctx, a.opts.ID, keys); err == nil || errors.Is(err, deployment.ErrAbsent) {
				said = keys
			}
		}
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-look.C:
		}
	}
}
