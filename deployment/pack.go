package deployment

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// A record of many kinds is one value that every report and every step writes again. From
// packFrom bytes on it is stored as gzip, which names that resemble each other make a tenth
// of: 1,000 kinds in two versions in the middle of a switch stay far below what etcd takes
// in one request. Smaller ones stay text that people can read.
const packFrom = 64 << 10

// maxRecord bounds what a packed record may come to, against a value that is not ours.
const maxRecord = 64 << 20

// gzipMagic begins what is packed; JSON begins otherwise.
var gzipMagic = []byte{0x1f, 0x8b}

// packRecord is a record as it is stored.
func packRecord(value []byte) []byte {
	if len(value) < packFrom {
		return value
	}
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // fails for a wrong level only
	_, _ = w.Write(value)                           // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

// unpackRecord is the inverse of packRecord.
func unpackRecord(value []byte) ([]byte, error) {
	if !bytes.HasPrefix(value, gzipMagic) {
		return value, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(r, maxRecord+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpack: %w", err)
	case len(out) > maxRecord:
		return nil, fmt.Errorf("unpack: more than %d bytes", maxRecord)
	}
	return out, nil
}
