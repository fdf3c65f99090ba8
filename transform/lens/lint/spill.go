package lint

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"
)

// partitions is the number of parts of a spill. Reading back needs one part at a time in memory.
const partitions = 128

// spill collects entries by key, and then returns the entries with equal keys together. It holds
// limit bytes in memory and the rest in temporary files.
type spill struct {
	limit, size int
	parts       [partitions]part
	dir         string // directory of the files; empty if all is in memory
}

type part struct {
	buf  []byte
	file *os.File
}

// flushSize is the size at which a part writes its buffer to its file.
const flushSize = 64 << 10

func (s *spill) add(key string, entry ...[]byte) error {
	// Entries of one key always go to the same part.
	p := &s.parts[xxhash.Sum64String(key)%partitions]
	before := len(p.buf)
	p.buf = appendSized(p.buf, []byte(key))
	n := 0
	for _, e := range entry {
		n += sizedLen(e)
	}
	// The length of all fields together, so that each can skip to the next entry.
	p.buf = binary.AppendUvarint(p.buf, uint64(n))
	for _, e := range entry {
		p.buf = appendSized(p.buf, e)
	}
	s.size += len(p.buf) - before
	switch {
	// From here on, every part has a file and flushes on its own.
	case s.dir == "" && s.size > s.limit:
		return s.toFiles()
	case s.dir != "" && len(p.buf) > flushSize:
		return p.flush()
	}
	return nil
}

func (s *spill) toFiles() (err error) {
	if s.dir, err = os.MkdirTemp("", "dbcontroller-lens-"); err != nil {
		return fmt.Errorf("keep the sample: %w", err)
	}
	for i := range s.parts {
		p := &s.parts[i]
		if p.file, err = os.CreateTemp(s.dir, "part"); err != nil {
			return fmt.Errorf("keep the sample: %w", err)
		}
		if err := p.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (p *part) flush() error {
	if _, err := p.file.Write(p.buf); err != nil {
		return fmt.Errorf("keep the sample: %w", err)
	}
	p.buf = nil
	return nil
}

// each calls f for all entries, part by part, and done at the end of each part. All entries of a
// key are in one part.
func (s *spill) each(f func(key string, entry [][]byte) error, done func() error) error {
	for i := range s.parts {
		p := &s.parts[i]
		rest := p.buf
		if p.file != nil {
			if _, err := p.file.Seek(0, io.SeekStart); err != nil {
				return fmt.Errorf("read the kept sample: %w", err)
			}
			// One part at a time: its size is about the whole divided by partitions.
			kept, err := io.ReadAll(bufio.NewReader(p.file))
			if err != nil {
				return fmt.Errorf("read the kept sample: %w", err)
			}
			// The buffer holds the entries that were not flushed.
			rest = append(kept, rest...)
		}
		p.buf = nil
		for len(rest) > 0 {
			var key, entry []byte
			if key, rest = sized(rest); rest == nil {
				return errTorn
			}
			if entry, rest = sized(rest); entry == nil {
				return errTorn
			}
			var fields [][]byte
			for len(entry) > 0 {
				var field []byte
				field, entry = sized(entry)
				fields = append(fields, field)
			}
			if err := f(string(key), fields); err != nil {
				return err
			}
		}
		if err := done(); err != nil {
			return err
		}
	}
	return nil
}

var errTorn = errors.New("read the kept sample: a temporary file was changed meanwhile")

// close removes the files.
func (s *spill) close() error {
	if s.dir == "" {
		return nil
	}
	for i := range s.parts {
		if f := s.parts[i].file; f != nil {
			_ = f.Close() // it is deleted next
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove the kept sample: %w", err)
	}
	return nil
}

func appendSized(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// sizedLen returns the number of bytes that appendSized adds.
func sizedLen(b []byte) int {
	n := len(b) + 1
	for x := len(b); x >= 1<<7; x >>= 7 {
		n++
	}
	return n
}

// sized reads a field that appendSized wrote. It returns nil if b is too short.
func sized(b []byte) (field, rest []byte) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return nil, nil
	}
	return b[k : k+int(n) : k+int(n)], b[k+int(n):]
}
