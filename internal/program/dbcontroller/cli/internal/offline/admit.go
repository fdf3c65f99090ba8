package offline

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/upgradestate"
)

// keysVerb is a command that changes, without a controller, the key state in the mark of a version.
type keysVerb struct {
	common           process.Flags
	version, confirm string
	name             string // recorded in the history
	change           func(ctx context.Context, version string, s *sealed.Sealer, do bool, out io.Writer) (changes bool, err error)
}

func AdmitPlainCommand() *cobra.Command {
	v := &keysVerb{name: "admit-plain", change: admitPlain}
	cmd := &cobra.Command{
		Use:   "admit-plain --config FILE --version VERSION --confirm DEPLOYMENT/CLUSTER/DATABASE",
		Short: "Accept unencrypted records until a rotation has encrypted them",
		Long: "Accept unencrypted records in a version whose records must all be encrypted, until a rotation has\n" +
			"encrypted them. Such records are refused by default, because anybody with write access to the\n" +
			"database could have inserted them, and could insert more until the rotation ends. First check the\n" +
			"records that the errors or 'keys show --count' name. They are legitimate if a server that was\n" +
			"frozen while encryption was turned on wrote them later. 'keys rotate' starts the rotation of the\n" +
			"current version, unless the controller has started it. Without --confirm the command changes\n" +
			"nothing and prints the value to give.",
		Example: "  dbcontroller keys admit-plain --config bbs.yaml --version v1 --confirm services/bbs/deployments/eu/replicaSet/674d1f0c9b1e8a3c5d7f2a10/mongo:bbs_v1\n" +
			"  dbcontroller keys rotate",
	}
	v.register(cmd)
	return cmd
}

func AcceptKeysCommand() *cobra.Command {
	v := &keysVerb{name: "accept-keys", change: acceptKeys}
	cmd := &cobra.Command{
		Use:   "accept --config FILE --version VERSION --confirm DEPLOYMENT/CLUSTER/DATABASE",
		Short: "Accept a state of keys that no process with a key has signed",
		Long: "Accept the state of keys in a version's mark. Processes with an active key refuse a state that no\n" +
			"process with a key has signed. Causes: an earlier release wrote it; the mark was written again; a\n" +
			"key became active before 'active: off' was in force; or somebody with write access to the database\n" +
			"forged it. The command prints the state. Give --confirm if it is right. If the state permits plain\n" +
			"records, anybody with write access to the database can add records until a rotation ends. The\n" +
			"history records who accepted it.",
		Example: "  dbcontroller keys accept --config bbs.yaml --version v1",
	}
	v.register(cmd)
	return cmd
}

func (v *keysVerb) register(cmd *cobra.Command) {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := startProcess(cmd.Context(), v.common)
		if err != nil {
			return err
		}
		defer p.Close()
		return v.run(cmd.Context(), p, cmd.OutOrStdout())
	}
	quietFlags(cmd, &v.common)
	cmd.Flags().StringVar(&v.version, "version", "", "version of the records")
	cmd.Flags().StringVar(&v.confirm, "confirm", "", "deployment, cluster and database; the refusal prints it")
}

func (v *keysVerb) run(ctx context.Context, p *process.Process, out io.Writer) error {
	store := deployment.New(p.Store, p.Config.Deployment, deployment.Config{Log: p.Log, By: terminal.User()})
	// AnyState: this command repairs key states that Get refuses. Only Encryption opens the
	// database here.
	set := databases.New(p.Config, databases.Config{App: "dbcontroller keys", Log: p.Log, Quiet: true, AnyState: true})
	defer set.Close(ctx)
	db := set.Database(v.version)
	if db == nil {
		return exit.Usagef("--version %q is not in dbs of %s", v.version, v.common.Config)
	}
	e, err := db.Encryption(ctx)
	if err != nil {
		return err
	}
	return v.apply(ctx, store, e.Sealer(), out)
}

// apply checks the confirmation, records the operation in the history, and then performs it.
func (v *keysVerb) apply(ctx context.Context, store *deployment.Store, s *sealed.Sealer, out io.Writer) error {
	d, err := store.Get(ctx)
	if err != nil {
		return err
	}
	// First a dry run: it reports an impossible or unnecessary change before asking to confirm it.
	changes, err := v.change(ctx, v.version, s, false, out)
	if err != nil || !changes {
		return err
	}
	if want, lacks := api.Confirmation(d, v.version); v.confirm != want {
		return exit.Refusedf("nothing is changed yet%s: to change it, give --confirm %s", Doubts(v.confirm, lacks), want)
	}
	// Record it first: a crash between the two steps must not leave an unrecorded change.
	if _, err := store.Apply(ctx, upgradestate.Remark{What: v.name, Detail: v.version}); err != nil {
		return err
	}
	_, err = v.change(ctx, v.version, s, true, out)
	return err
}

func admitPlain(ctx context.Context, version string, s *sealed.Sealer, do bool, out io.Writer) (changes bool, err error) {
	st, err := s.State(ctx)
	switch {
	case err != nil:
		return false, err
	case st.New:
		return false, exit.Refusedf("%s is not used yet, so it has no records", version)
	case slices.Contains(st.InUse(), sealed.Off):
		return false, terminal.Write(out, fmt.Appendf(nil, "records of %s may be plain already: nothing is changed\n", version))
	case !do:
		return true, nil
	}
	if err := s.Admit(ctx, sealed.Off); err != nil {
		return true, err
	}
	return true, terminal.Write(out, fmt.Appendf(nil, "plain records of %s are accepted until a rotation ends: run 'dbcontroller keys rotate'\n", version))
}

func acceptKeys(ctx context.Context, version string, s *sealed.Sealer, do bool, out io.Writer) (changes bool, err error) {
	st, proven, err := s.Noted(ctx)
	switch {
	case err != nil:
		return false, err
	case st.New:
		return false, exit.Refusedf("%s is not used yet, so it has no state of keys", version)
	case proven:
		return false, terminal.Write(out, fmt.Appendf(nil, "a process with a key has signed the state of %s: nothing is changed\n", version))
	case !do:
		// This state has no proof. It must not print lines of its own.
		return true, terminal.Write(out, []byte(printable.Line(fmt.Sprintf("the mark of %s: records are written with %s, and may be encrypted with %s; fields that stay readable: %s",
			version, st.Key, strings.Join(st.InUse(), ", "), readableFields(st)))+"\n"))
	}
	// Accept only the state that was printed. Another process may have written a different one
	// since.
	if err := s.Accept(ctx, func(now sealed.State) error {
		if !now.Same(st) {
			return exit.Refusedf("the state of %s has changed meanwhile: run the command again", version)
		}
		return nil
	}); err != nil {
		return true, err
	}
	return true, terminal.Write(out, fmt.Appendf(nil, "the state of %s is accepted\n", version))
}

func readableFields(st sealed.State) string {
	var all []string
	for kind, fields := range st.Clear {
		all = append(all, kind+" ("+strings.Join(fields, ", ")+")")
	}
	if slices.Sort(all); len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
