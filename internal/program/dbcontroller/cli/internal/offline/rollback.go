// Package offline has the commands that work without a controller, on etcd and the databases of a
// configuration: the rollback to the snapshot, recover, and the states of encryption keys.
package offline

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/controller/keys"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/upgradestate"
)

// Rollback is the rollback to the snapshot without a controller. This process drives the ordinary
// switch and reports ready for all shards, since nothing is synced. It needs etcd and the old
// version's database. It fences the new database if it can reach it. If that database is lost, the
// operator must confirm so, because late writers to it then stay unfenced.
type Rollback struct {
	Config       string
	NewLost      bool
	Accept       bool
	Confirm      string
	DryRun       bool
	By           string
	Say          io.Writer
	store        *deployment.Store
	old, new     string
	shown        upgradestate.Deployment // the record that the operator confirms
	databases    *databases.Set
	newReachable bool
}

// Time limits of the offline rollback, in this order: the probe of the new database, a switch
// attempt, the whole command, and the wait for servers to hold.
const (
	newDatabaseWait = 8 * time.Second
	offlineDeadline = 30 * time.Second
	offlineLimit    = 2 * time.Minute
	offlineHold     = 5 * time.Second
)

// offlineID starts the ids of upgrades that this command began. A repeated command continues them.
const offlineID = "offline-"

func (o *Rollback) Run(ctx context.Context) error {
	p, err := startProcess(ctx, process.Flags{Config: o.Config, LogLevel: "warn"})
	if err != nil {
		return err
	}
	defer p.Close()
	o.store = deployment.New(p.Store, p.Config.Deployment, deployment.Config{By: o.By, Log: p.Log})
	o.databases = databases.New(p.Config, databases.Config{
		App: "dbcontroller", Checks: []databases.Check{databases.Belongs(o.store)}, Log: zap.NewNop(),
	})
	defer o.databases.Close(ctx)
	if err := o.rollback(ctx, p); err != nil {
		return fmt.Errorf("rollback --offline: %w", err)
	}
	return nil
}

func (o *Rollback) rollback(ctx context.Context, p *process.Process) error {
	// A live controller would drive the same switch.
	if alive, err := o.store.Controllers(ctx); err != nil || len(alive) > 0 {
		if err == nil {
			err = fmt.Errorf("%w; or use 'rollback' without --offline, which runs at a controller", stillAlive(alive))
		}
		return err
	}
	d, err := o.store.Get(ctx)
	if err != nil {
		return err
	}
	if done, err := o.fits(d); err != nil || done {
		return err
	}
	if err := o.openBoth(ctx); err != nil {
		return err
	}
	o.tell(ctx, d)
	// Nothing is written before this line.
	if stop, err := o.stopHere(d); stop || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, offlineLimit)
	defer cancel()
	// The lock of the driver excludes a controller that starts meanwhile. led tells a lost race
	// from a slow switch.
	led := false
	err = shards.Lead(ctx, p.Store, o.store.DriverKey(), p.ID, zap.NewNop(), func(ctx context.Context) error {
		led = true
		return o.drive(ctx, p.Log)
	})
	if err == nil && ctx.Err() != nil {
		err = exit.Timeoutf("it did not end within %s: repeat the command, and it continues", offlineLimit)
		if !led {
			err = exit.Refusedf("another process drives this deployment: find and stop it")
		}
	}
	return err
}

// stopHere reports whether to stop before the first change: after a dry run, or without the right
// confirmation.
func (o *Rollback) stopHere(d upgradestate.Deployment) (bool, error) {
	want, lacks := api.Confirmation(d, o.new)
	switch {
	case o.DryRun:
		terminal.Printf(o.Say, "to do it%s: give --accept-loss --confirm %s\n", Doubts("", lacks), want)
		return true, nil
	case !o.Accept || o.Confirm != want:
		return true, exit.Refusedf("nothing is changed yet%s: to accept this loss, give --accept-loss --confirm %s", Doubts(o.Confirm, lacks), want)
	}
	return false, nil
}

