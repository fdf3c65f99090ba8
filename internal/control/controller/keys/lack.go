package keys

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/upgradestate"
)

// lacking names the servers and controllers that could not decrypt records under the new key. They
// lack the key, have another key of the same name, or run a binary that knows no encryption.
func (r rotation) lacking(ctx context.Context, u upgradestate.Update, keys *sealed.Keys) (string, error) {
	if u.Key == sealed.Off {
		return "", nil
	}
	servers, err := r.Deployments.Servers(ctx)
	if err != nil {
		return "", err
	}
	controllers, err := r.Deployments.Controllers(ctx)
	if err != nil {
		return "", err
	}
	has, err := r.Deployments.ControllerKeys(ctx)
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
	return fmt.Sprintf("processes that lack key %s of %s, or have another key than %s: add it to encryption.keys there (%s)", u.Key, u.Version, r.ID, strings.Join(lack, ", ")), nil
}

// Lack returns, for the API, which processes lack a key that a version's records are under. The
// API asks before an upgrade to that version. "" means that no process is known to lack one. A
// process keeps a key in memory after its configuration has lost it, but its successor could not
// serve. A process that has not looked for the version's keys yet announces none, and is not
// counted.
func (k *Keeper) Lack(ctx context.Context, version string) (string, error) {
	db, ok := k.Databases()[version].(Encrypted)
	if !ok {
		return "", nil
	}
	var lack string
	e, err := k.encryption(ctx, version)
	if err != nil {
		err = fmt.Errorf("%w: %w", errState, err)
	} else {
		lack, err = Lack(ctx, k.Deployments, e.Sealer(), version, k.Self(), db.KeysHere())
	}
	switch {
	case errors.Is(err, sealed.ErrKey):
		return err.Error(), nil
	case errors.Is(err, errState): // without this database no upgrade reaches its switch anyway
		k.Log.Warn("cannot find out which keys an upgrade needs", zap.String("version", version), zap.Error(err))
		return "", nil
	}
	return lack, err
}

// errState means that the database does not return its State.
var errState = errors.New("cannot find out which keys are needed")

// Lack is Keeper.Lack for a process that is not a controller. self is the name of the process
// in the result, and here lists its keys.
func Lack(ctx context.Context, store *deployment.Store, s *sealed.Sealer, version, self string, here []string) (string, error) {
	st, err := s.State(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errState, err)
	}
	has, err := store.ControllerKeys(ctx)
	if err != nil {
		return "", err
	}
	servers, err := store.Servers(ctx)
	if err != nil {
		return "", err
	}
	all := map[string][]string{}
	for id, keys := range has {
		if len(keys[version]) > 0 {
			all["controller "+id] = keys[version]
		}
	}
	for _, s := range servers {
		if !s.Client && len(s.Keys[version]) > 0 {
			all["server "+s.ID] = s.Keys[version]
		}
	}
	all[self] = here // its announcement may be older than here
	for _, name := range slices.Sorted(maps.Keys(st.Under)) {
		key, lack := s.Keys().Check(name), []string(nil)
		for _, process := range slices.Sorted(maps.Keys(all)) {
			if name != sealed.Off && !slices.Contains(all[process], key) {
				lack = append(lack, process)
			}
		}
		if len(lack) > 0 {
			return fmt.Sprintf("records of %s are encrypted with key %s, which is missing from encryption.keys or has changed at %s: add the file of %s there", version, name, strings.Join(lack, ", "), name), nil
		}
	}
	return "", nil
}

// Announce publishes this controller's keys for other processes, as soon as it has any.
func (k *Keeper) Announce(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	presence := deployment.NewPresence(k.Deployments)
	look := time.NewTicker(lookAtKeys)
	defer look.Stop()
	var said map[string][]string // last announced; nil: nothing yet
	for {
		keys := map[string][]string{}
		for version, db := range k.Databases() {
			if e, ok := db.(Encrypted); ok && len(e.KeysHere()) > 0 {
				keys[version] = e.KeysHere()
			}
		}
		if !maps.EqualFunc(keys, said, slices.Equal) {
			// A controller without keys needs no lease for them.
			if said == nil {
				g.Go(func() error { return presence.Run(ctx) })
				said = map[string][]string{}
			}
			// ErrAbsent means that there is no lease yet. Presence announces the keys with the next
			// lease.
			if err := presence.AnnounceKeys(ctx, k.ID, keys); err == nil || errors.Is(err, deployment.ErrAbsent) {
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
