package lenses

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/lint"
)

// lintOutput is the JSON output of lens lint. Its names are stable.
type lintOutput struct {
	Files    []lintedFile `json:"files"`
	Clean    bool         `json:"clean"`
	Problems []string     `json:"problems"`
	*lint.Report
}

// lintedFile is one lens file.
type lintedFile struct {
	File   string      `json:"file"`
	From   string      `json:"from,omitempty"`
	To     string      `json:"to,omitempty"`
	Errors []fileError `json:"errors,omitempty"`
	Notes  []fileError `json:"notes,omitempty"`
	// Rules are the constraints that writers of the new version must keep.
	Rules []string `json:"rules,omitempty"`
	// References are the references that a data update follows.
	References []followedField `json:"references,omitempty"`
}

// fileError is one error in a lens. Line and Column count from 1. Both are 0 for a file that cannot
// be read.
type fileError struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

func lensLintCommand(options []lens.Option) *cobra.Command {
	var sample sampleFlags
	var asJSON, indexes bool
	var references string
	cmd := &cobra.Command{
		Use:   "lint [FILE]...",
		Short: "Check lenses, also on real records",
		Long: "Check lens files and the references between them; errors have line and column. Report the fields\n" +
			"that are lost in each direction, and the rules that writers of the new version must keep.\n\n" +
			"With a sample (--sample, or --config for the collections of the older version), transform its\n" +
			"records to the new version and back, grouped as a controller groups them. Report broken laws, lost\n" +
			"values, failing records and their reasons, colliding keys, documents over 16 MiB, and the speed.\n" +
			"With --new-sample, transform records of new writers down and up again, to find the ones that break\n" +
			"a rule before the switch does.\n\n" +
			"Nothing is written, except with --indexes: it inserts the transformed records into scratch\n" +
			"collections of the new version's database, with the indexes and validators of its kinds, reports\n" +
			"all refused records, and drops these collections. Progress goes to standard error, the report to\n" +
			"standard output. The exit status is 1 if a lens is wrong, a law breaks, a record fails or is\n" +
			"refused, keys collide or a document is too large.",
		Example: "  dbcontroller lens lint packages.yaml --sample packages.jsonl.gz\n" +
			"  dbcontroller lens lint --config shop.yaml --random --limit 10000 --json",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if references != "" {
				if sample.config != "" || len(sample.samples)+len(sample.written) > 0 || indexes {
					return exit.Usagef("--references: lenses of data updates are checked without records: 'lens try --references' shows the effect on a record")
				}
				return lintFollowing(cmd.OutOrStdout(), args, references, options, asJSON)
			}
			f := lensFiles{config: sample.config, options: options}
			files, cfg, errs := f.load(args)
			if len(errs) > 0 {
				return wrongFiles(cmd.OutOrStdout(), errs, asJSON)
			}
			if indexes && cfg == nil {
				return exit.Usagef("--indexes uses the new version's database: give --config FILE too")
			}
			o, err := sample.open(cmd.Context(), files, cfg, cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer o.close()
			how := lint.Options{Limit: sample.limit, Written: o.written}
			if indexes {
				t, openErr := openTrial(cmd.Context(), *cfg, files)
				if openErr != nil {
					return fmt.Errorf("--indexes: %w", openErr)
				}
				// The trial's collections lie in a real database. A failed removal must be
				// reported.
				defer func() { err = errors.Join(err, t.close()) }()
				how.Judge = t
			}
			shown := terminal.NewProgress(cmd.ErrOrStderr())
			defer shown.End()
			o.showing(shown)
			report, err := lint.Run(cmd.Context(), subjectsOf(files), o.samples, how)
			if err != nil {
				return err
			}
			// End the progress line before the report is printed.
			shown.End()
			out := lintOutput{Problems: []string{}, Report: report}
			out.Problems = append(out.Problems, report.Problems()...)
			out.Clean = len(out.Problems) == 0
			for _, l := range files {
				file := lintedFile{File: l.Path, From: l.From, To: l.To, Rules: l.Lens.Rules()}
				for _, n := range l.Lens.Notes() {
					file.Notes = append(file.Notes, fileError{n.Line, n.Column, n.Message})
				}
				out.Files = append(out.Files, file)
			}
			if err := printLint(cmd.OutOrStdout(), out, asJSON); err != nil {
				return err
			}
			if !out.Clean {
				return exit.Finding("lens lint: " + strings.Join(out.Problems, "; "))
			}
			return nil
		},
	}
	sample.register(cmd)
	cmd.Flags().StringArrayVar(&sample.written, "new-sample", nil, "records of writers of the new version, `[KIND=]SOURCE` as in --sample; repeatable")
	cmd.Flags().BoolVar(&indexes, "indexes", false, "with --config: insert the records into scratch collections of the new version's database, with its indexes, and report refusals")
	cmd.Flags().StringVar(&references, "references", "", "check FILE "+referencesFlag)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// wrongFiles prints the errors in lenses. If none has a position in a lens file, it returns the
// first error as is.
func wrongFiles(w io.Writer, errs []error, asJSON bool) error {
	var at *lens.ParseError
	if !slices.ContainsFunc(errs, func(err error) bool { return errors.As(err, &at) }) {
		return firstOf(errs)
	}
	out := lintOutput{Problems: []string{}}
	var text strings.Builder
	for _, err := range errs {
		found := fileError{Message: err.Error()}
		file := ""
		var unread *fs.PathError
		switch {
		case errors.As(err, &at):
			file, found = at.File, fileError{at.Line, at.Column, at.Message}
		case errors.As(err, &unread):
			file = unread.Path
		}
		// Errors of one file follow each other, so compare with the last file only.
		if n := len(out.Files); n == 0 || out.Files[n-1].File != file {
			out.Files = append(out.Files, lintedFile{File: file})
		}
		// Errors without a position belong to no file, and share an entry with an empty name.
		last := &out.Files[len(out.Files)-1]
		last.Errors = append(last.Errors, found)
		fmt.Fprintln(&text, err)
	}
	problem := "1 error"
	if len(errs) > 1 {
		problem = fmt.Sprintf("%d errors", len(errs))
	}
	problem += " in " + out.Files[0].File
	if len(out.Files) > 1 {
		problem += fmt.Sprintf(" and %d more", len(out.Files)-1)
	}
	out.Problems = append(out.Problems, problem)
	var err error
	if asJSON {
		err = writeJSON(w, out)
	} else {
		err = terminal.Write(w, []byte(text.String()))
	}
	if err != nil {
		return err
	}
	return exit.Finding("lens lint: " + problem)
}

// writeJSON prints a value as indented JSON. It does not escape characters for HTML.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode JSON: %w", err)
	}
	return terminal.Write(w, b.Bytes())
}

