// Package packages provides real data for tests, the demo and benchmarks: 25,000 frozen records of
// the Debian package index. They are as nested and irregular as the archive made them. README.md
// next to this file states their origin and the meaning of each field.
//
// The records come in the order of package names, always the same, so a test may refer to one by
// name. For most, the _id is the package's name. Three in a hundred deliberately have a
// sub-document or a 32- or 64-bit integer instead, since real collections mix types too.
//
// The package writes to no database. It holds the lens from v1 of the records to v2, but no lens
// that other folders apply to them. Begin to read at Load.
//
// It is not for users and may change with any version.
package packages

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Available is the number of real records.
const Available = 25000

//go:embed packages.jsonl.gz
var sample []byte

// maxLine limits one record of the sample; the largest has 120 KB.
const maxLine = 1 << 20

// Load returns the first limit records as BSON documents, with _id first. A limit of 0 means all
// Available ones. For a larger limit, Load repeats the same records under new names. In round k,
// from 1, a name gets the suffix "~k", in _id as well as in the field name. An integer _id grows by
// k<<34 and becomes a 64-bit one. No two records have equal names or equal _ids.
//
// Each call decodes the sample again, and the caller owns the documents. 25,000 records take about
// half a second.
func Load(limit int) ([]bson.Raw, error) {
	if limit < 0 {
		return nil, fmt.Errorf("load packages: limit is %d, must be 0 or more", limit)
	}
	if limit == 0 {
		limit = Available
	}
	docs, err := decode(min(limit, Available))
	if err != nil {
		return nil, fmt.Errorf("load packages: %w", err)
	}
	for i := Available; i < limit; i++ {
		raw, err := inRound(docs[i%Available], i/Available)
		if err != nil {
			return nil, fmt.Errorf("load packages: %w", err)
		}
		docs = append(docs, raw)
	}
	return docs, nil
}

// decode reads the first limit records of the sample.
func decode(limit int) ([]bson.Raw, error) {
	zip, err := gzip.NewReader(bytes.NewReader(sample))
	if err != nil {
		return nil, fmt.Errorf("open sample: %w", err)
	}
	defer zip.Close()
	lines := bufio.NewScanner(zip)
	// The scanner's default limit of 64 KB is below the largest record.
	lines.Buffer(make([]byte, 64<<10), maxLine)
	docs := make([]bson.Raw, 0, limit)
	for len(docs) < limit && lines.Scan() {
		d, err := transcode(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("decode record %d: %w", len(docs), err)
		}
		docs = append(docs, d)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read sample: %w", err)
	}
	// A short sample must not pass for a complete one.
	if len(docs) < limit {
		return nil, fmt.Errorf("read record %d: %w", len(docs), io.ErrUnexpectedEOF)
	}
	return docs, nil
}

// inRound returns a copy of a record with its name and _id of a round, from 1. It copies all other
// fields as bytes.
func inRound(raw bson.Raw, round int) (bson.Raw, error) {
	elements, err := raw.Elements()
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	suffix := "~" + strconv.Itoa(round)
	d := make(bson.D, len(elements))
	for i, e := range elements {
		d[i] = bson.E{Key: e.Key(), Value: e.Value()}
		switch e.Key() {
		case "_id":
			if d[i].Value, err = idInRound(e.Value(), round, suffix); err != nil {
				return nil, err
			}
		case "name":
			d[i].Value = e.Value().StringValue() + suffix
		}
	}
	renamed, err := bson.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return renamed, nil
}

func idInRound(id bson.RawValue, round int, suffix string) (any, error) {
	switch id.Type {
	case bson.TypeString:
		return id.StringValue() + suffix, nil
	case bson.TypeInt32, bson.TypeInt64:
		// The sample's ids stay below 1<<34, so the rounds never collide.
		return int64(round)<<34 + id.AsInt64(), nil
	case bson.TypeEmbeddedDocument:
		return inRound(id.Document(), round)
	}
	return nil, fmt.Errorf("rename record: _id has type %s, which the sample does not use", id.Type)
}

//go:embed packages.yaml
var lensText []byte

// Lens returns the text of the lens from version v1 of the records to v2: the file packages.yaml
// next to this one. The caller owns the slice.
func Lens() []byte { return slices.Clone(lensText) }
