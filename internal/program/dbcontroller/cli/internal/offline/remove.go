package offline

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/removal"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/registry"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// remover is a command that removes a deployment, or kinds of it, while none of its processes runs.
type remover struct {
	common     process.Flags
	confirm    string
	dryRun     bool
	dropCopies bool
	lost       []string
	name       string // of the command
	// kinds returns the kinds to forget. nil: the deployment is removed.
	kinds func(d upgradestate.Deployment, p *process.Process) ([]deployment.RemovedKind, error)
}

func RemoveCommand() *cobra.Command {
	r := &remover{name: "remove"}
	cmd := &cobra.Command{
		Use:   "remove --config FILE",
		Short: "Remove a deployment from etcd and its databases",
		Long: "Remove a deployment: its keys in etcd, and all that controllers keep about it in the databases of\n" +
			"its versions. Stop all controllers, servers, proxies and applications of the deployment first. The\n" +
			"command refuses while one of them is alive, while an upgrade or a rollout runs, and while a fence\n" +
			"is in force; 'complete' ends the fences of an old version. Records of clients stay, and their\n" +
			"collections are listed. The command removes only with --confirm, which names the deployment, the\n" +
			"cluster and the database of the current version; the refusal prints it. After a crash, repeat it.\n" +
			"Until it ends, no controller, server or verb works on the deployment. There is no way back.\n" +
			"Afterwards a deployment of that name can begin again.",
		Example: "  dbcontroller remove --config bbs.yaml --dry-run\n" +
			"  dbcontroller remove --config bbs.yaml --drop-copies \\\n" +
			"    --confirm services/bbs/deployments/eu/replicaSet/674d1f0c9b1e8a3c5d7f2a10/mongo:bbs_v1/drop-copies",
	}
	r.register(cmd)
	return cmd
}

func ForgetKindsCommand(register registry.Register) *cobra.Command {
	r := &remover{name: "forget-kinds", kinds: func(d upgradestate.Deployment, p *process.Process) ([]deployment.RemovedKind, error) {
		transformers, _, err := registry.Of(p.Config, register)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		return unconfigured(d, transformers), nil
	}}
	cmd := &cobra.Command{
		Use:   "forget-kinds --config FILE",
		Short: "Forget the kinds that the configuration no longer has",
		Long: "Take the kinds that the configuration no longer has out of the deployment, and remove all that\n" +
			"controllers keep about them in the databases. Until then they block every switch. Stop all\n" +
			"controllers, servers, proxies and applications of the deployment first. The command refuses while\n" +
			"one of them is alive, while an upgrade runs, and while a fence of such a kind is in force. Records\n" +
			"of clients stay, and their collections are listed. The command changes something only with\n" +
			"--confirm, which names the deployment, the cluster and the database of the current version; the\n" +
			"refusal prints it. After a crash, repeat it. A kind that is configured again later begins anew.",
		Example: "  dbcontroller forget-kinds --config bbs.yaml --dry-run\n" +
			"  dbcontroller forget-kinds --config bbs.yaml \\\n" +
			"    --confirm services/bbs/deployments/eu/replicaSet/674d1f0c9b1e8a3c5d7f2a10/mongo:bbs_v1",
	}
	r.register(cmd)
	return cmd
}

func (r *remover) register(cmd *cobra.Command) {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := startProcess(cmd.Context(), r.common)
		if err != nil {
			return err
		}
		defer p.Close()
		var refused *removal.RefusedError
		var alive *deployment.AliveError
		if err = r.run(cmd.Context(), p, cmd.ErrOrStderr()); errors.As(err, &refused) || errors.As(err, &alive) {
			return exit.Refusedf("%s: %w", r.name, err)
		}
		return err
	}
	quietFlags(cmd, &r.common)
	cmd.Flags().StringVar(&r.confirm, "confirm", "", "deployment, cluster and database; the refusal prints it")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "print what would be removed and what would stay, change nothing")
	cmd.Flags().BoolVar(&r.dropCopies, "drop-copies", false, "also drop the collections of versions that no client has used")
	cmd.Flags().StringSliceVar(&r.lost, "lost", nil, "versions whose databases are lost; nothing is removed there")
}