// fits refuses a deployment from which an offline rollback is impossible. done reports that an
// earlier run has finished it. It also sets the old and the new version, and what the operator is
// shown.
func (o *Rollback) fits(d upgradestate.Deployment) (done bool, err error) {
	o.shown = d
	last := d.LastSwitch
	switch {
	case last == nil:
		return false, exit.Refusedf("no switch was made yet")
	case last.Back && d.Upgrade == nil && last.Snapshot:
		terminal.Printf(o.Say, "nothing: %s returned to %s already\n", last.ID, last.To)
		_, places := upgradestate.WritePlaces(d)
		if len(places) > 0 {
			return true, nil
		}
	case last.Back:
		return false, exit.Refusedf("the latest switch, %s, returned from %s to %s: a rollback returns to the version before the latest forward switch, but there is none", last.ID, last.From, last.To)
	case last.To != d.CurrentVersion:
		return false, exit.Refusedf("%s is the current version, but the latest switch led to %s", d.CurrentVersion, last.To)
	case upgradestate.Retired(d, last.From):
		return false, exit.Refusedf("%s was retired, so no upgrade can return to it", last.From)
	}
	o.old, o.new = last.From, last.To
	if last.Back {
		o.old, o.new = last.To, last.From // switched; the old names are still to be given back
	}
	return false, nil
}

// openBoth opens the old database, which is required, and the new one if it answers.
func (o *Rollback) openBoth(ctx context.Context) error {
	for _, v := range []string{o.old, o.new} {
		if o.databases.Database(v) == nil {
			return fmt.Errorf("%s is not in dbs of the configuration: add it", v)
		}
	}
	if _, err := o.databases.Database(o.old).Get(ctx); err != nil {
		return err
	}
	// A lost database may not answer at all, so do not wait as long as for the old one.
	bounded, cancel := context.WithTimeout(ctx, newDatabaseWait)
	defer cancel()
	_, err := o.databases.Database(o.new).Get(bounded)
	var mismatch *identity.MismatchError
	switch {
	case err == nil:
		o.newReachable = true
		return nil
	case errors.As(err, &mismatch) && !mismatch.Lost:
		return err // from different times; it is unknown which is right
	case o.NewLost:
		return nil
	}
	return fmt.Errorf("%w; %s cannot be fenced then, so processes that still reach it write to abandoned data: stop all its servers and applications, and give --new-database-lost", err, o.new)
}

// tell prints the findings, the planned steps and the expected loss.
func (o *Rollback) tell(ctx context.Context, d upgradestate.Deployment) {
	say := func(format string, args ...any) { terminal.Printf(o.Say, format+"\n", args...) }
	at := d.LastSwitch.At
	if at == "" {
		at = "an unknown time"
	}
	follows := "nothing of it was synced to " + o.old
	// Reverse sync may have applied part of the writes, so the loss may be smaller.
	if upgradestate.ReverseSynced(d) {
		follows = "except the changes that controllers had applied to " + o.old + " while they ran"
	}
	left := "it stays in the database of " + o.new
	if !o.newReachable {
		left = "the rest is lost with the database of " + o.new
	}
	say("loses: everything that was written to %s since the switch at %s, %s; %s", o.new, at, follows, left)
	// The list of servers is only information. An error here must not stop an emergency rollback.
	if servers, err := o.store.Servers(ctx); err == nil {
		for _, s := range servers {
			say("found: server %s is alive; it will hold its writes and follow the switch", s.ID)
		}
	}
	if lack := o.keysLack(ctx); lack != "" {
		say("found: %s", lack)
	}
	if u := d.Upgrade; u != nil && !isOffline(u) {
		say("will: abort upgrade %s to %s (%s %s) first, because no controller can end it", u.ID, u.TargetVersion, u.State, u.Step)
	}
	if d.Pace.Paused {
		say("will: resume, because a pause blocks the switch")
	}
	if d.Update != nil {
		say("will: cancel data update %s", d.Update.Name)
	}
	if o.newReachable {
		say("will: fence %s, so that no client can write there", o.new)
	} else {
		say("will: leave %s unfenced, because its database is lost: a process that reaches it later can write there", o.new)
	}
	say("will: make %s the current version, with the present data of its database, and give its collections their names", o.old)
}

// keysLack names servers that lack a key for the old version and could not serve it after a
// restart. This process has all keys: otherwise opening the database would have failed.
func (o *Rollback) keysLack(ctx context.Context) string {
	db := o.databases.Database(o.old)
	e, err := db.Encryption(ctx)
	if err != nil {
		return fmt.Sprintf("the keys of the records of %s are unknown: %v", o.old, err)
	}
	lack, err := keys.Lack(ctx, o.store, e.Sealer(), o.old, filepath.Base(o.Config), db.KeysHere())
	if err != nil {
		return err.Error()
	}
	return lack
}

