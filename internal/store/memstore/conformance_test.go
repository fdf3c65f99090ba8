package memstore

import (
	"testing"

	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/record"
)

var _ recordtest.App = (*Foreign)(nil)

func factory(opts Options) recordtest.Factory {
	return func(*testing.T) recordtest.Backend {
		s := NewCluster(opts).Open("suite")
		return recordtest.Backend{
			Namespace:   s,
			Client:      s,
			Reopen:      func() record.Namespace { return s.Cluster().Open("suite") },
			App:         s.Foreign(),
			LoseHistory: func(*testing.T) { s.Cluster().LoseHistory() },
			Leftovers:   func(*testing.T) []string { return s.Names() },
		}
	}
}

func TestConformance(t *testing.T) {
	for name, opts := range map[string]Options{
		"plain":          {},
		"lagging reads":  {Lag: 40},
		"small batches":  {Changes: 1},
		"late clock":     {Start: 1 << 40},
		"validator only": {FixedFence: record.FenceValidator},
	} {
		t.Run(name, func(t *testing.T) { recordtest.Exercise(t, factory(opts)) })
	}
}
