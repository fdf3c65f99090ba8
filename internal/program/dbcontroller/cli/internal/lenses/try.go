package lenses

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/base/extjson"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/lint"
)

// lineWidth is the maximum length of a record that is printed on one line.
const lineWidth = 100

// shownRecord is a record in JSON output.
type shownRecord struct {
	Kind string          `json:"kind"`
	Doc  json.RawMessage `json:"doc"`
}

// tryOutput is the JSON output of lens try. Its names are stable.
type tryOutput struct {
	In          []shownRecord     `json:"in"`
	Up          []shownRecord     `json:"up"`
	Down        []shownRecord     `json:"down"`
	Same        bool              `json:"same"`  // equal to In, apart from the order of fields
	Exact       bool              `json:"exact"` // equal to In byte by byte
	Differences []shownDifference `json:"differences"`
	Error       *tryError         `json:"error,omitempty"`
}

// shownDifference is one path with different values before and after the round trip. Was or Is is
// absent if the field does not exist there.
type shownDifference struct {
	Kind string          `json:"kind"`
	Path string          `json:"path"`
	Was  json.RawMessage `json:"was,omitempty"`
	Is   json.RawMessage `json:"is,omitempty"`
}

type tryError struct {
	Direction string `json:"direction"`
	Reason    string `json:"reason"`
}

func lensTryCommand(options []lens.Option) *cobra.Command {
	var have, with []string
	var over, back, asJSON bool
	var references string
	cmd := &cobra.Command{
		Use:   "try FILE [OTHER]... < RECORD",
		Short: "Transform one record to the new version and back",
		Long: "Read one record (Extended JSON or BSON) from standard input, transform it to the new version and\n" +
			"back, and show each step and the differences. OTHER are the lenses that references of FILE use.\n" +
			"With --down the record is one of the new version; it goes to the old one and back, as in a\n" +
			"rollback. --have is then of the old version, and --with of the new one. Longs are printed as\n" +
			"{\"$numberLong\":\"5\"} if they could be mistaken for ints. The exit status is 1 if the record fails.\n" +
			"A difference is no failure: fields that exist in one version only cause some.",
		Example: "  echo '{\"_id\": \"a\", \"section\": \"games\"}' | dbcontroller lens try packages.yaml\n" +
			"  dbcontroller lens try orders.yaml --with ratings=ratings.json --have held.json < order.json\n" +
			"  echo '{\"_id\": \"a\", \"category\": \"games\"}' | dbcontroller lens try --down packages.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("no lens given: dbcontroller lens try FILE < RECORD")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if references != "" {
				// A data update has one direction and one record, so the other flags have no
				// meaning.
				if len(args) > 1 || len(have)+len(with) > 0 || over || back || asJSON {
					return exit.Usagef("--references: a data update changes one record in place: give only FILE")
				}
				return tryFollowing(cmd, args[0], references, options)
			}
			f := lensFiles{options: options}
			files, _, errs := f.load(args)
			if len(errs) > 0 {
				return firstOf(errs)
			}
			subject := files[0].Subject()
			var oldNames, newNames []string
			for _, k := range subject.Spec.Old.Kinds {
				oldNames = append(oldNames, k.Name)
			}
			for _, k := range subject.Spec.New.Kinds {
				newNames = append(newNames, k.Name)
			}
			// With --down the roles of the two versions are swapped, also for --have and --with.
			try := lint.Try
			if back {
				try, oldNames, newNames = lint.TryDown, newNames, oldNames
			}
			source, _, err := openSource("-", cmd.InOrStdin())
			if err != nil {
				return err
			}
			in, err := recordsOf(cmd, "standard input", oldNames[0], source)
			switch {
			case err != nil:
				return err
			case len(in) != 1:
				return exit.Usagef("standard input has %s: lens try reads one record of %s there; give records of further kinds with --with", plural(int64(len(in)), "record"), oldNames[0])
			}
			// Records of --with join the group; those of --have are the other version's present
			// state.
			more, err := recordsFrom(cmd, "--with", with, oldNames, true)
			if err != nil {
				return err
			}
			held, err := recordsFrom(cmd, "--have", have, newNames, false)
			if err != nil {
				return err
			}
			t, err := try(subjectsOf(files), append(in, more...), held, over)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), tried(t))
			} else {
				err = printTrial(cmd.OutOrStdout(), t)
			}
			// Print the steps up to the failure before reporting it: they show where it failed.
			if err == nil && t.Err != nil {
				err = exit.Finding("lens try: " + t.Direction + ": " + lint.Reason(t.Err))
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&have, "have", nil, "the record's state in the other version, `[KIND=]FILE`; repeatable")
	fs.StringArrayVar(&with, "with", nil, "further records of its group, `KIND=FILE`; repeatable")
	fs.BoolVar(&back, "down", false, "transform a record of the new version to the old one and back")
	fs.BoolVar(&over, "over", false, "go back over the existing record, as controllers do while its version has it")
	fs.StringVar(&references, "references", "", "change the record "+referencesFlag)
	fs.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// recordsOf reads all records of one source.
