package explore_test

import (
	"testing"

	us "dbcontroller.dev/upgradestate"
	"dbcontroller.dev/upgradestate/internal/explore"
)

// TestImagesMutants breaks what keeps images of another transformation out.
func TestImagesMutants(t *testing.T) {
	t.Parallel()
	seals := func(d *us.Deployment) {
		eachKind(d, func(version string, k *us.Kind) {
			if version != d.CurrentVersion && k.Pending != nil && k.Pending.Reason == us.PendingSeal {
				k.Pending = nil
			}
		})
	}
	hunt(t, map[string]mutant{
		"another transformation is announced without a rename": {twoHashes, "images", after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.AnnounceAvailable); ok && d.Upgrade == nil && pendingOperations(*d) == 0 {
				seals(next)
			}
		})},
		"an upgrade changes its transformation": {twoHashes, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if a, ok := e.(us.AnnounceAvailable); ok && d.Upgrade != nil {
				d.Upgrade.TransformHash = a.Available.TransformHash
			}
			return e
		})},
		"writing goes on before the renames are confirmed": {twoHashes, "images", func(m *explore.Machine) {
			m.ApplyAllowed = func(d us.Deployment) bool {
				if d.Upgrade == nil {
					return true
				}
				return us.ApplyAllowed(d)
			}
		}},
		"a transformation that comes back counts as the one before": {twoHashes, "images", before(func(d *us.Deployment, e us.Event) us.Event {
			if a, ok := e.(us.AnnounceAvailable); ok && a.Available.TransformHash == "h" {
				for i := range d.Namespaces {
					d.Namespaces[i].Images.TransformHash = "h"
				}
			}
			return e
		})},
	})
}

// TestLoaderMutants breaks what keeps those out who load without guards.
func TestLoaderMutants(t *testing.T) {
	t.Parallel()
	hunt(t, map[string]mutant{
		"the fence of loaders renames nothing": {viewLoads, "loaders", after(func(_, next *us.Deployment, e us.Event) {
			if f, ok := e.(us.FenceLoaders); ok {
				eachKind(next, func(version string, k *us.Kind) {
					if version == f.Version {
						k.Pending = nil
					}
				})
			}
		})},
		"the fence of loaders leaves a kind out": {viewLoads, "loaders", after(func(_, next *us.Deployment, e us.Event) {
			if f, ok := e.(us.FenceLoaders); ok {
				eachKind(next, func(version string, k *us.Kind) {
					if version == f.Version && k.Fixed {
						k.Pending = nil
					}
				})
			}
		})},
		"loading goes on after its fence": {viewLoads, "loaders", func(m *explore.Machine) {
			m.Loads = func(d us.Deployment, version string) bool {
				_, ok := us.ImagesOf(d, version)
				return ok
			}
		}},
		"a kind that keeps its name is loaded": {markLoads, "loaders", func(m *explore.Machine) {
			m.Loads = func(d us.Deployment, version string) bool {
				m, ok := us.ImagesOf(d, version)
				return ok && m.Fences == 0
			}
		}},
	})
}
