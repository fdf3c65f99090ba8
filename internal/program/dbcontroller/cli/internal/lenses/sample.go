package lenses

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/transform/lens/lint"
)

// sampleFlags select the records that a lens is tried on.
type sampleFlags struct {
	samples []string
	written []string // of the new version; only lint has them
	config  string
	random  bool
	limit   int
}

func (f *sampleFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.samples, "sample", nil, "records of the old version, `[KIND=]SOURCE`: a file of Extended JSON or BSON, also gzipped, or - for standard input; repeatable")
	fs.StringVar(&f.config, "config", "", "configuration `FILE` with the lenses of all kinds; records come from its older database, which is only read")
	fs.BoolVar(&f.random, "random", false, "with --config: read --limit random records instead of the first by _id")
	fs.IntVar(&f.limit, "limit", 0, "maximum number of records to read for each lens, with the records of further kinds that belong to them; 0: all")
}

// opened holds the open samples and their closers.
type opened struct {
	samples []lint.Sample
	written []lint.Sample
	closers []io.Closer
	parts   map[string]func(records int64) float64 // share of a kind's sample that was read, 0 to 1
}

func (o *opened) close() {
	for _, c := range slices.Backward(o.closers) {
		_ = c.Close() // only read
	}
}

// open opens the samples that the flags name. Samples are nil where the flags name none. The caller
// calls close, which open does itself on error.
func (f *sampleFlags) open(ctx context.Context, files []lint.File, cfg *config.Config, stdin io.Reader) (out *opened, err error) {
	out = &opened{parts: map[string]func(int64) float64{}}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	switch {
	case f.limit < 0:
		return out, exit.Usagef("--limit %d: give the number of records, or 0 for all", f.limit)
	case f.random && cfg == nil:
		return out, exit.Usagef("--random reads a collection: give --config FILE too")
	case f.random && f.limit == 0:
		return out, exit.Usagef("--random: give the number of records with --limit")
	case f.random && len(f.samples) > 0:
		return out, exit.Usagef("--random reads a collection, but --sample names a file: give only one of them")
	}
	// Both flags share standard input, so that only one sample can take it.
	once := &onceReader{Reader: stdin}
	if out.written, err = out.openFiles("--new-sample", f.written, newKinds(files), once); err != nil {
		return out, err
	}
	if len(f.samples) == 0 {
		if cfg == nil {
			return out, nil
		}
		return out, f.openCollections(ctx, out, *cfg, files)
	}
	out.samples, err = out.openFiles("--sample", f.samples, oldKinds(files), once)
	return out, err
}

// onceReader is standard input. Only one sample can read it.
type onceReader struct {
	io.Reader
	used bool
}

// openFiles opens the files that a flag names, one for each kind.
func (o *opened) openFiles(flag string, values, kinds []string, stdin *onceReader) (out []lint.Sample, err error) {
	seen := map[string]bool{}
	for _, s := range values {
		kind, name, err := kindAndSource(flag, s, kinds)
		if err != nil {
			return nil, err
		}
		// One source for a kind: two files would have to be merged in the order of their keys.
		if seen[kind] || name == "-" && stdin.used {
			return nil, exit.Usagef("%s %s: the kind %s, or standard input, is given twice", flag, s, kind)
		}
		seen[kind] = true
		stdin.used = stdin.used || name == "-"
		source, closer, err := openSource(name, stdin)
		if err != nil {
			return nil, err
		}
		o.closers = append(o.closers, closer)
		if f, ok := closer.(*os.File); ok && flag == "--sample" {
			o.parts[kind] = partOfFile(f)
		}
		out = append(out, lint.Sample{Kind: kind, Source: source})
	}
	return out, nil
}

func openSource(name string, stdin io.Reader) (lint.Source, io.Closer, error) {
	if name == "-" {
		s, err := lint.Open("standard input", stdin)
		return s, io.NopCloser(nil), err
	}
	file, err := os.Open(name) // #nosec G304 -- operators name the file
	if err != nil {
		if strings.Contains(name, "://") {
			return nil, nil, exit.Usagef("--sample reads files; for a collection give --config FILE, so that the command line has no secret")
		}
		return nil, nil, exit.Usagef("sample: %w", err)
	}
	s, err := lint.Open(name, file)
	if err != nil {
		_ = file.Close() // only read
		return nil, nil, err
	}
	return s, file, nil
}
