// Command makesample converts a Debian package index to the frozen sample of examples/packages:
//
//	makesample [-n 25000] -o packages.jsonl.gz < Packages
//
// The index is the plain text of an archive's "Packages" file. The output is compressed and has one
// record on each line, as relaxed MongoDB Extended JSON, in the order of package names. The same
// index always gives the same bytes: a hash of the names chooses the records, and nothing depends
// on the time.
//
// examples/packages/README.md describes the conversion of each field.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func main() {
	count := flag.Int("n", 25000, "records to take")
	output := flag.String("o", "", "`file` to write")
	flag.Parse()
	if *output == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: makesample [-n RECORDS] -o FILE < Packages")
		os.Exit(2)
	}
	if err := run(os.Stdin, *output, *count); err != nil {
		fmt.Fprintln(os.Stderr, "makesample:", err)
		os.Exit(1)
	}
}

func run(index io.Reader, output string, count int) error {
	stanzas, err := parseIndex(index)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	// BestCompression: the file is written once, and each clone of the repository downloads it.
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	for i, s := range choose(stanzas, count) {
		doc, err := convert(s, i)
		if err != nil {
			return fmt.Errorf("convert %s: %w", s.name(), err)
		}
		// Relaxed form without escapes of HTML: packages.transcode reads exactly this.
		line, err := bson.MarshalExtJSON(doc, false, false)
		if err != nil {
			return fmt.Errorf("encode %s: %w", s.name(), err)
		}
		if _, err := zip.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("compress: %w", err)
		}
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if err := os.WriteFile(output, out.Bytes(), 0o644); err != nil { // #nosec G306 -- source code, which others may read
		return fmt.Errorf("write sample: %w", err)
	}
	return nil
}

// choose returns the stanzas with the lowest hashes of their names, one for each name, sorted by
// name. A hash spreads the choice over all sections and maintainers.
func choose(all []stanza, count int) []stanza {
	slices.SortStableFunc(all, func(a, b stanza) int {
		return cmp.Or(cmp.Compare(hash(a.name()), hash(b.name())), cmp.Compare(a.name(), b.name()))
	})
	// An index may list several versions of a package; the first one stays.
	all = slices.CompactFunc(all, func(a, b stanza) bool { return a.name() == b.name() })
	chosen := all[:min(count, len(all))]
	slices.SortFunc(chosen, func(a, b stanza) int { return cmp.Compare(a.name(), b.name()) })
	return chosen
}

func hash(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint64(sum[:])
}
