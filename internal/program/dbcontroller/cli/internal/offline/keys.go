package offline

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

func ShowKeysCommand() *cobra.Command {
	var common process.Flags
	var count bool
	cmd := &cobra.Command{
		Use:   "show --config FILE",
		Short: "Show the keys that encrypt the records of each version",
		Long: "Show the keys that encrypt the records of each version, as recorded in the databases. With --count\n" +
			"the command reads, decrypts and counts every record of managed kinds by key. This proves that a\n" +
			"key is no longer needed. The exit status is 1 if a record cannot be decrypted, or is not encrypted\n" +
			"with the expected key. No record changes. Records under another key of this configuration are\n" +
			"reported to the controllers, which rewrite them.",
		Example: "  dbcontroller keys show --config bbs.yaml --count",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := startProcess(cmd.Context(), common)
			if err != nil {
				return err
			}
			defer p.Close()
			return showKeys(cmd.Context(), p, count, cmd.OutOrStdout())
		},
	}
	quietFlags(cmd, &common)
	cmd.Flags().BoolVar(&count, "count", false, "read every record and count by key")
	return cmd
}

func showKeys(ctx context.Context, p *process.Process, count bool, out io.Writer) error {
	d, err := deployment.New(p.Store, p.Config.Deployment, deployment.Config{Log: p.Log}).Get(ctx)
	if err != nil {
		return err
	}
	set := databases.New(p.Config, databases.Config{App: "dbcontroller keys", Log: p.Log, Quiet: true})
	defer set.Close(ctx)
	var b bytes.Buffer
	columns := "VERSION\tWRITTEN UNDER\tRECORDS UNDER\tEVERY RECORD"
	if count {
		columns += "\tCOUNTED"
	}
	t := terminal.Table(&b, columns)
	var found []string
	for _, ns := range d.Namespaces {
		db := set.Database(ns.Version)
		// Skip versions without a configured database, and retired ones, whose database may be
		// gone.
		if db == nil || upgradestate.Retired(d, ns.Version) {
			continue
		}
		e, err := db.Encryption(ctx)
		if err != nil {
			return err
		}
		st, err := e.Sealer().State(ctx)
		if err != nil {
			return err
		}
		whole := "not promised"
		if st.Promised() != "" {
			whole = "under " + st.Promised()
		}
		terminal.Printf(t, "%s\t%s\t%s\t%s", ns.Version, st.Key, strings.Join(st.InUse(), ", "), whole)
		if count {
			under, failures, err := countKeys(ctx, d, ns.Version, e)
			if err != nil {
				return err
			}
			// If the mark promises one key for every record, a record under another key is a
			// finding.
			for name := range under {
				if st.Promised() != "" && name != st.Promised() {
					failures = append(failures, fmt.Sprintf("%d records of %s are under %s, not %s", under[name], ns.Version, name, st.Promised()))
				}
			}
			found = append(found, failures...)
			terminal.Printf(t, "\t%s", countedKeys(under))
		}
		fmt.Fprintln(t)
	}
	terminal.Flush(t)
	if err := terminal.Write(out, b.Bytes()); err != nil {
		return err
	}
	// The table comes first, since it shows the keys that the findings are about.
	if len(found) > 0 {
		return exit.Errorf(exit.Findings, "%s", strings.Join(found, "; "))
	}
	return nil
}

// countKeys reads all records of a version's managed kinds. It returns the number of records under
// each key, and a few of the errors of records that cannot be decrypted.
func countKeys(ctx context.Context, d upgradestate.Deployment, version string, e *sealed.Namespace) (under map[string]int, failures []string, err error) {
	const shown = 3
	// Read at or after the present position, so that the count includes all writes up to now.
	now, err := e.Position(ctx)
	if err != nil {
		return nil, nil, err
	}
	under = map[string]int{}
	toks := syncer.Tokens(d, version)
	for _, kind := range slices.Sorted(maps.Keys(toks)) {
		tok := toks[kind]
		// Fixed-name kinds belong to the application and are never encrypted.
		for at := (record.Range{}); !tok.Fixed; {
			page, err := e.Stored().Scan(ctx, record.ScanRequest{Token: tok, Range: at, Limit: 1000, NotBefore: now.At})
			if err != nil {
				return nil, nil, err
			}
			for _, r := range page.Records {
				// Stored returns records as they lie in the database, so that the key's name is
				// readable. Open then proves that the key decrypts the record.
				under[sealed.Under(r.Doc)]++
				if _, err := e.Sealer().Open(ctx, tok, r); err != nil && len(failures) < shown {
					failures = append(failures, err.Error())
				}
			}
			if page.Done {
				break
			}
			at.From = page.Next
		}
	}
	return under, failures, nil
}

func countedKeys(under map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(under)) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, under[name]))
	}
	return cmp.Or(strings.Join(parts, ", "), "no records")
}
