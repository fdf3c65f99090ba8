package offline

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// recovery is the command 'recover'. It writes a deployment again from the marks in its databases.
type recovery struct {
	common           process.Flags
	confirm, current string
	dryRun           bool
}

func RecoverCommand() *cobra.Command {
	r := &recovery{}
	cmd := &cobra.Command{
		Use:   "recover --config FILE",
		Short: "Rebuild a deployment that etcd lost, from its databases",
		Long: "Rebuild a deployment after etcd was lost, emptied or restored to an older revision, from the marks\n" +
			"in its databases. Stop all controllers and servers first. The command reports its findings and the\n" +
			"record that it will write. It writes only with --confirm, which names the deployment, the cluster\n" +
			"and the database of the current version; the refusal prints it. If the marks do not show which\n" +
			"version was current, give --current. No record of a client changes. A running upgrade ends, parked\n" +
			"and waived records are forgotten, and the version that the latest switch left stays as it is until\n" +
			"an upgrade to it begins. A repeated call changes nothing.\n\n" +
			"Controllers accept collections that movePrimary, moveCollection, reshardCollection or\n" +
			"unshardCollection recreated, if the changes of the database prove it. If they report that nothing\n" +
			"proves it, look at the collections: the command adopts them as they are. Nothing has to be\n" +
			"stopped for that, but abort a running upgrade first. Collections that an application replaced need\n" +
			"no recovery: controllers follow them, and never rename an older collection over a live one.",
		Example: "  dbcontroller recover --config bbs.yaml --dry-run\n" +
			"  dbcontroller recover --config bbs.yaml \\\n" +
			"    --confirm services/bbs/deployments/eu/replicaSet/674d1f0c9b1e8a3c5d7f2a10/mongo:bbs_v1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := startProcess(cmd.Context(), r.common)
			if err != nil {
				return err
			}
			defer p.Close()
			if err := r.run(cmd.Context(), p, cmd.ErrOrStderr()); err != nil {
				return fmt.Errorf("recover: %w", err)
			}
			return nil
		},
	}
	quietFlags(cmd, &r.common)
	cmd.Flags().StringVar(&r.confirm, "confirm", "", "deployment, cluster and database, to write the record; the refusal prints it")
	cmd.Flags().StringVar(&r.current, "current", "", "current version, if the marks do not show it")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "print the record, write nothing")
	return cmd
}

