package deployment

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/syncer"
)

// Unreadable values do not hide the readable ones. A reader of the state gets the rest, and one
// line for each unreadable key. A decision that needs all values of a sort, such as all servers,
// fails.

// corrupt returns the error of an unreadable value.
func corrupt(key string, err error) error { return fmt.Errorf("%w: %s: %w", ErrCorrupt, key, err) }

// decodeAll decodes the values of keys. bad has an error for each unreadable one.
func decodeAll[T any](kvs []coord.KV) (all []T, bad []error) {
	all = make([]T, 0, len(kvs))
	for _, kv := range kvs {
		var v T
		if err := json.Unmarshal(kv.Value, &v); err != nil {
			bad = append(bad, corrupt(kv.Key, err))
			continue
		}
		all = append(all, v)
	}
	return all, bad
}

// firstOf returns the first error, for callers that need all values.
func firstOf(bad []error) error {
	if len(bad) == 0 {
		return nil
	}
	return bad[0]
}

// unreadableParked represents a parked group with an unreadable entry. It blocks the switch of its
// shard like any other, because its record is unknown and nobody can have waived it.
func unreadableParked(dir syncer.DirectionKey, prefix string, kv coord.KV, err error) syncer.Parked {
	rest := strings.TrimPrefix(kv.Key, prefix)
	shard, _, _ := strings.Cut(rest, "/")
	n, _ := strconv.Atoi(shard) // an odd key counts for shard 0, and still blocks
	return syncer.Parked{
		Direction: dir, Shard: n, Spec: syncer.UnreadableSpec, Group: base64.StdEncoding.EncodeToString([]byte(rest)),
		Error: fmt.Sprintf("%v: run 'verify --repair', and delete the key in etcd if it stays although 'verify' finds nothing", corrupt(kv.Key, err)),
	}
}
