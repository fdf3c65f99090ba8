package controller

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

// lookAtEncryption refreshes the encryption State of each open database, for the API.
func (a *App) lookAtEncryption(ctx context.Context) error {
	look := time.NewTicker(lookAtKeys)
	defer look.Stop()
	for {
		d, err := a.deployment.Get(ctx)
		for version, db := range a.databases {
			if err == nil && (!db.Opened() || upgradestate.Retired(d, version)) {
				a.encrypted.drop(version)
			} else if err == nil {
				a.showKeys(ctx, version)
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
func (a *App) showKeys(ctx context.Context, version string) {
	// One slow database must not delay the display of the others for long.
	ctx, cancel := context.WithTimeout(ctx, lookAtKeys)
	defer cancel()
	e, err := a.encryption(ctx, version)
	if err != nil || e == nil || len(e.Sealer().Keys().Names()) == 0 {
		a.encrypted.drop(version)
		return
	}
	st, err := e.Sealer().State(ctx)
	if st.New {
		a.encrypted.drop(version) // the namespace has no State yet
		return
	}
	a.encrypted.set(version, e.Sealer().Keys(), st, err)
}
