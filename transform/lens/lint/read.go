package lint

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Source provides the records of one kind, one at a time.
type Source interface {
	// Next returns the next document in its stored form (record.Stored), or io.EOF. The caller owns
	// the document.
	Next(ctx context.Context) (bson.Raw, error)
}

// maxRead limits a document of a sample: MongoDB's limit plus some room.
const maxRead = 16<<20 + 16<<10

// Open reads documents: objects in Extended JSON (relaxed or canonical), or BSON as mongodump
// writes it. Both may be compressed with gzip. Open recognizes the format by the first bytes. name
// appears in errors.
func Open(name string, r io.Reader) (Source, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	// The magic number of gzip.
	if head, err := buffered.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		zip, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		buffered = bufio.NewReaderSize(zip, 64<<10)
	}
	head, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// BSON starts with a length below 32 MiB, so its fourth byte is 0 or 1. JSON has no such byte.
	if len(head) == 4 && head[3] <= 1 {
		return &bsonSource{name: name, r: buffered}, nil
	}
	// Decoding an array would hold the whole sample in memory.
	if text := bytes.TrimLeft(head, " \t\r\n"); len(text) > 0 && text[0] == '[' {
		return nil, fmt.Errorf("%s: it is one JSON array; give one object for each record, as mongoexport writes without --jsonArray", name)
	}
	// An empty file is a JSON source without records.
	return &jsonSource{name: name, d: json.NewDecoder(buffered)}, nil
}

type jsonSource struct {
	name string
	d    *json.Decoder
	read int
}

func (s *jsonSource) Next(ctx context.Context) (bson.Raw, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.read++
	var text json.RawMessage
	if err := s.d.Decode(&text); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("%s: record %d: %w", s.name, s.read, err)
	}
	var doc bson.Raw
	if err := bson.UnmarshalExtJSON(text, false, &doc); err != nil {
		return nil, fmt.Errorf("%s: record %d is no object in Extended JSON: %w", s.name, s.read, err)
	}
	return record.Stored(doc), nil
}

type bsonSource struct {
	name string
	r    *bufio.Reader
	read int
}

func (s *bsonSource) Next(ctx context.Context) (bson.Raw, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.read++
	var head [4]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("%s: record %d: %w", s.name, s.read, err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	// Check the length before allocating: the file may be of another format.
	if n < 5 || n > maxRead {
		return nil, fmt.Errorf("%s: record %d is no BSON as mongodump writes it: its length would be %d", s.name, s.read, n)
	}
	doc := make(bson.Raw, n)
	copy(doc, head[:])
	if _, err := io.ReadFull(s.r, doc[4:]); err != nil {
		return nil, fmt.Errorf("%s: record %d: %w", s.name, s.read, err)
	}
	if err := doc.Validate(); err != nil {
		return nil, fmt.Errorf("%s: record %d is no BSON: %w", s.name, s.read, err)
	}
	return record.Stored(doc), nil
}