func printLint(w io.Writer, out lintOutput, asJSON bool) error {
	if asJSON {
		return writeJSON(w, out)
	}
	var b bytes.Buffer
	for _, f := range out.Files {
		terminal.Printf(&b, "%s: %s to %s, no errors\n", f.File, f.From, f.To)
		for _, n := range f.Notes {
			terminal.Printf(&b, "%s:%d:%d: note: %s\n", f.File, n.Line, n.Column, n.Message)
		}
		for _, rule := range f.Rules {
			terminal.Printf(&b, "%s: writers of the new version: %s\n", f.File, rule)
		}
	}
	r := out.Report
	sampled := len(r.Sample)+len(r.Written) > 0
	// Without records there is nothing to say about laws, sizes or speed.
	if sampled {
		lintSample(&b, r)
		lintLaws(&b, r)
	}
	lintLosses(&b, r)
	lintFindings(&b, r)
	if sampled {
		lintSize(&b, r)
		terminal.Printf(&b, "\nup %s records a second, down %s records a second\n", terminal.Count(int64(r.Rate.Up)), terminal.Count(int64(r.Rate.Down)))
	}
	return terminal.Write(w, b.Bytes())
}

func lintSample(b *bytes.Buffer, r *lint.Report) {
	for _, s := range r.Sample {
		terminal.Printf(b, "sample: %s of %s\n", plural(s.Records, "record"), s.Kind)
	}
	for _, s := range r.Written {
		terminal.Printf(b, "sample of the new version: %s of %s\n", plural(s.Records, "record"), s.Kind)
	}
	if len(r.Sample)+len(r.Written) > 1 {
		terminal.Printf(b, "groups: %s\n", terminal.Count(r.Groups))
	}
}

