package lenses

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/base/extjson"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/lint"
)

// diffOutput is the JSON output of lens diff. Its names are stable.
type diffOutput struct {
	*lint.Changes
	Records []diffRecord `json:"records"`
}

// diffRecord is one group before and after, and the difference of the two.
type diffRecord struct {
	Old  []shownRecord `json:"old"`
	New  []shownRecord `json:"new"`
	Diff string        `json:"diff"` // unified
}

func lensDiffCommand(options []lens.Option) *cobra.Command {
	var sample sampleFlags
	var show int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff [FILE]...",
		Short: "Show the effect of lenses on a sample",
		Long: "Show the effect of lenses on a sample: for each path whether it is moved, split, converted, added\n" +
			"or removed, in how many records, with the first one as an example. Then show the first records as\n" +
			"a unified diff.",
		Example: "  dbcontroller lens diff packages.yaml --sample packages.jsonl.gz --limit 1000",
		RunE: func(cmd *cobra.Command, args []string) error {
			if show < 0 {
				return exit.Usagef("--show %d: give the number of records, or 0 for none", show)
			}
			f := lensFiles{config: sample.config, options: options}
			files, cfg, errs := f.load(args)
			if len(errs) > 0 {
				return firstOf(errs)
			}
			o, err := sample.open(cmd.Context(), files, cfg, cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer o.close()
			if len(o.samples) == 0 {
				return exit.Usagef("no sample given: use --sample SOURCE, or --config FILE for the collections of its older version")
			}
			shown := terminal.NewProgress(cmd.ErrOrStderr())
			defer shown.End()
			o.showing(shown)
			changes, err := lint.Compare(cmd.Context(), subjectsOf(files), o.samples, show, lint.Options{Limit: sample.limit})
			if err != nil {
				return err
			}
			// End the progress line before the result is printed.
			shown.End()
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), differ(changes))
			} else {
				err = printChanges(cmd.OutOrStdout(), changes)
			}
			// The report comes first: it shows the records that did not fail.
			if err == nil && changes.Failed > 0 {
				err = exit.Finding("lens diff: " + fails(changes.Failed) + ": 'dbcontroller lens lint' shows why")
			}
			return err
		},
	}
	sample.register(cmd)
	cmd.Flags().IntVar(&show, "show", 3, "number of records to show as a unified diff")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func fails(n int64) string {
	if n == 1 {
		return "1 record fails"
	}
	return terminal.Count(n) + " records fail"
}

func differ(c *lint.Changes) diffOutput {
	out := diffOutput{Changes: c, Records: []diffRecord{}}
	for _, p := range c.Pairs {
		out.Records = append(out.Records, diffRecord{shown(p.Old), shown(p.New), lint.Unified(lined(p.Old), lined(p.New))})
	}
	return out
}

// lined writes records with one field a line, so that they can be compared by lines.
func lined(rs []record.Record) string {
	var b strings.Builder
	for _, r := range rs {
		fmt.Fprintf(&b, "%s %s\n", r.Kind, extjson.Doc(r.Doc, 0))
	}
	return b.String()
}

func printChanges(w io.Writer, c *lint.Changes) error {
	var b bytes.Buffer
	for _, s := range c.Sample {
		terminal.Printf(&b, "sample: %s of %s\n", plural(s.Records, "record"), s.Kind)
	}
	for _, s := range c.Made {
		terminal.Printf(&b, "made: %s of %s\n", plural(s.Records, "record"), s.Kind)
	}
	if len(c.Changes) > 0 {
		t := section(&b, "CHANGE\tFROM\tTO\tRECORDS\tEXAMPLE")
		for _, ch := range c.Changes {
			terminal.Printf(t, "%s\t%s\t%s\t%s\t%s\n", ch.Change, cmp.Or(ch.From, "-"), cmp.Or(ch.To, "-"), terminal.Count(ch.Records), exampleOf(ch))
		}
		terminal.Flush(t)
	} else {
		fmt.Fprintln(&b, "\nnothing changes")
	}
	for _, p := range c.Pairs {
		name := p.Old[0].Kind + " " + p.Old[0].Key.String()
		terminal.Printf(&b, "\n--- %s (old)\n+++ %s (new)\n", name, name)
		b.WriteString(cmp.Or(lint.Unified(lined(p.Old), lined(p.New)), "(the same)\n"))
	}
	return terminal.Write(w, b.Bytes())
}

// exampleOf returns one value before and after. A removed value has a reason instead of an after.
func exampleOf(ch lint.Change) string {
	e := ch.Example
	text := e.Name + ": " + strings.Trim(cmp.Or(e.From, "")+" -> "+cmp.Or(e.To, ""), " ")
	switch {
	case e.From == "":
		text = e.Name + ": " + e.To
	case e.To == "":
		text = e.Name + ": " + e.From
	}
	if ch.Fields > 0 {
		text += " (" + plural(ch.Fields, "field") + ")"
	}
	if ch.Reason != "" {
		text += " (" + ch.Reason + ")"
	}
	return text
}
