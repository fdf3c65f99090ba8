package identity

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Ahead holds marks that were read before a flip needs them. Over a distance the read would lengthen
// the pause. A mark of it serves one write, which is conditional on the whole mark. So nothing rests
// on its age: if the mark has changed meanwhile, the write fails, and the mark is read again.
type Ahead struct {
	mu    sync.Mutex
	marks map[string]Mark // by version
}

func (a *Ahead) keep(version string, m Mark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.marks == nil {
		a.marks = map[string]Mark{}
	}
	a.marks[version] = m
}

// take removes and returns the mark of a version, nil if there is none. a may be nil.
func (a *Ahead) take(version string) *Mark {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m, there := a.marks[version]
	delete(a.marks, version)
	if !there {
		return nil
	}
	return &m
}

// ReadAhead reads the marks that BeforeFlip will write, into k.Ahead.
func (k Keeper) ReadAhead(ctx context.Context, d upgradestate.Deployment) error {
	if k.Ahead == nil || d.Upgrade == nil {
		return nil
	}
	var g errgroup.Group // a failure leaves the other read alone
	for _, version := range []string{d.CurrentVersion, d.Upgrade.TargetVersion} {
		g.Go(func() error {
			db := k.marked(d, version)
			if db == nil {
				return nil
			}
			m, _, err := readMark(ctx, db, record.Owner{Deployment: d.Name, Version: version})
			if err == nil && m != nil {
				k.Ahead.keep(version, *m)
			}
			return err
		})
	}
	return g.Wait()
}
