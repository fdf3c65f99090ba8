package upgradestate

import (
	"fmt"
	"strings"
	"time"
)

// Pace is how fast bulk work goes: copying, comparing as a whole, and data updates. Changes
// are followed at any pace, so that the source's history does not pass the checkpoints.
// The zero value: as fast as the controllers are configured.
type Pace struct {
	Paused bool   `json:"paused,omitempty"` // no bulk work, and no switch begins
	Reason string `json:"reason,omitempty"` // of the pause, for people
	// MaxRate is how many records a second all controllers together may copy; 0: as
	// configured.
	MaxRate int `json:"maxRate,omitempty"`
	// MaxSourceLoad is the load of the source, in percent, above which bulk work slows
	// down; 0: as configured.
	MaxSourceLoad int `json:"maxSourceLoad,omitempty"`
	// Window is when bulk work is done and a switch may begin, such as 22:00-05:00, in UTC;
	// empty: at any time.
	Window string `json:"window,omitempty"`
}

// maxRate is wide: what lies outside is a slip of the pen.
const maxRate = 10_000_000

func (p Pace) pauseReason() string {
	if p.Reason == "" {
		return "paused by an operator"
	}
	return "paused: " + p.Reason
}

// Window is a time of day, which may go over midnight. The zero value is the whole day.
type Window struct{ from, to time.Duration } // since midnight

// ParseWindow reads HH:MM-HH:MM; empty is the whole day.
func ParseWindow(s string) (Window, error) {
	if s == "" {
		return Window{}, nil
	}
	a, b, ok := strings.Cut(s, "-")
	from, errFrom := time.Parse("15:04", a)
	to, errTo := time.Parse("15:04", b)
	if !ok || errFrom != nil || errTo != nil || from.Equal(to) {
		return Window{}, fmt.Errorf("window %q: want HH:MM-HH:MM with two different times, such as 22:00-05:00", s)
	}
	return Window{sinceMidnight(from), sinceMidnight(to)}, nil
}

func sinceMidnight(t time.Time) time.Duration {
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second
}

// Holds reports whether an instant is within the window; its end is not.
func (w Window) Holds(t time.Time) bool {
	at := sinceMidnight(t.UTC())
	switch {
	case w == Window{}:
		return true
	case w.from < w.to:
		return at >= w.from && at < w.to
	default:
		return at >= w.from || at < w.to
	}
}

func (p Pace) validate() error {
	switch {
	case p.MaxRate < 0 || p.MaxRate > maxRate:
		return fmt.Errorf("a rate of %d is not within 0 to %d", p.MaxRate, maxRate)
	case p.MaxSourceLoad < 0 || p.MaxSourceLoad > 100:
		return fmt.Errorf("a source load of %d %% is not within 0 to 100", p.MaxSourceLoad)
	}
	_, err := ParseWindow(p.Window)
	return err
}

func (d *Deployment) setPace(e SetPace) error {
	next := d.Pace
	set(&next.Paused, e.Paused)
	set(&next.Reason, e.Reason)
	set(&next.MaxRate, e.MaxRate)
	set(&next.MaxSourceLoad, e.MaxSourceLoad)
	set(&next.Window, e.Window)
	if !next.Paused {
		next.Reason = ""
	}
	if err := next.validate(); err != nil {
		return refused("pace: %v", err)
	}
	d.Pace = next
	return nil
}
