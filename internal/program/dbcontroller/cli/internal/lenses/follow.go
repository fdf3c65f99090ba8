package lenses

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/base/extjson"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/lint"
)

// followedField is a reference that a data update follows, as JSON output has it.
type followedField struct {
	Field    string `json:"field"`
	Kind     string `json:"kind"`
	Service  string `json:"service"`
	LookedUp bool   `json:"lookedUp"` // controllers query the other service's databases for the key
}

const referencesFlag = "as a data update with references: `KEYS`, new, old or both, which follows another service's keys"

// following parses a lens for a data update and the kind that it changes.
func following(path, keys string, options []lens.Option) (*lens.Following, string, error) {
	if !slices.Contains(transform.AllKeys, transform.Keys(keys)) {
		return nil, "", exit.Usagef("--references %s: give new, old or both", keys)
	}
	text, err := os.ReadFile(path) // #nosec G304 -- operators name the file
	if err != nil {
		return nil, "", err
	}
	l, err := lens.Parse(path, text, options...)
	if err != nil {
		return nil, "", err
	}
	if !l.HasReferences() {
		return nil, "", exit.Usagef("%s: it has no references", path)
	}
	kind := lint.KindOf(path, l)
	f, err := l.Follow(kind, transform.Keys(keys))
	return f, kind, err
}

// lintFollowing checks lenses of data updates. It reads no records.
func lintFollowing(w io.Writer, paths []string, keys string, options []lens.Option, asJSON bool) error {
	if len(paths) == 0 {
		return exit.Usagef("no lens given: give FILE with --references")
	}
	out := lintOutput{Clean: true, Problems: []string{}}
	var text bytes.Buffer
	var errs []error
	for _, path := range paths {
		f, kind, err := following(path, keys, options)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		file := lintedFile{File: path, From: kind, To: kind}
		fmt.Fprintf(&text, "%s: a data update of %s, no errors\n", path, kind)
		t := terminal.Table(&text, "REFERENCE\tHOLDS KEYS OF\tTHE OTHER KEY")
		for _, i := range f.Imports {
			how := "follows from the key"
			if i.Asks {
				how = "is looked up: give the databases of " + i.Service + " in imports of the configuration"
			}
			fmt.Fprintf(t, "%s\t%s of %s\t%s\n", i.Field, i.Kind, i.Service, how)
			file.References = append(file.References, followedField{i.Field, i.Kind, i.Service, i.Asks})
		}
		terminal.Flush(t)
		out.Files = append(out.Files, file)
	}
	switch {
	case len(errs) > 0:
		return wrongFiles(w, errs, asJSON)
	case asJSON:
		return writeJSON(w, out)
	}
	return terminal.Write(w, text.Bytes())
}

// tryFollowing prints the record that a data update makes of the one on standard input.
func tryFollowing(cmd *cobra.Command, path, keys string, options []lens.Option) error {
	f, kind, err := following(path, keys, options)
	if err != nil {
		return err
	}
	source, _, err := openSource("-", cmd.InOrStdin())
	if err != nil {
		return err
	}
	in, err := recordsOf(cmd, "standard input", kind, source)
	switch {
	case err != nil:
		return err
	case len(in) != 1:
		return exit.Usagef("standard input has %s: lens try reads one record of %s there", plural(int64(len(in)), "record"), kind)
	}
	// A lookup needs the other service's databases, which this command does not open. Refuse rather
	// than print a half-changed record.
	asked, err := f.Questions(in[0].Doc)
	if err == nil && len(asked) > 0 {
		q := asked[0]
		err = fmt.Errorf("%s of %s: only a controller looks up the other key of %s, in the databases of %s", strings.Join(slices.Compact([]string{q.Old, q.New}), ", "), q.Service, q.Key, q.Service)
	}
	if err == nil {
		in[0].Doc, err = f.Change(in[0].Doc, nil)
	}
	if err != nil {
		return exit.Finding("lens try: " + lint.Reason(err))
	}
	return terminal.Write(cmd.OutOrStdout(), fmt.Appendf(nil, "%-5s %s %s\n", keys, kind, extjson.Doc(in[0].Doc, lineWidth)))
}
