// Package lenses has the commands for authors of lenses: lint, try, diff, init and schema.
package lenses

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/lint"
)

// Commands returns the commands that check and try lenses. options configure the lens parser,
// for programs that register hooks.
func Commands(options ...lens.Option) []*cobra.Command {
	return []*cobra.Command{lensLintCommand(options), lensTryCommand(options), lensDiffCommand(options), lensInitCommand(), lensSchemaCommand()}
}

func lensSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the lens format",
		Long: "Print the JSON Schema of the lens format. Editors with a YAML language server use it in files that\n" +
			"start with '# yaml-language-server: $schema=lens.schema.json'.",
		Example: "  dbcontroller lens schema > lens.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return terminal.Write(cmd.OutOrStdout(), lens.Schema())
		},
	}
}

// lensFiles selects the lenses of a command.
type lensFiles struct {
	config  string
	options []lens.Option
}

// load reads the named lenses, or those of the configuration. chosen holds the lenses to work on.
// All lenses of the pair of versions are linked, since references cross files.
func (f *lensFiles) load(paths []string) (chosen []lint.File, cfg *config.Config, errs []error) {
	if f.config == "" {
		if len(paths) == 0 {
			return nil, nil, []error{exit.Usagef("no lens given: give FILE, or --config FILE for the lenses of its kinds")}
		}
		var inputs []lint.Input
		for _, p := range paths {
			inputs = append(inputs, lint.Input{Path: p})
		}
		files, errs := lint.Load(inputs, nil, f.options...)
		return files, nil, errs
	}
	read, err := config.Load(f.config, nil)
	if err != nil {
		return nil, nil, []error{err}
	}
	read.Kinds = ofOnePair(read.Kinds, paths)
	var inputs []lint.Input
	var discontinued []string
	for _, k := range read.Kinds {
		// Only kinds with a lens can be checked. Discontinued ones still count as targets of
		// references.
		if k.Lens == "" && !k.Discontinued {
			continue // copied unchanged
		}
		if k.Discontinued {
			discontinued = append(discontinued, k.From)
			continue
		}
		inputs = append(inputs, lint.Input{Path: k.Lens, From: k.From, To: k.To})
	}
	if len(inputs) == 0 {
		return nil, nil, []error{exit.Usagef("%s: it has no kinds with a lens: give a lens, and its records with --sample", f.config)}
	}
	files, errs := lint.Load(inputs, discontinued, f.options...)
	if len(errs) > 0 || len(paths) == 0 {
		return files, &read, errs
	}
	for _, p := range paths {
		i := slices.IndexFunc(files, func(l lint.File) bool { return sameFile(l.Path, p) })
		if i < 0 {
			return nil, nil, []error{exit.Usagef("%s: no entry of its kinds has the lens %s", f.config, p)}
		}
		chosen = append(chosen, files[i])
	}
	return chosen, &read, nil
}

// ofOnePair keeps the kinds of one pair of versions: the pair of the first named lens, or of the
// first entry. Lenses of different pairs are not linked.
func ofOnePair(kinds []config.Kind, paths []string) []config.Kind {
	if len(kinds) == 0 {
		return nil
	}
	older := kinds[0].Older
	if len(paths) > 0 {
		if i := slices.IndexFunc(kinds, func(k config.Kind) bool { return sameFile(k.Lens, paths[0]) }); i >= 0 {
			older = kinds[i].Older
		}
	}
	return slices.DeleteFunc(kinds, func(k config.Kind) bool { return k.Older != older })
}

func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// firstOf returns the first error with the number of further ones, for commands that print one
// error.
func firstOf(errs []error) error {
	if len(errs) > 1 {
		return fmt.Errorf("%w (and %d more; 'dbcontroller lens lint' lists them)", errs[0], len(errs)-1)
	}
	return errs[0]
}

func subjectsOf(files []lint.File) []lint.Subject {
	var out []lint.Subject
	for _, f := range files {
		out = append(out, f.Subject())
	}
	return out
}

// oldKinds returns the old version's kinds, each file's own record kind first.
func oldKinds(files []lint.File) []string {
	var out []string
	for _, s := range subjectsOf(files) {
		for _, k := range s.Spec.Old.Kinds {
			out = append(out, k.Name)
		}
	}
	return out
}

// newKinds returns the new version's kinds, in the same order.
func newKinds(files []lint.File) []string {
	var out []string
	for _, s := range subjectsOf(files) {
		for _, k := range s.Spec.New.Kinds {
			out = append(out, k.Name)
		}
	}
	return out
}

// kindAndSource splits KIND=SOURCE. KIND is optional if there is only one kind.
func kindAndSource(flag, value string, kinds []string) (kind, source string, err error) {
	if before, after, ok := strings.Cut(value, "="); ok && slices.Contains(kinds, before) {
		return before, after, nil
	}
	if len(kinds) == 1 {
		return kinds[0], value, nil
	}
	return "", "", exit.Usagef("%s %s: give the kind, as KIND=%s; the kinds are: %s", flag, value, value, strings.Join(kinds, ", "))
}
