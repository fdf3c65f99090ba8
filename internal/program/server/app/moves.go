package app

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/engine/moves"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// regionMoves drives the moves of records between regions. Each version has a mover, which runs in one
// server while the version is active.
type regionMoves struct {
	*regionCopies
	services []string // API versions of the program, oldest first

	mu     sync.Mutex
	movers []*moves.Mover // of all versions; only that of the active one has moves
}

// newMoves returns the moves of a configuration, or nil if no record can move.
func (a *App) newMoves(copies *regionCopies) *regionMoves {
	if copies == nil {
		return nil
	}
	for _, v := range copies.versions {
		for _, k := range v.kinds {
			if k.Move != "" {
				return &regionMoves{regionCopies: copies, services: a.service.Versions}
			}
		}
	}
	return nil
}

// stacks adds the mover of each version to its background work, and answers the questions of other
// regions' movers.
func (m *regionMoves) stacks(of func(string, map[string]*vrunner.View) vrunner.Stack) func(string, map[string]*vrunner.View) vrunner.Stack {
	if m == nil {
		return of
	}
	return func(version string, views map[string]*vrunner.View) vrunner.Stack {
		s := of(version, views)
		v, view := m.versions[version], views[version]
		if v == nil || view == nil {
			return s
		}
		kinds := map[string]moves.Kind{}
		for kind, k := range v.kinds {
			if k.Move != "" {
				kinds[kind] = moves.Kind{Kind: k.Kind, Accept: k.Table(view).Acceptable}
			}
		}
		if len(kinds) == 0 {
			return s
		}
		cfg := moves.Config{Region: m.cfg.Name, Version: upgradestate.APIVersion(version), Versions: m.services, Kinds: kinds,
			Data: view, Ask: m.ask, Log: zaplog.New(m.log.With(zap.String("version", version)))}
		for _, o := range m.cfg.Others {
			cfg.Others = append(cfg.Others, o.Name)
		}
		mover := moves.New(cfg)
		m.mu.Lock()
		m.movers = append(m.movers, mover)
		m.mu.Unlock()
		s.Controllers = append(s.Controllers, vrunner.Controller{Name: "dbcontroller-moves", Run: mover.Run, Leader: true})
		if s.Handler != nil {
			s.Handler = moves.Handler(view, cfg.Region, cfg.Version, kinds, s.Handler)
		}
		return s
	}
}

// ask asks the servers of another region about a move.
func (m *regionMoves) ask(ctx context.Context, to string, q moves.Question) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, regionAnswer)
	defer cancel()
	for _, o := range m.cfg.Others {
		if o.Name == to {
			return moves.Ask(ctx, m.others[to].client, o.Endpoint, to, m.cfg.Name, q)
		}
	}
	return false, moves.ErrUnknownRegion
}

// reporter returns the function that reports the moves that this process drives, or nil.
func (m *regionMoves) reporter() func() []upgradestate.Moves {
	if m == nil {
		return nil
	}
	return func() (all []upgradestate.Moves) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, mover := range m.movers {
			for _, r := range mover.Report() {
				all = append(all, upgradestate.Moves{Kind: r.Kind, Region: r.Region, In: r.In, Count: r.Count,
					Since: r.Since.UTC().Format(time.RFC3339), Record: problem(r.Record), Waits: problem(r.Waits)})
			}
		}
		return all
	}
}
