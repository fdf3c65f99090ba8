package recordio

import (
	"errors"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Only tests of this package use these names.

var AppendIn = appendIn

func ChunkKeys[K ~string](keys []K) iter.Seq[[]K] { return chunkKeys(keys) }

const KeyBytesPerFind = keyBytesPerFind

const KeysPerFind = keysPerFind

var AppendBound = appendBound

var AppendScan = appendScan

// CombinedFailure returns the error that an answer to a bulkWrite reports, and the group to blame: -1
// is none, -2 no error. Each list is the groups of the statements for one collection.
func CombinedFailure(answer bson.Raw, owners ...[]int) (int, error) {
	var all []*statements
	for _, list := range owners {
		s := &statements{verb: "insert"}
		for _, owner := range list {
			s.add(owner, bson.RawValue{}, guardWrite{}, held{})
		}
		all = append(all, s)
	}
	err := combinedFailure(answer, all)
	var r *refusal
	switch {
	case err == nil:
		return -2, nil
	case errors.As(err, &r):
		return r.group, err
	default:
		return -1, err
	}
}
