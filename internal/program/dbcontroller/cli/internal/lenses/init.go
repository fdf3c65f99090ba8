package lenses

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/transform/lens/propose"
)

func lensInitCommand() *cobra.Command {
	var from, to string
	var protos protoFlags
	cmd := &cobra.Command{
		Use:   "init OLD NEW",
		Short: "Draft a lens from two samples of the same records, or from two API versions",
		Long: "Draft a lens from two samples of the same records, one for each version: files of Extended JSON or\n" +
			"BSON, also gzipped. Records are paired by _id. The draft proposes renames, moves, conversions,\n" +
			"splits, joins, additions and removals, based on the values of fields. Comments mark uncertain\n" +
			"proposals, and state how much of the samples the draft explains. It proposes no key changes, no\n" +
			"further kinds, and nothing within lists. The draft goes to standard output. At most 5000 records\n" +
			"of each sample are read.\n\n" +
			"With --protos, OLD and NEW are the proto files of two API versions, whose messages the service\n" +
			"stores as documents. A field with the same number is the same field: another name is a rename,\n" +
			"another type a conversion. The draft contains changes within objects, lists and maps, and of keys\n" +
			"whose patterns the protos state. With --out it writes a lens for each resource, and service.go,\n" +
			"the Go code that serves both versions.",
		Example: "  mongoexport -d shop_v1 -c orders --limit 1000 --sort '{_id: 1}' > old.json\n" +
			"  dbcontroller lens init old.json new.json --from orders > orders.yaml\n" +
			"  dbcontroller lens init --protos proto/tasks/v1/tasks.proto proto/tasks/v2/tasks.proto --out tasks",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if protos.on {
				return protos.draft(cmd, args[0], args[1], from, to)
			}
			if err := protos.unused(cmd); err != nil {
				return err
			}
			return draftFromSamples(cmd, args, from, to)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "kind of the old version (default: the name of its file, or of the collection in the protos)")
	cmd.Flags().StringVar(&to, "to", "", "kind of the new version (default: the old one's)")
	protos.add(cmd)
	return cmd
}

func draftFromSamples(cmd *cobra.Command, args []string, from, to string) error {
	// Standard input can be read only once.
	if args[0] == "-" && args[1] == "-" {
		return exit.Usagef("standard input cannot be both samples: give a file for one of them")
	}
	var samples [2][]bson.Raw
	for i, name := range args {
		docs, err := firstOfSample(cmd.Context(), name, cmd.InOrStdin(), propose.MaxRecords)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		samples[i] = docs
	}
	if from == "" {
		from = kindOfFile(args[0])
	}
	if to == "" {
		to = from
	}
	draft, err := propose.Lens(from, to, samples[0], samples[1])
	if err != nil {
		return exit.Usagef("lens init: %w", err)
	}
	if err := terminal.Write(cmd.OutOrStdout(), draft.Text); err != nil {
		return err
	}
	// The summary goes to standard error: standard output is the draft itself.
	fmt.Fprintf(cmd.ErrOrStderr(), "of %s in both samples the draft explains %s; %s to decide on: read the comments, then see the effect with 'dbcontroller lens diff'\n",
		plural(int64(draft.Pairs), "record"), terminal.Count(int64(draft.Explained)), plural(int64(draft.Unsure), "thing"))
	return nil
}

// firstOfSample reads at most the given number of documents.
func firstOfSample(ctx context.Context, name string, stdin io.Reader, most int) (out []bson.Raw, err error) {
	source, closer, err := openSource(name, stdin)
	if err != nil {
		return nil, err
	}
	defer func() { _ = closer.Close() }() // only read
	for len(out) < most {
		doc, err := source.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		out = append(out, doc)
	}
	return out, nil
}

// kindOfFile returns the kind that a file name implies, as mongoexport and mongodump name files.
func kindOfFile(name string) string {
	base, _, _ := strings.Cut(filepath.Base(name), ".")
	if base == "" || base == "-" {
		return "records"
	}
	return base
}