func recordsOf(cmd *cobra.Command, name, kind string, s lint.Source) ([]record.Record, error) {
	var out []record.Record
	for {
		doc, err := s.Next(cmd.Context())
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		key, err := record.KeyOfDoc(doc)
		if err != nil {
			return nil, exit.Usagef("%s: record %d has no _id: give the stored record with its _id", name, len(out)+1)
		}
		out = append(out, record.Record{Kind: kind, Key: key, Doc: doc})
	}
}

// recordsFrom reads the files of a flag. A value without KIND= is of the first kind, unless named
// is set: then KIND= is required.
func recordsFrom(cmd *cobra.Command, flag string, values, kinds []string, named bool) ([]record.Record, error) {
	var out []record.Record
	for _, v := range values {
		kind, name := kinds[0], v
		if before, after, ok := strings.Cut(v, "="); ok && slices.Contains(kinds, before) {
			kind, name = before, after
		} else if named {
			return nil, exit.Usagef("%s %s: give the kind, as KIND=FILE; the kinds are: %s", flag, v, strings.Join(kinds, ", "))
		}
		source, closer, err := openSource(name, cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		rs, err := recordsOf(cmd, name, kind, source)
		_ = closer.Close() // only read
		if err != nil {
			return nil, err
		}
		out = append(out, rs...)
	}
	return out, nil
}

func shown(rs []record.Record) []shownRecord {
	out := []shownRecord{}
	for _, r := range rs {
		out = append(out, shownRecord{r.Kind, json.RawMessage(extjson.Doc(r.Doc, extjson.OneLine))})
	}
	return out
}

func tried(t *lint.Trial) tryOutput {
	out := tryOutput{In: shown(t.In), Up: shown(t.Up), Down: shown(t.Down), Exact: t.Exact, Differences: []shownDifference{}}
	out.Same = t.Err == nil && len(t.Differences) == 0
	for _, d := range t.Differences {
		s := shownDifference{Kind: d.Kind, Path: strings.Join(d.Path, ".")}
		if d.Was.Type != 0 {
			s.Was = json.RawMessage(extjson.Value(d.Was))
		}
		if d.Is.Type != 0 {
			s.Is = json.RawMessage(extjson.Value(d.Is))
		}
		out.Differences = append(out.Differences, s)
	}
	if t.Err != nil {
		out.Error = &tryError{t.Direction, lint.Reason(t.Err)}
	}
	return out
}

func printTrial(w io.Writer, t *lint.Trial) error {
	var b bytes.Buffer
	type part struct {
		name string
		rs   []record.Record
	}
	parts := []part{{"in", t.In}, {"up", t.Up}, {"down", t.Down}}
	// Show the steps in the order in which they ran.
	if t.FromNew {
		parts = []part{{"in", t.In}, {"down", t.Down}, {"up", t.Up}}
	}
	for _, part := range parts {
		for _, r := range part.rs {
			fmt.Fprintf(&b, "%-5s %s %s\n", part.name, r.Kind, extjson.Doc(r.Doc, lineWidth))
		}
	}
	switch {
	case t.Err != nil:
	case t.Exact:
		fmt.Fprintln(&b, "the reverse returns the same bytes")
	case len(t.Differences) == 0:
		fmt.Fprintln(&b, "the reverse returns the same fields in another order")
	default:
		fmt.Fprintln(&b, "the reverse differs:")
		for _, d := range t.Differences {
			terminal.Printf(&b, "  %s\n", d)
		}
	}
	return terminal.Write(w, b.Bytes())
}
