package memory

import (
	"bytes"
	"compress/gzip"
	"io"
	"sync"
)

var gzips = sync.Pool{New: func() any { return new(gzip.Reader) }}

// decompressed returns the number of bytes that data in gzip has when a reader decompresses it, or
// most if it has more. The reader refuses more.
//
// Without the measurement the size could only be guessed. The most that gzip can expand to is 1,032
// times its size, so a guess would refuse ordinary messages.
func decompressed(data []byte, most int64) int64 {
	z, _ := gzips.Get().(*gzip.Reader)
	defer gzips.Put(z)
	// What a reader has decompressed before an error is in its memory, too.
	if err := z.Reset(bytes.NewReader(data)); err != nil {
		return 0
	}
	n, _ := io.Copy(io.Discard, io.LimitReader(z, most))
	_ = z.Reset(bytes.NewReader(nil)) // the pool must not keep data
	return n
}
