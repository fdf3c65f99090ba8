package copies

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/resource/region"
)

const (
	// keptFor is how long the copy of a record that has moved to a third region stays without the copy
	// of its new owner. It only decides what reads show.
	keptFor = time.Minute
	// leftNames bounds the names of copies that a follower may keep.
	leftNames = 1000
)

// given is a copy of a record that its owner has given to another region.
type given struct {
	to    string    // the new owner
	until time.Time // the copy stays; zero: its record is still there
}

// noteLeft notes whether the record of a copy has left its region.
func (f *Follower) noteLeft(name string, doc bson.Raw) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteLeftLocked(name, doc)
}

// noteLeftLocked is noteLeft with f.mu held.
func (f *Follower) noteLeftLocked(name string, doc bson.Raw) {
	have, known := f.given[name]
	switch move := f.cfg.Decl.MoveOf(doc); {
	case move.Step != region.Left:
		delete(f.given, name)
	case !known && len(f.given) < leftNames, known && have.to != move.Region:
		f.given[name] = given{to: move.Region}
	}
}

// keepLeft returns the names to write without the deletes of copies whose record has moved to a third
// region that has not shown it here yet. Without this, reads would miss the record until then.
func (f *Follower) keepLeft(ctx context.Context, order []string, puts map[string]bson.Raw) (out []string, err error) {
	if f.cfg.Decl.Move == "" {
		return order, nil
	}
	now := time.Now()
	for _, name := range order {
		f.mu.Lock()
		if puts[name] != nil {
			f.noteLeftLocked(name, puts[name])
		}
		g, known := f.given[name]
		f.mu.Unlock()
		if puts[name] != nil || !known {
			out = append(out, name)
			continue
		}
		shown, err := f.shownBy(ctx, g.to, name)
		if err != nil {
			return nil, err
		}
		if g.until.IsZero() {
			g.until = now.Add(keptFor)
		}
		f.mu.Lock()
		if shown || now.After(g.until) {
			out = append(out, name)
			delete(f.given, name)
		} else {
			f.given[name] = g
		}
		f.mu.Unlock()
	}
	return out, nil
}

// shownBy reports whether this region shows a record as owned by another one, or owns it.
func (f *Follower) shownBy(ctx context.Context, owner, name string) (bool, error) {
	move, there, err := f.moveIn(ctx, region.CopiesKind(f.cfg.Kind), region.CopyKey(owner, name))
	if err != nil || there && move.Owns() {
		return there, err
	}
	_, there, err = f.moveIn(ctx, f.cfg.Kind, name)
	return there, err
}

// dropKept deletes the copies that need not be kept any longer.
func (f *Follower) dropKept(ctx context.Context) error {
	f.mu.Lock()
	var names []string
	for name, g := range f.given {
		if !g.until.IsZero() {
			names = append(names, name)
		}
	}
	f.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	order, err := f.keepLeft(ctx, names, nil)
	if err != nil {
		return err
	}
	return f.write(ctx, order, nil)
}
