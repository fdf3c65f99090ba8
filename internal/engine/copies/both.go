package copies

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
)

// bothMost bounds the names that a report counts.
const bothMost = 1000

// noteBoth counts the names that this region owns as well. Such a name was created in two regions at
// once. Reads show the owned record. Names with an equal copy count like those that were written: this
// process may be new.
func (f *Follower) noteBoth(ctx context.Context, order []string, puts map[string]bson.Raw, equal []string) error {
	if f.cfg.Decl.Field == "" {
		return nil // the name has the region, so there are none
	}
	var copied []string
	for _, name := range order {
		if puts[name] != nil {
			copied = append(copied, name)
		}
	}
	copied = append(copied, equal...)
	owned, moved, err := f.twice(ctx, copied)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// A name that is here only, or there only, is fine.
	for _, name := range order {
		if !slices.Contains(owned, name) {
			delete(f.both, name)
			delete(f.moved, name)
		}
	}
	for _, name := range owned {
		// A copy may be older than a move. The next beat decides.
		if moved[name] && !f.both[name] && len(f.moved) < bothMost {
			f.moved[name] = true
			continue
		}
		f.note(name)
	}
	return nil
}

// note counts a name. f.mu is held.
func (f *Follower) note(name string) {
	if !f.both[name] && len(f.both) < bothMost {
		f.both[name] = true
		f.cfg.Log.Error("a record is owned here and in another region", slog.String("kind", f.cfg.Kind), slog.String("region", f.cfg.Region), slog.String("record", strings.ToValidUTF8(name, "?")))
	}
}

// recheckBoth forgets the names that are not owned twice any more, and counts those that a move does not
// explain after all.
func (f *Follower) recheckBoth(ctx context.Context) error {
	f.mu.Lock()
	names := slices.Concat(slices.Sorted(maps.Keys(f.both)), slices.Sorted(maps.Keys(f.moved)))
	f.mu.Unlock()
	for some := range slices.Chunk(names, batchMost) {
		owned, _, err := f.twice(ctx, some)
		if err != nil {
			return err
		}
		f.mu.Lock()
		for _, name := range some {
			if delete(f.moved, name); slices.Contains(owned, name) {
				f.note(name)
			} else {
				delete(f.both, name)
			}
		}
		f.mu.Unlock()
	}
	return nil
}

// twice returns the names whose record here and whose copy are both owned. moved has those of which one
// has a state of a move.
func (f *Follower) twice(ctx context.Context, copied []string) (owned []string, moved map[string]bool, err error) {
	if owned, err = f.cfg.Space.Names(ctx, f.cfg.Kind, copied); err != nil || f.cfg.Decl.Move == "" {
		return owned, nil, err
	}
	moved = map[string]bool{}
	var out []string
	for _, name := range owned {
		own, is, err := f.moveIn(ctx, f.cfg.Kind, name)
		if err != nil {
			return nil, nil, err
		}
		copied, has, err := f.moveIn(ctx, region.CopiesKind(f.cfg.Kind), region.CopyKey(f.cfg.Region, name))
		if err != nil {
			return nil, nil, err
		}
		if !is || !has || !own.Owns() || !copied.Owns() {
			continue
		}
		out = append(out, name)
		moved[name] = own.Step != "" || copied.Step != ""
	}
	return out, moved, nil
}

// moveIn returns the state of the move of a record, if there is one.
func (f *Follower) moveIn(ctx context.Context, kind, key string) (region.Move, bool, error) {
	rec, err := f.cfg.Space.Get(ctx, kind, key)
	if errors.Is(err, record.ErrNotFound) {
		return region.Move{}, false, nil
	}
	return f.cfg.Decl.MoveOf(rec.Doc), err == nil, err
}
