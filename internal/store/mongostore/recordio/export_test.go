package recordio

import "iter"

// Only tests of this package use these names.

var AppendIn = appendIn

func ChunkKeys[K ~string](keys []K) iter.Seq[[]K] { return chunkKeys(keys) }

const KeyBytesPerFind = keyBytesPerFind

const KeysPerFind = keysPerFind

var AppendBound = appendBound

var AppendScan = appendScan