func (r *recovery) run(ctx context.Context, p *process.Process, say io.Writer) error {
	store := deployment.New(p.Store, p.Config.Deployment, deployment.Config{Log: p.Log, By: terminal.User()})
	set := databases.New(p.Config, databases.Config{App: "dbcontroller", Log: p.Log})
	defer set.Close(ctx)
	// Every database must answer: the one left out might hold the latest mark.
	markers := map[string]record.Marker{}
	for _, db := range p.Config.DBs {
		if _, err := set.Database(db.Version).Get(ctx); err != nil {
			return fmt.Errorf("%w; recover needs it: its mark may show the current version", err)
		}
		markers[db.Version] = set.Database(db.Version)
	}
	found, err := r.replaceable(ctx, store, markers)
	if err != nil {
		return err
	}
	e, err := identity.Gather(ctx, p.Config.Deployment, markers)
	if err != nil {
		return err
	}
	e.Doubt(found)
	alive, err := store.Controllers(ctx)
	if err != nil {
		return err
	}
	// A record is there. If only recreated collections differ, adopt them without stopping
	// anything.
	if found.Name != "" {
		anew, err := e.MadeAnew(found)
		ev := upgradestate.Adopt{Epoch: found.Epoch, Collections: anew}
		var adopted upgradestate.Deployment
		if err == nil {
			adopted, err = upgradestate.Apply(found, ev)
		}
		if err == nil {
			return r.adopt(ctx, store, ev, adopted, among(e, markers), say)
		}
		if len(anew) > 0 && len(alive) > 0 {
			return err
		}
	}
	// From here on etcd and databases disagree, and a live controller would act on the old record.
	if len(alive) > 0 {
		return stillAlive(alive)
	}
	d, err := r.rebuild(ctx, e, p, set, say)
	if err != nil {
		return err
	}
	if stop, err := r.stopHere(d, "stop all servers and "); stop || err != nil {
		return err
	}
	// Mark the databases before the record is written. If the process dies in between, the marks
	// show the attempt, and the same command completes it.
	if err := identity.Announce(ctx, d, recoveryID(), markers); err != nil {
		return err
	}
	if err := identity.Reclaim(ctx, d, markers); err != nil {
		return err
	}
	// Accept the databases as they are: beats of an earlier state must not refuse them.
	if err := store.ForgetBeats(ctx, slices.Collect(maps.Keys(markers))...); err != nil {
		return err
	}
	// Controllers with another etcd must be refused before this etcd serves a record.
	if err := takeOver(ctx, store, among(e, markers)); err != nil {
		return err
	}
	if err := store.Replace(ctx, d, found.Revision, terminal.User(), time.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	if err := identity.Finalize(ctx, d, markers); err != nil {
		return fmt.Errorf("%w: %w", errMarksPending, err)
	}
	terminal.Printf(say, "done: %s is at %s in epoch %d; start a controller and servers\n", d.Name, d.CurrentVersion, d.Epoch)
	return nil
}

// The record decides. Marks that are missing now are added by the first controller.
var errMarksPending = errors.New("the deployment is written; the first controller will record it in the databases")

func recoveryID() string { return identity.RecoveryID + strings.ToLower(rand.Text()[:12]) }

// stopHere reports whether to stop before the first write: in a dry run, or without the right
// confirmation.
func (r *recovery) stopHere(d upgradestate.Deployment, first string) (bool, error) {
	if r.dryRun {
		return true, nil
	}
	if want, lacks := api.Confirmation(d, d.CurrentVersion); r.confirm != want {
		return true, exit.Refusedf("nothing is written yet%s: to write it, %sgive --confirm %s", Doubts(r.confirm, lacks), first, want)
	}
	return false, nil
}

// Doubts returns the part of a refusal that explains a wrong confirmation, and the weakness of the
// right one.
func Doubts(given, lacks string) string {
	if given != "" {
		given = fmt.Sprintf(", because %q confirms something else", given)
	}
	if lacks != "" {
		lacks = "; " + lacks
	}
	return given + lacks
}

// takeOver makes this etcd the one for the databases. Controllers with another etcd are refused
// from then on.
func takeOver(ctx context.Context, store *deployment.Store, markers map[string]record.Marker) error {
	if _, err := store.Reincarnate(ctx); err != nil {
		return err
	}
	for version, db := range markers {
		pulse := identity.Pulse{Owner: record.Owner{Deployment: store.Name(), Version: version}, DB: db, Beats: store}
		if err := pulse.Accept(ctx); err != nil {
			return err
		}
	}
	return nil
}

// toTakeOver reports whether controllers with another etcd use one of the databases, or one holds a
// forged beat. takeOver cures both.
func toTakeOver(ctx context.Context, store *deployment.Store, markers map[string]record.Marker) (bool, error) {
	for version, db := range markers {
		pulse := identity.Pulse{Owner: record.Owner{Deployment: store.Name(), Version: version}, DB: db, Beats: store}
		var elsewhere *identity.ElsewhereError
		var forged *identity.ForgedBeatError
		var restored *identity.RestoredError
		switch err := pulse.Look(ctx); {
		case errors.As(err, &elsewhere), errors.As(err, &forged):
			return true, nil
		// A restored database is no reason to take over; 'restored' decides about it.
		case err != nil && !errors.As(err, &restored):
			return false, err
		}
	}
	return false, nil
}

// adopt replaces the deployment's collections by recreated ones. Processes may keep running: it is
// an ordinary transition, which begins a new epoch.
func (r *recovery) adopt(ctx context.Context, store *deployment.Store, ev upgradestate.Adopt, d upgradestate.Deployment, markers map[string]record.Marker, say io.Writer) error {
	kinds := identity.Anew(d, ev.Collections)
	for i, a := range ev.Collections {
		terminal.Printf(say, "note: %s\n", identity.TakenFor(a, kinds.Namespaces[i].Kinds[0].Physical))
	}
	terminal.Printf(say, "will: write it, with %s as the current version as before, in epoch %d; controllers and servers continue and restart their work by themselves\n", d.CurrentVersion, d.Epoch)
	if last := d.LastSwitch; last != nil && !upgradestate.Retired(d, last.From) {
		terminal.Printf(say, "will: leave %s as it is, without sync, until an upgrade to it begins\n", last.From)
	}
	if stop, err := r.stopHere(d, ""); stop || err != nil {
		return err
	}
	if err := identity.Announce(ctx, d, recoveryID(), markers); err != nil {
		return err
	}
	if err := identity.Reclaim(ctx, kinds, markers); err != nil {
		return err
	}
	d, err := store.Apply(ctx, ev)
	if err != nil {
		return err
	}
	if err := identity.Finalize(ctx, d, markers); err != nil {
		return fmt.Errorf("%w: %w", errMarksPending, err)
	}
	terminal.Printf(say, "done: %s is at %s in epoch %d\n", d.Name, d.CurrentVersion, d.Epoch)
	return nil
}

// among returns the markers of the databases that have a mark.
func among(e identity.Evidence, markers map[string]record.Marker) map[string]record.Marker {
	marked := maps.Clone(markers)
	maps.DeleteFunc(marked, func(version string, _ record.Marker) bool { _, ok := e.Found[version]; return !ok })
	return marked
}

func stillAlive(controllers []string) error {
	if len(controllers) == 0 {
		return nil
	}
	return exit.Refusedf("controller %s is alive: stop all controllers, and wait until their leases end", strings.Join(controllers, ", "))
}

// replaceable returns the record to replace. Its name is empty if there is none. It refuses a
// record that agrees with the databases.
func (r *recovery) replaceable(ctx context.Context, store *deployment.Store, markers map[string]record.Marker) (upgradestate.Deployment, error) {
	d, err := store.Get(ctx)
	switch {
	case errors.Is(err, deployment.ErrNotFound):
		return upgradestate.Deployment{}, nil
	case err != nil:
		return d, err
	}
	var mismatch *identity.MismatchError
	// Replace only a record that contradicts its databases.
	err = identity.Check(ctx, store, markers)
	if err == nil {
		over, err := toTakeOver(ctx, store, markers)
		if err != nil || over {
			return d, err // recover, so that this etcd takes over
		}
	}
	switch {
	case err == nil:
		followed := ""
		if db := markers[d.CurrentVersion]; db != nil {
			replaced, err := identity.Replacements(ctx, d, db)
			if err != nil {
				return d, err
			}
			for _, r := range replaced {
				followed += "; " + r.String()
			}
		}
		return d, exit.Refusedf("%s exists, at %s in epoch %d, and agrees with its databases: there is nothing to recover%s", d.Name, d.CurrentVersion, d.Epoch, followed)
	case !errors.As(err, &mismatch):
		return d, err
	}
	return d, nil
}

// rebuild builds the deployment from the marks in the databases, and prints findings and plan.
func (r *recovery) rebuild(ctx context.Context, e identity.Evidence, p *process.Process, set *databases.Set, say io.Writer) (upgradestate.Deployment, error) {
	for _, db := range p.Config.DBs {
		f, ok := e.Found[db.Version]
		if !ok {
			terminal.Printf(say, "found: nothing of %s in %s\n", db.Version, db.Location())
			continue
		}
		current := "not "
		if f.Mark.Current {
			current = ""
		}
		terminal.Printf(say, "found: %s in %s, last seen in epoch %d, %sthe current version then\n", db.Version, db.Location(), f.Mark.Epoch, current)
	}
	current, why, err := e.Current(r.current)
	// Never guess: a wrong choice would discard the latest writes.
	var undecided *identity.UndecidedError
	if errors.As(err, &undecided) {
		return upgradestate.Deployment{}, exit.Refusedf("%w: find the database with the latest writes, and choose it with --current VERSION; the service loses the writes to the other one since the switch", err)
	}
	if err != nil {
		return upgradestate.Deployment{}, err
	}
	for _, rival := range e.Rivals(current) {
		terminal.Printf(say, "found: %s\n", describeRivals(ctx, set.Database(current), rival))
	}
	d, notes, err := e.Rebuild(current)
	if err != nil {
		return d, err
	}
	terminal.Printf(say, "decided: %s is the current version: %s\n", current, why)
	will := func(format string, args ...any) { terminal.Printf(say, "will: "+format+"\n", args...) }
	will("write %s with %s as the current version, in epoch %d, with %d shards and no upgrade", d.Name, current, d.Epoch, d.RingSize)
	// Marks do not hold the hosts of a database, so take them from the configuration.
	for i, ns := range d.Namespaces {
		db, _ := p.Config.DB(ns.Version)
		d.Namespaces[i].Hosts = db.Hosts()
		for _, k := range ns.Kinds {
			opens := ""
			if k.Pending != nil {
				opens = fmt.Sprintf(", which the first controller renames back to %s for its application", k.Pending.To)
			}
			will("write that kind %s of %s is collection %s, now %s%s", k.Kind, ns.Version, k.ID, k.Physical, opens)
		}
	}
	if last := d.LastSwitch; last != nil && !upgradestate.Retired(d, last.From) {
		will("leave %s as it is, without sync, until an upgrade to it begins", last.From)
	}
	for _, n := range notes {
		terminal.Printf(say, "note: %s\n", n)
	}
	return d, nil
}

// describeRivals describes the two collections that may be the kind's, with their sizes.
func describeRivals(ctx context.Context, db record.Namespace, r identity.Replaced) string {
	holds := func(name, id string) string {
		if name == "" {
			return id + ", which is gone"
		}
		size, err := db.Size(ctx, record.Token{Kind: r.Kind, Name: name, ID: id, Fixed: true})
		if err != nil {
			return fmt.Sprintf("%s, now %s", id, name)
		}
		return fmt.Sprintf("%s, now %s, with about %d documents", id, name, size.Records)
	}
	return fmt.Sprintf("kind %s of %s was collection %s; the collection with its name is %s", r.Kind, r.Version, holds(r.Away, r.Was), holds(r.Kind, r.Is))
}
