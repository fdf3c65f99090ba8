package copies

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// leftMost bounds the names that a report counts.
const leftMost = 1000

// refusal returns the reason why the record of an event is not copied, or nil.
func (f *Follower) refusal(ev Event) error {
	if ev.Refused != nil {
		return ev.Refused
	}
	// A region could show, hide and block records under the name of another one.
	if f.cfg.Decl.Collection != "" {
		if owner := f.cfg.Decl.OwnerOf(ev.Name, nil); owner != f.cfg.Region {
			return fmt.Errorf("its name has the region %q", owner)
		}
	}
	return nil
}

// leave notes that a record is not copied. The other ones are, so one record cannot stop the copies.
func (f *Follower) leave(name string, reason error) {
	name = strings.ToValidUTF8(name, "?")
	f.mu.Lock()
	first := len(f.left) == 0
	if _, known := f.left[name]; known || len(f.left) < leftMost {
		f.left[name] = reason.Error()
	}
	f.mu.Unlock()
	// The report counts the others.
	if first {
		f.cfg.Log.Error("a record of another region is not copied", slog.String("kind", f.cfg.Kind), slog.String("region", f.cfg.Region), slog.String("record", name), slog.Any("error", reason))
	}
}

// settle forgets that a record is not copied.
func (f *Follower) settle(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.left, strings.ToValidUTF8(name, "?"))
}

// settleAll forgets all of them: a new watch sends them again.
func (f *Follower) settleAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.left)
}

// example describes one record that is not copied. f.mu is held.
func (f *Follower) example() string {
	if len(f.left) == 0 {
		return ""
	}
	name := slices.Min(slices.Collect(maps.Keys(f.left)))
	return name + ": " + f.left[name]
}