// unconfigured returns the kinds of a record that their version no longer has. The package makes lineage
// kinds itself, so they are never configured.
func unconfigured(d upgradestate.Deployment, transformers *transform.Registry) (kinds []deployment.RemovedKind) {
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			here := func(s record.KindSpec) bool { return s.Name == k.Kind }
			if !transform.IsLineage(k.Kind) && !slices.ContainsFunc(transformers.Kinds(upgradestate.APIVersion(ns.Version)), here) {
				kinds = append(kinds, deployment.RemovedKind{Version: ns.Version, Kind: k.Kind})
			}
		}
	}
	return kinds
}

func (r *remover) run(ctx context.Context, p *process.Process, say io.Writer) error {
	store := deployment.New(p.Store, p.Config.Deployment, deployment.Config{Log: p.Log, By: terminal.User()})
	// AnyState: what is removed need not have valid keys.
	set := databases.New(p.Config, databases.Config{App: "dbcontroller " + r.name, Log: p.Log, AnyState: true})
	defer set.Close(ctx)
	work := removal.Work{Store: store, Databases: map[string]removal.Database{}, Lost: r.lost}
	for _, db := range p.Config.DBs {
		work.Databases[db.Version] = set.Database(db.Version)
	}
	rem, begun, err := store.Removal(ctx)
	if err == nil && begun && !rem.Acting {
		// Nothing is gone yet, so this call begins anew. If it is refused, processes can start again.
		terminal.Printf(say, "note: %s began a removal at %s, which has removed nothing yet; a call without --dry-run takes it back\n", rem.By, rem.At)
		begun = false
		if !r.dryRun {
			if err := store.EndRemoval(ctx, rem, rem.Record); err != nil {
				return err
			}
			rem, begun, err = store.Removal(ctx)
		}
	}
	switch {
	case err != nil:
		return err
	case begun && (len(rem.Kinds) > 0) != (r.kinds != nil):
		return exit.Refusedf("%w", &deployment.RemovalError{Name: store.Name(), Removal: rem})
	case begun:
		terminal.Printf(say, "note: this continues what %s began at %s\n", rem.By, rem.At)
	default:
		if rem, err = r.begin(rem, p); err != nil {
			return err
		}
		if err := work.Check(ctx, rem); err != nil {
			return err
		}
	}
	does, stays, err := work.Effects(ctx, rem)
	if err != nil {
		return err
	}
	for _, line := range does {
		terminal.Printf(say, "will: %s\n", line)
	}
	for _, line := range stays {
		terminal.Printf(say, "stays: %s\n", line)
	}
	if r.dryRun {
		return nil
	}
	want, lacks := api.Confirmation(rem.Record, rem.Record.CurrentVersion)
	// What goes beyond the controllers' own data is confirmed by itself.
	if rem.DropCopies {
		want += "/drop-copies"
	}
	if len(r.lost) > 0 {
		want += "/lost"
	}
	if r.confirm != want {
		nothing := "nothing is removed yet"
		if begun {
			nothing = "nothing more is removed yet"
		}
		return exit.Refusedf("%s: %s%s: to remove it, give --confirm %s", r.name, nothing, Doubts(r.confirm, lacks), want)
	}
	if !begun {
		if rem, err = store.BeginRemoval(ctx, rem); err != nil {
			return err
		}
	}
	left, err := work.Do(ctx, rem)
	if err != nil {
		return err
	}
	for _, line := range left {
		terminal.Printf(say, "stays: %s\n", line)
	}
	if r.kinds != nil {
		for _, k := range rem.Kinds {
			terminal.Printf(say, "done: %s no longer has %s\n", store.Name(), k)
		}
		return nil
	}
	terminal.Printf(say, "done: %s is removed\n", store.Name())
	return nil
}

// begin describes a removal that has not begun.
func (r *remover) begin(rem deployment.Removal, p *process.Process) (deployment.Removal, error) {
	rem.At, rem.By, rem.DropCopies = time.Now().UTC().Format(time.RFC3339), terminal.User(), r.dropCopies
	if r.kinds == nil {
		return rem, nil
	}
	var err error
	if rem.Kinds, err = r.kinds(rem.Record, p); err != nil {
		return rem, err
	}
	if len(rem.Kinds) == 0 {
		return rem, exit.Refusedf("%s: the configuration has all kinds of %s: there is nothing to forget", r.name, rem.Record.Name)
	}
	return rem, nil
}
