package upgradestate

import (
	"testing"
	"time"
)

// FuzzWindow: a window that is accepted begins and ends within a day, and is never all of it.
func FuzzWindow(f *testing.F) {
	for _, seed := range []string{"", "22:00-05:00", "00:00-23:59", "24:00-25:00", "9:00-10:00", "10:00-10:00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseWindow(text)
		if err != nil || text == "" {
			return
		}
		day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if w.from < 0 || w.to < 0 || w.from >= 24*time.Hour || w.to >= 24*time.Hour || !w.Holds(day.Add(w.from)) || w.Holds(day.Add(w.to)) {
			t.Errorf("%q is the window %+v", text, w)
		}
	})
}
