package deployment

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/syncer"
)

// Values that cannot be read hide no others: a reader of the state gets the rest, and one line for
// each key. A decision that needs all values of a sort, such as all servers, fails.

// corrupt is the error of a value that cannot be read.
func corrupt(key string, err error) error { return fmt.Errorf("%w: %s: %w", ErrCorrupt, key, err) }

// decodeAll reads the value of each key. bad has an error for each one that cannot be read.
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

// firstOf is an error for callers that cannot do without any of the values.
func firstOf(bad []error) error {
	if len(bad) == 0 {
		return nil
	}
	return bad[0]
}

// unreadableParked stands for a parked group whose entry cannot be read. It blocks the switch of
// its shard like any other: what it is about is unknown, and nobody can have waived it.
func unreadableParked(dir syncer.DirectionKey, prefix string, kv coord.KV, err error) syncer.Parked {
	rest := strings.TrimPrefix(kv.Key, prefix)
	shard, _, _ := strings.Cut(rest, "/")
	n, _ := strconv.Atoi(shard) // an odd key counts for the first shard: it blocks all the same
	return syncer.Parked{
		Direction: dir, Shard: n, Spec: syncer.UnreadableSpec, Group: base64.StdEncoding.EncodeToString([]byte(rest)),
		Error: fmt.Sprintf("%v: run 'verify --repair', and delete the key in etcd if it stays although 'verify' finds nothing", corrupt(kv.Key, err)),
	}
}
