package keys

import (
	"context"
	"maps"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/upgradestate"
)

// encryptions holds, by version, the last known State of encryption. The API answers from it, so
// that it also answers while a database is unavailable.
type encryptions struct {
	mu        sync.Mutex
	byVersion map[string]*pb.Encryption // values are never modified
	at        map[string]time.Time      // time of the last successful read
}

func (e *encryptions) all() map[string]*pb.Encryption {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.byVersion)
}

// set stores a State for display. If the read failed, set keeps the previous values and adds their
// time. Without a failure it adds no time: that would change at each look, and send an event to
// every watcher of the deployment.
func (e *encryptions) set(version string, keys *sealed.Keys, st sealed.State, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byVersion == nil {
		e.byVersion, e.at = map[string]*pb.Encryption{}, map[string]time.Time{}
	}
	out := &pb.Encryption{}
	if err == nil {
		out.Key, out.Keys, out.Every = st.Key, st.InUse(), st.Whole
		e.at[version] = time.Now()
	} else {
		if before := e.byVersion[version]; before != nil {
			out = proto.CloneOf(before)
		}
		if at, known := e.at[version]; known {
			out.At = at.UTC().Format(time.RFC3339)
		}
		out.Error = err.Error()
	}
	out.Active = keys.Active()
	e.byVersion[version] = out
}

func (e *encryptions) drop(version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byVersion, version)
	delete(e.at, version)
}

// Shown returns the last known State of each version. The values must not be modified.
func (k *Keeper) Shown() map[string]*pb.Encryption { return k.encrypted.all() }

// Look refreshes the encryption State of each open database, for the API.
func (k *Keeper) Look(ctx context.Context) error {
	look := time.NewTicker(lookAtKeys)
	defer look.Stop()
	for {
		d, err := k.Deployments.Known(ctx)
		for version, db := range k.Databases() {
			if err == nil && (!db.Opened() || upgradestate.Retired(d, version)) {
				k.encrypted.drop(version)
			} else if err == nil {
				k.showKeys(ctx, version)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// showKeys refreshes the State of a version's database, if this process has keys for it. A process
// without keys cannot open a database with encrypted records.
func (k *Keeper) showKeys(ctx context.Context, version string) {
	// One slow database must not delay the display of the others for long.
	ctx, cancel := context.WithTimeout(ctx, lookAtKeys)
	defer cancel()
	e, err := k.encryption(ctx, version)
	if err != nil || e == nil || len(e.Sealer().Keys().Names()) == 0 {
		k.encrypted.drop(version)
		return
	}
	st, err := e.Sealer().State(ctx)
	if st.New {
		k.encrypted.drop(version) // the namespace has no State yet
		return
	}
	k.encrypted.set(version, e.Sealer().Keys(), st, err)
}
