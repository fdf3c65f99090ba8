package recordio

import "iter"

// What tests of this package use, and nobody else.

var AppendIn = appendIn

func ChunkKeys[K ~string](keys []K) iter.Seq[[]K] { return chunkKeys(keys) }

const KeyBytesPerFind = keyBytesPerFind

const KeysPerFind = keysPerFind

var AppendBound = appendBound

var AppendScan = appendScan