// drive begins or continues the rollback. It returns when clients can write to the old version.
func (o *Rollback) drive(ctx context.Context, log *zap.Logger) error {
	d, err := o.store.Get(ctx)
	if err != nil {
		return err
	}
	fencers := map[string]record.Fencer{}
	keeper := identity.Keeper{Deployments: o.store, Databases: map[string]record.Marker{o.old: o.databases.Database(o.old)}}
	// An aborted upgrade to another version leaves renames there, which end now if they can.
	for _, ns := range d.Namespaces {
		if db := o.databases.Database(ns.Version); db != nil {
			fencers[ns.Version] = db
			if ns.Version != o.old && ns.Version != o.new {
				fencers[ns.Version] = reachable(ctx, ns.Version, db)
			}
		}
	}
	if o.newReachable {
		keeper.Databases[o.new] = o.databases.Database(o.new)
	} else {
		fencers[o.new] = lostFencer{}
	}
	return o.driveOver(ctx, fencers, keeper, log)
}

// driveOver is drive with given databases.
func (o *Rollback) driveOver(ctx context.Context, fencers map[string]record.Fencer, keeper identity.Keeper, log *zap.Logger) error {
	// Before the driver starts: it would continue the switch, without the checks of a controller.
	if err := o.takeOver(ctx); err != nil {
		return err
	}
	driving, stop := context.WithCancel(ctx)
	// The reporter ends the driver once the old version takes writes.
	defer stop()
	g, driving := errgroup.WithContext(driving)
	g.Go(func() error {
		return switchover.New(deployment.ForDriver{Store: o.store}, fencers, switchover.Config{
			HoldTimeout: offlineHold, Policy: upgradestate.Policy{DeadlineMillis: offlineDeadline.Milliseconds()}, Marks: keeper,
		}, log).Run(driving)
	})
	g.Go(func() error {
		defer stop()
		d, err := o.takenOver(driving)
		// After a restart the upgrade runs already, or the flip is done.
		if err == nil && d.CurrentVersion == o.new && d.Upgrade == nil {
			err = o.begin(driving, d)
		}
		if err != nil {
			return err
		}
		return o.report(driving, keeper)
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return ctx.Err()
}

func isOffline(u *upgradestate.Upgrade) bool {
	return strings.HasPrefix(u.ID, offlineID) && u.Snapshot
}

// takeOver aborts the shown upgrade, which this command did not begin. Inside SWITCHING the driver of
// this process then resolves the announced operations. In a lost database none of them has an effect
// any more.
func (o *Rollback) takeOver(ctx context.Context) error {
	d, err := o.store.Get(ctx)
	if err == nil {
		err = o.changed(d)
	}
	if err != nil || d.Upgrade == nil || isOffline(d.Upgrade) {
		return err
	}
	_, err = o.store.Apply(ctx, upgradestate.Abort{ID: d.Upgrade.ID, Reason: "rollback --offline to " + o.old})
	return err
}

// changed refuses a record that differs from the shown one in what the operator confirmed: the switch
// to undo, and the upgrade to abort.
func (o *Rollback) changed(d upgradestate.Deployment) error {
	u, was := d.Upgrade, o.shown.Upgrade
	switch {
	case d.Epoch != o.shown.Epoch:
		return exit.Refusedf("another switch was made meanwhile, and %s is the current version: repeat the command to see what it would do now", d.CurrentVersion)
	case u != nil && !isOffline(u) && (was == nil || was.ID != u.ID):
		return exit.Refusedf("upgrade %s to %s began meanwhile: repeat the command to see what it would do now", u.ID, u.TargetVersion)
	}
	return nil
}

// takenOver waits for the end of the abort, and returns the record without the upgrade.
func (o *Rollback) takenOver(ctx context.Context) (d upgradestate.Deployment, err error) {
	for d = range o.store.Watch(ctx) {
		if err := o.changed(d); err != nil {
			return d, err
		}
		if d.Upgrade == nil || isOffline(d.Upgrade) {
			return d, nil
		}
	}
	return d, ctx.Err()
}

// begin starts an upgrade to the snapshot. The same transaction ends a pause and a data update,
// since either would block the switch.
func (o *Rollback) begin(ctx context.Context, d upgradestate.Deployment) error {
	var events []upgradestate.Event
	if resume := false; d.Pace.Paused {
		events = append(events, upgradestate.SetPace{Paused: &resume})
	}
	if d.Update != nil {
		events = append(events, upgradestate.CancelUpdate{ID: d.Update.ID, Reason: "rollback without a controller"})
	}
	// Begin requires the hash that a controller announced, if one did.
	hash := d.LastSwitch.TransformHash
	for _, a := range d.Available {
		if a.TargetVersion == o.old {
			hash = a.TransformHash
		}
	}
	if hash == "" {
		hash = "none" // nothing is transformed
	}
	detail := "without a controller, to " + o.old
	if !o.newReachable {
		detail += "; the database of " + o.new + " was lost and is not fenced"
	}
	events = append(events,
		upgradestate.Remark{What: "rollback --offline", Detail: detail},
		upgradestate.Begin{ID: offlineID + strings.ToLower(rand.Text()[:12]), TargetVersion: o.old, TransformHash: hash, Snapshot: true})
	_, err := o.store.Apply(ctx, upgradestate.Together{Events: events})
	return err
}

// report reports ready for all shards at each step that waits for them. It returns when the old
// version is open to clients.
func (o *Rollback) report(ctx context.Context, keeper identity.Keeper) error {
	started := false
	for d := range o.store.Watch(ctx) {
		u := d.Upgrade
		_, places := upgradestate.WritePlaces(d)
		switch {
		// The version flips before the last renames. Clients can write only when a place is
		// published.
		case d.CurrentVersion == o.old && len(places) > 0:
			terminal.Printf(o.Say, "done: %s is the current version, in epoch %d\n", o.old, d.Epoch)
			return keeper.Keep(ctx, d)
		// Without started, the watch may still show the time before this upgrade.
		case u == nil && started && d.CurrentVersion == o.new:
			return exit.Refusedf("it was aborted, and %s is still the current version: see 'history', and repeat the command", o.new)
		case u == nil:
			continue
		}
		started = true
		if u.Step != upgradestate.StepNone && u.Step != upgradestate.StepDrain || upgradestate.AllReady(d) {
			continue
		}
		_, err := o.store.Apply(ctx, upgradestate.Report{
			ID: u.ID, State: u.State, Attempt: u.Attempt, Fences: upgradestate.FenceNames(d), Shards: upgradestate.PendingShards(d),
		})
		// Outdated means that the state moved on. The next event of the watch shows it.
		if err != nil && !errors.Is(err, upgradestate.ErrOutdated) {
			return err
		}
	}
	return ctx.Err()
}

// lostFencer stands in for a database that the operator declared lost. It accepts every fence,
// since no writer can reach the data.
type lostFencer struct{}

var errLost = errors.New("the database is lost")

// reachable returns the database as a fencer. For a database that does not answer it returns one that
// fails at once, since each pass of the driver waits for its slowest operation.
func reachable(ctx context.Context, version string, db *databases.Database) record.Fencer {
	bounded, cancel := context.WithTimeout(ctx, newDatabaseWait)
	defer cancel()
	if _, err := db.Get(bounded); err != nil {
		return awayFencer{err: fmt.Errorf("%s: %w; a controller completes it later", version, err)}
	}
	return db
}

// awayFencer stands in for a database that is neither the old nor the new one and does not answer. It
// confirms nothing, because the database may come back.
type awayFencer struct {
	lostFencer
	err error
}

func (a awayFencer) Fence(context.Context, record.Fence) error           { return a.err }
func (a awayFencer) Unfence(context.Context, record.Fence) error         { return a.err }
func (a awayFencer) Prevent(context.Context, record.Fence) (bool, error) { return false, a.err }

func (lostFencer) Ready(context.Context, []record.Fence) error   { return nil }
func (lostFencer) Unready(context.Context, []record.Fence) error { return nil }
func (lostFencer) Fence(context.Context, record.Fence) error     { return nil }
func (lostFencer) Unfence(context.Context, record.Fence) error   { return nil }
func (lostFencer) Prepare(context.Context, record.Token, record.FenceClass) (record.FenceClass, string, error) {
	return "", "", errLost
}
func (lostFencer) Locate(context.Context, string) (string, error)      { return "", errLost }
func (lostFencer) Prevent(context.Context, record.Fence) (bool, error) { return false, nil }
func (lostFencer) Hindrances(context.Context, []record.Token) ([]record.Hindrance, error) {
	return nil, nil
}
func (lostFencer) Uphold(context.Context, record.Fence, []string) ([]record.Breach, error) {
	return nil, nil
}

// quietFlags adds the flags of a command that works without a controller on the databases of a
// configuration. Such a command logs warnings and errors only.
func quietFlags(cmd *cobra.Command, f *process.Flags) {
	cmd.Flags().StringVar(&f.Config, "config", "", "configuration file (YAML); see docs/configuration.md")
	cmd.Flags().StringVar(&f.LogLevel, "log-level", "warn", "debug, info, warn or error")
}

// startProcess opens the configuration, the log and etcd of a command.
func startProcess(ctx context.Context, flags process.Flags) (*process.Process, error) {
	p, err := process.Start(ctx, flags)
	return p, exit.OfStart(err)
}