func lintLaws(b *bytes.Buffer, r *lint.Report) {
	t := section(b, "LAW\tTRIED\tBROKEN\tMEANING")
	for _, l := range r.Laws {
		terminal.Printf(t, "%s\t%s\t%s\t%s\n", l.Name, terminal.Count(l.Tried), none(l.Broken), l.Says)
	}
	terminal.Flush(t)
	for _, l := range r.Laws {
		for _, e := range l.Examples {
			terminal.Printf(b, "%s is broken by %s: %s\n", l.Name, e.Name, e.Detail)
		}
	}
}

func lintLosses(b *bytes.Buffer, r *lint.Report) {
	if len(r.Losses) == 0 {
		fmt.Fprintln(b, "\nevery field survives both directions")
		return
	}
	t := section(b, "LOST\tKIND\tFIELD\tBY\tRECORDS")
	for _, l := range r.Losses {
		seen := "-"
		if len(r.Sample)+len(r.Written) > 0 {
			seen = terminal.Count(l.Records)
		}
		terminal.Printf(t, "%s\t%s\t%s\t%s\t%s\n", l.Direction, l.Kind, l.Field, cmp.Or(l.Operation, "no operation: a law is broken"), seen)
	}
	terminal.Flush(t)
	fmt.Fprintln(b, "a round trip keeps the lost values in the record of the other side, while that record exists")
}

func lintFindings(b *bytes.Buffer, r *lint.Report) {
	if len(r.Failures) > 0 {
		t := section(b, "FAIL\tWAY\tOPERATION\tFIELD\tREASON")
		for _, f := range r.Failures {
			terminal.Printf(t, "%s\t%s\t%s\t%s\t%s\n", terminal.Count(f.Groups), f.Direction, cmp.Or(f.Operation, "-"), cmp.Or(f.Field, "-"), f.Reason)
		}
		terminal.Flush(t)
		for _, f := range r.Failures {
			for _, e := range f.Examples {
				terminal.Printf(b, "%s: %s\n", e.Name, e.Detail)
			}
		}
	}
	for _, f := range r.Refused {
		terminal.Printf(b, "\n%s of %s refused: %s\n", plural(f.Records, "record"), f.Kind, f.Reason)
		for names := range slices.Chunk(f.Names, 10) {
			terminal.Printf(b, "  %s\n", strings.Join(names, ", "))
		}
	}
	if c := r.Collisions; c.Keys > 0 {
		terminal.Printf(b, "\n%s made of more than one record:\n", plural(c.Keys, "key"))
		for _, e := range c.Examples {
			// The same source twice is a fault of the sample and not of the lens.
			if e.Sources[0] == e.Sources[1] {
				terminal.Printf(b, "%s of %s: %s is in the sample more than once\n", e.Key, e.Kind, e.Sources[0])
				continue
			}
			terminal.Printf(b, "%s of %s: %s\n", e.Key, e.Kind, strings.Join(e.Sources, ", "))
		}
	}
}

func lintSize(b *bytes.Buffer, r *lint.Report) {
	s := r.Size
	b.WriteByte('\n')
	if s.Over > 0 {
		terminal.Printf(b, "%s over %s bytes: %s\n", plural(s.Over, "document"), terminal.Count(int64(s.Limit)), strings.Join(s.Names, ", "))
	}
	if l := s.Largest; l != nil {
		terminal.Printf(b, "largest document: %s bytes, %s of %s (%s)\n", terminal.Count(int64(l.Bytes)), l.Name, l.Kind, l.Direction)
	}
}

// section starts a table after an empty line.
func section(b *bytes.Buffer, head string) *tabwriter.Writer {
	b.WriteByte('\n')
	return terminal.Table(b, head)
}

func none(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return terminal.Count(n) + " " + noun + "s"
}
