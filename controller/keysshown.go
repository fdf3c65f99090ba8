package controller

import (
	"context"
	"maps"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/record/sealed"
	"dbcontroller.dev/upgradestate"
)

// encryptions are which keys the records of each version are under, as it was read last: people
// must get an answer while a database is away.
type encryptions struct {
	mu        sync.Mutex
	byVersion map[string]*pb.Encryption // they do not change
	at        map[string]time.Time      // when they were read
}

func (e *encryptions) all() map[string]*pb.Encryption {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.byVersion)
}

// set notes what a database says. Where it says nothing now, what it said before stands, and when
// that was: who watches the deployment is told of what has changed alone.
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

// lookAtEncryption reads which keys records are under, for people who ask.
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

// showKeys notes what a version's database says, where this process has keys for it: without one
// it could not have it open if records were under any.
func (a *App) showKeys(ctx context.Context, version string) {
	ctx, cancel := context.WithTimeout(ctx, lookAtKeys)
	defer cancel()
	e, err := a.encryption(ctx, version)
	if err != nil || e == nil || len(e.Sealer().Keys().Names()) == 0 {
		a.encrypted.drop(version)
		return
	}
	st, err := e.Sealer().State(ctx)
	if st.New {
		a.encrypted.drop(version) // nobody has begun it
		return
	}
	a.encrypted.set(version, e.Sealer().Keys(), st, err)
}
