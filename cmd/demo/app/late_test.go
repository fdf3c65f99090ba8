package app

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"
)

// What the version that follows has a moment later is late, and what it never gets is lost;
// the active version is believed at once.
func TestWhatFollowsIsWaitedFor(t *testing.T) {
	for _, tc := range []struct {
		name       string
		active     string
		staleLooks int
		lost, late int
		lateFor    time.Duration
	}{
		{"level at once", oldVersion, 0, 0, 0, 0},
		{"late", oldVersion, 3, 0, 1, 3 * lateEvery},
		{"never", oldVersion, 1 << 30, 1, 1, lateLimit + lateEvery},
		{"the active version", newVersion, 1, 1, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				shows := func(fresh map[string]sighting) lookup {
					return func(_ context.Context, _, _ int, see func(string, string)) error {
						for key, s := range fresh {
							see(key, s.print)
						}
						return nil
					}
				}
				v1 := maps.Clone(intact())
				v1["written"], v1["updated"], v1["open"], v1["dying"] = sighting{"w1", 1}, sighting{"new1", 1}, sighting{"a1", 1}, sighting{"x1", 1}
				v2 := func(ctx context.Context, server, w int, see func(string, string)) error {
					now := maps.Clone(intact())
					if looks++; looks <= tc.staleLooks {
						now["updated"] = sighting{"old2", 1}
					}
					return shows(now)(ctx, server, w, see)
				}
				f := newFindings(func(string) {})
				if err := checkAPIs(t.Context(), tc.active, 1, 1, shows(v1), v2, told(t), f); err != nil {
					t.Fatal(err)
				}
				if len(f.lost) != tc.lost || len(f.late) != tc.late || f.lateFor != tc.lateFor || len(f.duplicated)+len(f.resurrected) > 0 {
					t.Errorf("lost %v, late %v for %v, duplicated %v, resurrected %v", f.lost, f.late, f.lateFor, f.duplicated, f.resurrected)
				}
			})
		})
	}
}
