package deployment

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// fewParked and manyParked bound the number of entries of one read. Reads begin small and grow while
// entries are small. No read crosses the end of a shard, so none has much more than MaxParkedBytes.
const (
	fewParked  = 16
	manyParked = 1024
	// smallParked is the size in bytes of a read after which the next one may be larger.
	smallParked = 64 << 10
)

// ErrOtherDirection means that a place in the list of parked groups is of a direction that is no longer
// synced. List again from the beginning.
var ErrOtherDirection = errors.New("the place is of another direction")

// ParkedPage returns the next parked groups of ParkedOf, from behind the place after, and their size in
// bytes. It reads until they have most bytes, and may exceed that by the entries of one shard. An empty
// place is the beginning. next is the place behind them, empty at the end. It fails with
// ErrOtherDirection.
func (s *Store) ParkedPage(ctx context.Context, d upgradestate.Deployment, after string, most int) (list []syncer.Parked, bytes int, next string, err error) {
	all := Directions(d)
	if len(all) == 0 && after == "" {
		return nil, 0, "", nil
	}
	// Directions returns at most one.
	if len(all) == 0 || after != "" && !strings.HasPrefix(after, url.PathEscape(string(all[0]))+"/") {
		return nil, 0, "", ErrOtherDirection
	}
	dir := all[0]
	root, prefix := s.key("parked", ""), s.parkedPrefix(dir)
	waived, _, err := s.coord.List(ctx, prefix+waivedKinds)
	if err != nil {
		return nil, 0, "", fmt.Errorf("list parked: %w", err)
	}
	if after != "" {
		after = root + after
	}
	limit := fewParked
	for shard := ""; ; {
		// A single entry shows which shard comes next.
		below, n := prefix, 1
		if shard != "" {
			below, n = shard, limit
		}
		kvs, err := s.coord.ListPage(ctx, below, after, n)
		if err != nil {
			return nil, 0, "", fmt.Errorf("list parked: %w", err)
		}
		if len(kvs) == 0 && shard == "" {
			return list, bytes, "", nil
		}
		size := 0
		for _, kv := range kvs {
			size, after = size+len(kv.Key)+len(kv.Value), kv.Key
		}
		// A waiver of a kind that is in the page as well counts once.
		list, bytes = append(list, decodeParked(dir, prefix, append(kvs[:len(kvs):len(kvs)], waived...))...), bytes+size
		if bytes >= most {
			return list, bytes, strings.TrimPrefix(after, root), nil
		}
		switch {
		case shard == "":
			if name, _, found := strings.Cut(strings.TrimPrefix(after, prefix), "/"); found {
				shard = prefix + name + "/"
			}
		case len(kvs) < n:
			shard = ""
		case size < smallParked:
			limit = min(2*limit, manyParked)
		}
	}
}
