package copies

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// bothMost bounds the names that a report counts.
const bothMost = 1000

// noteBoth counts the names that this region owns as well. Such a name was created in two regions at
// once, or is about to move. Reads show the owned record. Names with an equal copy count like those
// that were written: this process may be new.
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
	owned, err := f.cfg.Space.Names(ctx, f.cfg.Kind, copied)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// A name that is here only, or there only, is fine.
	for _, name := range order {
		if !slices.Contains(owned, name) {
			delete(f.both, name)
		}
	}
	for _, name := range owned {
		if !f.both[name] && len(f.both) < bothMost {
			f.both[name] = true
			f.cfg.Log.Error("a record is owned here and in another region", slog.String("kind", f.cfg.Kind), slog.String("region", f.cfg.Region), slog.String("record", strings.ToValidUTF8(name, "?")))
		}
	}
	return nil
}

// recheckBoth forgets the names that this region does not own any more.
func (f *Follower) recheckBoth(ctx context.Context) error {
	f.mu.Lock()
	names := slices.Sorted(maps.Keys(f.both))
	f.mu.Unlock()
	for some := range slices.Chunk(names, batchMost) {
		owned, err := f.cfg.Space.Names(ctx, f.cfg.Kind, some)
		if err != nil {
			return err
		}
		f.mu.Lock()
		for _, name := range some {
			if !slices.Contains(owned, name) {
				delete(f.both, name)
			}
		}
		f.mu.Unlock()
	}
	return nil
}
