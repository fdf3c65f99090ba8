package collections

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// chunkedDatabase is a database of a sharded cluster. It counts what it is asked for.
type chunkedDatabase struct {
	Database
	pinned   []string // kinds of the latest PinChunks
	unpinned int
	err      error
}

func (c *chunkedDatabase) PinChunks(_ context.Context, toks []record.Token) error {
	c.pinned = nil
	for _, tok := range toks {
		c.pinned = append(c.pinned, tok.Kind)
	}
	return c.err
}

func (c *chunkedDatabase) UnpinChunks(context.Context) error {
	c.unpinned++
	return c.err
}

// TestChunksArePinnedForASwitch: moves of chunks are stopped in both databases before a switch, and
// allowed again only when none is near, in the databases that answer.
func TestChunksArePinnedForASwitch(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t)
	ctx := t.Context()
	old, target := &chunkedDatabase{Database: w.db["v1"]}, &chunkedDatabase{Database: w.db["v2"]}
	w.at["v1"], w.at["v2"] = old, target
	d := w.ready(w.begin("u1"))
	w.check(w.keep.PinChunks(ctx, d))
	if len(old.pinned) == 0 || !slices.Equal(old.pinned, target.pinned) {
		t.Errorf("pinned: %v and %v", old.pinned, target.pinned)
	}
	counts := func(when string, want int) {
		t.Helper()
		if old.unpinned != want || target.unpinned != want {
			t.Errorf("%s: unpinned %d and %d times, want %d", when, old.unpinned, target.unpinned, want)
		}
	}
	w.check(w.keep.recheckExpiry(ctx))
	counts("all shards are ready", 0)
	w.abort("u1")
	lost := errors.New("no primary")
	old.err = lost
	if err := w.keep.recheckExpiry(ctx); !errors.Is(err, lost) || !strings.Contains(err.Error(), "allow moves of chunks in v1") {
		t.Errorf("with a database that does not answer: %v", err)
	}
	counts("after an abort", 1)
	d = w.ready(w.begin("u2"))
	if err := w.keep.PinChunks(ctx, d); !errors.Is(err, lost) || !strings.HasPrefix(err.Error(), "v1: ") {
		t.Errorf("pin where a move runs: %v", err)
	}
	_, err := w.store.Apply(ctx, upgradestate.StartSwitch{ID: "u2"})
	w.check(err)
	w.check(w.keep.recheckExpiry(ctx))
	counts("in a switch", 1)
}
