package upgradestate

import (
	"fmt"
	"strings"
	"time"
)

// Pace limits the speed of bulk work: copies, whole comparisons and data updates. Changes are
// followed without a limit, so that checkpoints stay within the source's history. The zero value
// applies the controllers' configuration.
type Pace struct {
	Paused bool   `json:"paused,omitempty"` // no bulk work, and no switch starts
	Reason string `json:"reason,omitempty"` // of the pause, for people
	// MaxRate is the maximum number of records per second copied by all controllers together; 0: as
	// configured.
	MaxRate int `json:"maxRate,omitempty"`
	// MaxSourceLoad is the load of the source in percent above which bulk work slows down; 0: as
	// configured.
	MaxSourceLoad int `json:"maxSourceLoad,omitempty"`
	// Window is the time of day for bulk work and for the start of a switch, in UTC, such as
	// 22:00-05:00; empty: any time.
	Window string `json:"window,omitempty"`
}

// maxRate is generous. A higher value is a typing error.
const maxRate = 10_000_000

func (p Pace) pauseReason() string {
	if p.Reason == "" {
		return "paused by an operator"
	}
	return "paused: " + p.Reason
}

// Window is a time of day in UTC, which may span midnight. The zero value is the whole day.
type Window struct {
	from, to time.Duration // since midnight
}

// ParseWindow parses HH:MM-HH:MM. An empty string is the whole day.
func ParseWindow(s string) (Window, error) {
	if s == "" {
		return Window{}, nil
	}
	a, b, ok := strings.Cut(s, "-")
	from, errFrom := time.Parse("15:04", a)
	to, errTo := time.Parse("15:04", b)
	// Equal times could mean the whole day or none of it.
	if !ok || errFrom != nil || errTo != nil || from.Equal(to) {
		return Window{}, fmt.Errorf("window %q: want HH:MM-HH:MM with two different times, such as 22:00-05:00", s)
	}
	return Window{sinceMidnight(from), sinceMidnight(to)}, nil
}

func sinceMidnight(t time.Time) time.Duration {
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second
}

// Holds reports whether a time is within the window. The end is excluded.
func (w Window) Holds(t time.Time) bool {
	at := sinceMidnight(t.UTC())
	switch {
	case w == Window{}:
		return true
	case w.from < w.to:
		return at >= w.from && at < w.to
	// The window spans midnight.
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
	// A reason without a pause would show up at the next one.
	if !next.Paused {
		next.Reason = ""
	}
	if err := next.validate(); err != nil {
		return refused("pace: %v", err)
	}
	d.Pace = next
	return nil
}
