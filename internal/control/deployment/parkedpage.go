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

// fewParked and manyParked bound the number of entries of one read. Reads begin small, because an entry
// may have up to MaxParkedBytes, and grow while entries are small.
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
// bytes. It reads until they have most bytes. An empty place is the beginning. next is the place behind
// them, empty at the end. It fails with ErrOtherDirection.
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
	for limit := fewParked; ; {
		kvs, err := s.coord.ListPage(ctx, prefix, after, limit)
		if err != nil {
			return nil, 0, "", fmt.Errorf("list parked: %w", err)
		}
		size := 0
		for _, kv := range kvs {
			size += len(kv.Key) + len(kv.Value)
		}
		// A waiver of a kind that is in the page as well counts once.
		list, bytes = append(list, decodeParked(dir, prefix, append(kvs[:len(kvs):len(kvs)], waived...))...), bytes+size
		if len(kvs) < limit {
			return list, bytes, "", nil
		}
		after = kvs[len(kvs)-1].Key
		if bytes >= most {
			return list, bytes, strings.TrimPrefix(after, root), nil
		}
		if size < smallParked {
			limit = min(2*limit, manyParked)
		}
	}
}
