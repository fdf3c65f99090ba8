package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"dbcontroller.dev/cmd/internal/databases"
	"dbcontroller.dev/cmd/internal/process"
	"dbcontroller.dev/record/sealed"
)

func admitPlainCommand() *cobra.Command {
	var common process.Flags
	var version string
	cmd := &cobra.Command{
		Use:   "admit-plain --config FILE --version VERSION",
		Short: "Have records that are not encrypted taken for records where all should be",
		Long: "Have records that are not encrypted taken for records in a version where all are promised to be\n" +
			"encrypted, until a rotation has brought them under the key. Such a record is refused before, for\n" +
			"anyone who can write to the database could have put it there, and could put others there until the\n" +
			"rotation is over: look first at the records that the errors, or 'keys show --count', name. It is of\n" +
			"ours where a process that was frozen while encryption was turned on wrote it afterwards. 'keys\n" +
			"rotate' begins the rotation, of the current version, unless the controller has by then.",
		Example: "  dbcontroller keys admit-plain --config bbs.yaml --version v1\n  dbcontroller keys rotate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := start(cmd.Context(), common)
			if err != nil {
				return err
			}
			defer p.Close()
			set := databases.New(p.Config, databases.Config{App: "dbcontroller keys", Log: p.Log, Quiet: true})
			defer set.Close(cmd.Context())
			db := set.Database(version)
			if db == nil {
				return usage("--version %q is not one of dbs in %s", version, common.Config)
			}
			e, err := db.Encryption(cmd.Context())
			if err != nil {
				return err
			}
			return admitPlain(cmd.Context(), version, e.Sealer(), cmd.OutOrStdout())
		},
	}
	quietFlags(cmd, &common)
	cmd.Flags().StringVar(&version, "version", "", "version whose records they are")
	return cmd
}

func admitPlain(ctx context.Context, version string, s *sealed.Sealer, out io.Writer) error {
	st, err := s.State(ctx)
	switch {
	case err != nil:
		return err
	case st.New:
		return refused("%s is not begun, so that there are no records in it", version)
	case slices.Contains(st.InUse(), sealed.Off):
		return write(out, fmt.Appendf(nil, "records of %s may be plain already: nothing is changed\n", version))
	}
	if err := s.Admit(ctx, sealed.Off); err != nil {
		return err
	}
	return write(out, fmt.Appendf(nil, "plain records of %s are taken for records until a rotation is over: run 'dbcontroller keys rotate'\n", version))
}
