package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/integration/workload"
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
				l := workload.New[state]("thing")
				l.Put("same", state{v1: "s1", v2: "s2"})
				l.Put("updated", state{v1: "new1", v2: "new2"})
				shows := func(same, updated string) lookup {
					return func(_ context.Context, _, _ int, see func(string, string)) error {
						see("same", same)
						see("updated", updated)
						return nil
					}
				}
				looks := 0
				v2 := func(ctx context.Context, server, w int, see func(string, string)) error {
					updated := "new2"
					if looks++; looks <= tc.staleLooks {
						updated = "old2"
					}
					return shows("s2", updated)(ctx, server, w, see)
				}
				f := newFindings(func(string) {})
				if err := checkAPIs(t.Context(), tc.active, 1, 1, shows("s1", "new1"), v2, l, f); err != nil {
					t.Fatal(err)
				}
				if f.lost() != tc.lost || len(f.late) != tc.late || f.lateFor != tc.lateFor || f.duplicated()+f.resurrected() > 0 {
					t.Errorf("found %v, late %v for %v", f.records, f.late, f.lateFor)
				}
			})
		})
	}
}
