package cli

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/config"
	"dbcontroller.dev/transform/lens/lint"
)

// sampleFlags say which records a lens is tried on.
type sampleFlags struct {
	samples []string
	config  string
	random  bool
	limit   int
}

func (f *sampleFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.samples, "sample", nil, "records of the old version, `[KIND=]SOURCE`: a file of Extended JSON or BSON, also gzipped, or - for standard input; repeatable")
	fs.StringVar(&f.config, "config", "", "configuration `FILE` whose kinds name the lenses, and whose older database has the records; it is only read")
	fs.BoolVar(&f.random, "random", false, "with --config: --limit records drawn at random, instead of the first by _id")
	fs.IntVar(&f.limit, "limit", 0, "records of each lens's own kind that are read at most, with those of further kinds that belong to them; 0: all")
}

// opened are the samples, and what has to be closed.
type opened struct {
	samples []lint.Sample
	closers []io.Closer
	parts   map[string]func(records int64) float64 // how much of a kind's is read, of 1
}

func (o *opened) close() {
	for _, c := range slices.Backward(o.closers) {
		_ = c.Close() // it was only read
	}
}

// open opens what the flags name, nil samples where they name nothing.
func (f *sampleFlags) open(ctx context.Context, files []lint.File, cfg *config.Config, stdin io.Reader) (out *opened, err error) {
	out = &opened{parts: map[string]func(int64) float64{}}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	switch {
	case f.limit < 0:
		return out, usage("--limit %d: give the number of records, or 0 for all", f.limit)
	case f.random && cfg == nil:
		return out, usage("--random draws from a collection: give --config FILE as well")
	case f.random && f.limit == 0:
		return out, usage("--random: say how many records with --limit")
	case f.random && len(f.samples) > 0:
		return out, usage("--random draws from a collection, and --sample names a file: give one of them")
	}
	kinds := oldKinds(files)
	if len(f.samples) == 0 {
		if cfg == nil {
			return out, nil
		}
		return out, f.openCollections(ctx, out, *cfg, files)
	}
	seen := map[string]bool{}
	for _, s := range f.samples {
		kind, name, err := kindAndSource("--sample", s, kinds)
		if err != nil {
			return out, err
		}
		if seen[kind] || name == "-" && seen["-"] {
			return out, usage("--sample %s: the kind %s, or standard input, is given twice", s, kind)
		}
		seen[kind] = true
		seen["-"] = seen["-"] || name == "-"
		source, closer, err := openSource(name, stdin)
		if err != nil {
			return out, err
		}
		out.closers = append(out.closers, closer)
		if f, ok := closer.(*os.File); ok {
			out.parts[kind] = partOfFile(f)
		}
		out.samples = append(out.samples, lint.Sample{Kind: kind, Source: source})
	}
	return out, nil
}

func openSource(name string, stdin io.Reader) (lint.Source, io.Closer, error) {
	if name == "-" {
		s, err := lint.Open("standard input", stdin)
		return s, io.NopCloser(nil), err
	}
	file, err := os.Open(name)
	if err != nil {
		if strings.Contains(name, "://") {
			return nil, nil, usage("--sample takes files; for a collection give --config FILE, so that no secret is on the command line")
		}
		return nil, nil, usage("sample: %w", err)
	}
	s, err := lint.Open(name, file)
	if err != nil {
		_ = file.Close() // it was only read
		return nil, nil, err
	}
	return s, file, nil
}
