package deployment

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"dbcontroller.dev/internal/coord"
)

// put changes the value of a key by compare-and-swap. A late put therefore cannot overwrite a newer
// value. old is nil if the key is absent.
//
// The last value that this process has put needs no read before the next one: while a switch holds
// writes, each server and client that acknowledges costs one trip to the store less.
func (s *Store) put(ctx context.Context, key string, lease coord.LeaseID, change func(old []byte) ([]byte, error)) error {
	var unknown []byte // value of a commit with unknown outcome
	wait := newBackOff()
	kv, known := s.puts.get(key)
	for {
		condition := coord.Condition{Key: key, Revision: kv.Mod, Value: kv.Value}
		if !known {
			var err error
			if kv, err = s.coord.Get(ctx, key); err != nil && !errors.Is(err, coord.ErrNotFound) {
				return err
			}
			condition = coord.Condition{Key: key, Revision: kv.Mod}
		}
		// The commit with the unknown outcome has happened.
		if unknown != nil && kv.Mod > 0 && bytes.Equal(kv.Value, unknown) && (lease == keepLease || kv.Lease == lease) {
			return nil
		}
		// The new value may depend on the old one, so compute it again after each conflict.
		value, err := change(kv.Value)
		if err != nil && known {
			known = false
			continue // only the stored value may be refused
		}
		if err != nil {
			return err
		}
		id := lease
		if id == keepLease {
			id = kv.Lease
		}
		rev, err := s.coord.Commit(ctx, []coord.Condition{condition}, []coord.Op{{Key: key, Value: value, Lease: id}})
		if err == nil {
			s.puts.set(coord.KV{Key: key, Value: value, Mod: rev, Lease: id})
			return nil
		}
		s.puts.forget(key)
		if !again(err) {
			return err
		}
		unknown = nil
		if errors.Is(err, coord.ErrUnknown) {
			unknown = value
		}
		if known && errors.Is(err, coord.ErrConflict) {
			known = false
			continue // the known value was outdated: no reason to wait
		}
		known = false
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// keepLease makes put keep the current lease of the key.
const keepLease coord.LeaseID = -1

// maxPuts bounds the number of remembered values, and maxPutBytes the size of each.
const maxPuts, maxPutBytes = 4096, 4 << 10

// puts are the values that this process has put last, by key. They may be outdated. The zero value is
// empty.
type puts struct {
	mu  sync.Mutex
	all map[string]coord.KV
}

func (p *puts) get(key string) (coord.KV, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kv, ok := p.all[key]
	return kv, ok
}

func (p *puts) set(kv coord.KV) {
	if len(kv.Value) > maxPutBytes {
		p.forget(kv.Key)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Keys of clients come and go, and none is missed: put reads what it does not know.
	if p.all == nil || len(p.all) >= maxPuts {
		p.all = map[string]coord.KV{}
	}
	p.all[kv.Key] = kv
}

func (p *puts) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, key)
}
