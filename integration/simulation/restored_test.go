package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// backup copies the database of a version, and returns what restores that copy. Both call at while
// nobody can do anything there.
type backup func(at func()) (restore func(at func()))

func backupOf(c *memstore.Cluster) backup {
	return func(at func()) func(func()) {
		b := c.Backup(at)
		return func(at func()) { c.Restore(b, at) }
	}
}

// restorable is a system whose databases are restored from backups under traffic.
type restorable struct {
	*system
	t       *testing.T
	backups map[string]backup
	seed    uint64
	verbs   []string                 // that were needed
	waits   time.Time                // since when it waits for a decision
	kept    workload.Moment[oldItem] // what counts after a decision to keep the other version

	tr          *traffic
	stop        func() // has clients stop
	halt        func() // has servers stop, too
	resume      func(ctx context.Context)
	served      int
	process     *process // the server
	controllers map[string]*process
	tp          *trap
}

// engines is which version's records are in etcd; "" is none.
type engines string

func (e engines) String() string {
	if e == "" {
		return "both as in MongoDB"
	}
	return crossing(e).String()
}

func (e engines) found(ctx context.Context, t *testing.T, seed uint64) *restorable {
	t.Helper()
	r := &restorable{t: t, seed: seed}
	if e == "" {
		clusters := map[string]*memstore.Cluster{"v1": memstore.NewCluster(memstore.Options{Lag: 3}), "v2": memstore.NewCluster(memstore.Options{Start: 1 << 20})}
		r.backups = map[string]backup{"v1": backupOf(clusters["v1"]), "v2": backupOf(clusters["v2"])}
		r.system = newSystemOf(ctx, t, map[string]database{"v1": clusters["v1"].Open("old"), "v2": clusters["v2"].Open("new")}, registry(), stack)
	} else {
		c := crossing(e)
		server, cluster := c.server(), memstore.NewCluster(memstore.Options{Start: 1 << 40})
		r.backups = map[string]backup{c.other(): backupOf(cluster), string(e): func(at func()) func(func()) {
			b := server.Backup(at)
			return func(at func()) { server.Restore(b, at) }
		}}
		r.system = c.on(ctx, t, server, cluster)
	}
	r.quiet()
	r.halt = func() { r.stop(); r.process.kill() }
	r.resume = func(ctx context.Context) {
		if r.kept != nil {
			r.tr.items.GoneBack(r.kept)
			r.kept = nil
		}
		r.serves(ctx)
	}
	return r
}

func (r *restorable) api() *api.Service {
	return api.New(r.coord, r.admin, api.Config{Upgrades: hashes{r.system}})
}

// state is the backup of a version's database, with what was known of all records then.
type state struct {
	restore func(at func())
	known   workload.Moment[oldItem]
}

func (r *restorable) backup(version string) (s state) {
	s.restore = r.backups[version](func() { s.known = r.tr.items.Now() })
	return s
}

// restore gives a database the state of a backup. undoes says that what clients were told since does
// not count: the restored state is what an operator goes on with.
func (r *restorable) restore(s state, undoes bool) {
	s.restore(func() {
		if undoes {
			r.tr.items.GoneBack(s.known)
		}
	})
}

// livesOn waits until beats were counted in a database after a backup.
func (r *restorable) livesOn(ctx context.Context, version string) {
	r.t.Helper()
	then, _, err := r.admin.LoadBeat(ctx, version)
	r.check(err)
	for now := then; now.Count < then.Count+2; pass(100 * time.Millisecond) {
		now, _, err = r.admin.LoadBeat(ctx, version)
		r.check(err)
	}
}

// serves starts a server with clients.
func (r *restorable) serves(ctx context.Context) {
	r.t.Helper()
	r.served++
	server, process := r.server(ctx, fmt.Sprint("server-", r.served), nil)
	r.process = process
	if r.tr == nil {
		r.tr = newTraffic(r.t, server)
		r.tr.lenient = true // a server whose database is another one refuses
	}
	r.tr.servers[0] = server
	r.drives(ctx)
}

func (r *restorable) drives(ctx context.Context) {
	r.stop = drive(ctx, r.tr, r.seed, 3, 20, 40*time.Millisecond)
}

// goesOn does what operators do until a version is served: they begin, ask for the switch, and
// decide by one verb about a database that was restored.
func (r *restorable) goesOn(ctx context.Context, to, verb string) {
	r.t.Helper()
	var refused error // the latest, which may pass
	for until := time.Now().Add(5 * time.Minute); ; pass(50 * time.Millisecond) {
		d, err := r.admin.Get(ctx)
		r.check(err)
		u := d.Upgrade
		line := upgradestate.RestoredLine(d)
		switch {
		case time.Now().After(until):
			progress, _ := r.admin.Progress(ctx)
			r.t.Fatalf("%s is not served: %+v, upgrade %+v, %v\n%+v", to, d, u, refused, progress)
		case line == "" && u == nil && d.CurrentVersion == to:
			return
		case line == "" && u == nil:
			dir := must(r.registry.Direction(other(to), to))
			_, refused = r.admin.Apply(ctx, upgradestate.Begin{ID: fmt.Sprint("again-", time.Now().UnixNano()), TargetVersion: to, TransformHash: dir.Hash()})
		case line == "" && upgradestate.AllReady(d) && !u.SwitchAsked && u.Policy.Hold:
			_, refused = r.api().Switch(ctx, connect.NewRequest(&dbv1.SwitchRequest{UpgradeId: u.ID}))
		case line == "", u != nil && u.Snapshot:
		default:
			r.decides(ctx, d, line, verb)
		}
	}
}

// decides does what the deployment names as one of the ways out, once a switch was given up or
// cannot be.
func (r *restorable) decides(ctx context.Context, d upgradestate.Deployment, line, verb string) {
	r.t.Helper()
	if r.waits.IsZero() {
		r.waits = time.Now()
	}
	call, version, recovers := strings.Cut(verb, " --current ")
	switching := d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
	names := verb != "" && strings.Contains(line, call)
	switch {
	case time.Since(r.waits) < time.Minute && (switching || !names):
	case !names || switching && !recovers:
		r.t.Fatalf("it waits for %s; wanted is %q, decided was %v; %+v", line, verb, r.verbs, d.Upgrade)
	case recovers:
		r.verbs = append(r.verbs, verb)
		r.recovers(ctx, version)
	default:
		confirm, _ := api.Confirmation(d, d.CurrentVersion)
		_, err := r.api().DecideRestored(ctx, connect.NewRequest(&dbv1.DecideRestoredRequest{
			Name: name, Follow: verb == "restored --follow", Keep: verb == "restored --keep", Confirm: confirm,
		}))
		r.check(err)
		r.verbs = append(r.verbs, verb)
	}
}

// recovers does what 'recover --current' does, with every process stopped.
func (r *restorable) recovers(ctx context.Context, current string) {
	r.t.Helper()
	r.halt()
	for _, p := range r.controllers {
		p.kill()
	}
	was, err := r.admin.Get(ctx)
	r.check(err)
	markers := map[string]record.Marker{}
	for v, db := range r.db {
		markers[v] = db
	}
	var mismatch *identity.MismatchError
	if err := identity.Check(ctx, r.admin, markers); !errors.As(err, &mismatch) {
		r.t.Fatalf("'recover' finds nothing to recover: %v", err)
	}
	e, err := identity.Gather(ctx, name, markers)
	r.check(err)
	e.Doubt(was)
	now, _, err := e.Current(current)
	r.check(err)
	d, _, err := e.Rebuild(now)
	r.check(err)
	r.check(identity.Announce(ctx, d, identity.RecoveryID+"test", markers))
	r.check(identity.Reclaim(ctx, d, markers))
	r.check(r.admin.ForgetBeats(ctx, slices.Collect(maps.Keys(markers))...))
	must(r.admin.Reincarnate(ctx))
	for v, db := range markers {
		r.check((&identity.Pulse{Owner: record.Owner{Deployment: name, Version: v}, DB: db, Beats: r.admin}).Accept(ctx))
	}
	r.check(r.admin.Replace(ctx, d, was.Revision, "", ""))
	r.check(identity.Finalize(ctx, d, markers))
	r.controllers = r.started(ctx, "recovered", 2, r.tp)
	r.resume(ctx)
}

// holds compares what is in a version's database with what clients were told.
func (r *restorable) holds(ctx context.Context, version string) error {
	d, err := r.admin.Get(ctx)
	if err != nil {
		return err
	}
	ns, _ := d.Namespace(version)
	found := map[string][]record.Record{} // by item
	for _, k := range ns.Kinds {
		page, err := r.db[version].Scan(ctx, record.ScanRequest{
			Token: record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID}, Limit: 1 << 20, NotBefore: r.now(ctx, version),
		})
		if err != nil {
			return err
		}
		for _, rec := range page.Records {
			rec.Kind = k.Kind
			key, _ := rec.Key.Name()
			item, _, _ := strings.Cut(key, "/")
			found[item] = append(found[item], rec)
		}
	}
	as := oldItem.String
	if version == "v2" {
		as = func(it oldItem) string { return printOf(newRecords(it.ID, it.N, it.Parts)) }
	}
	seen := workload.Seen{}
	for item, records := range found {
		if version == "v2" {
			seen.Add(item, printOf(records))
		} else {
			seen.Add(item, itemOf(records[0]).String())
		}
	}
	return r.tr.items.Check(version, seen, as).Err()
}

// follows waits until a version has what clients were told.
func (r *restorable) follows(ctx context.Context, version string) {
	r.t.Helper()
	var err error
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); pass(200 * time.Millisecond) {
		if err = r.holds(ctx, version); err == nil {
			return
		}
	}
	r.t.Errorf("%s does not follow: %v", version, err)
}

// ends has clients write on for a while, and compares both versions.
func (r *restorable) ends(ctx context.Context, version, verb string) {
	r.t.Helper()
	if r.kept != nil { // what was written since is given up
		r.tr.items.GoneBack(r.kept)
		r.drives(ctx)
	}
	pass(2 * time.Second)
	r.stop()
	if err := r.holds(ctx, version); err != nil {
		r.t.Errorf("served is %s: %v", version, err)
	}
	if (verb != "") != (len(r.verbs) == 1) {
		r.t.Errorf("decided was %v, want %q", r.verbs, verb)
	}
	for _, f := range r.tr.failed {
		r.t.Error("failed: ", f)
	}
	if r.tr.acked["v1"] == 0 || r.tr.acked["v2"] == 0 {
		r.t.Errorf("acknowledged are %v", r.tr.acked)
	}
	d, err := r.admin.Get(ctx)
	r.check(err)
	if upgradestate.ReverseSynced(d) {
		r.follows(ctx, other(version))
	}
}

func (r *restorable) end() {
	for _, p := range r.controllers {
		p.kill()
	}
	r.process.kill()
}

// quietly has a version come level, with nobody writing, and then restores its neighbour. What
// clients write there afterwards is given up with the decision to keep the other version.
func (r *restorable) quietly(ctx context.Context, follows string, at state) {
	r.t.Helper()
	r.stop()
	r.follows(ctx, follows)
	r.kept = r.tr.items.Now()
	r.restore(at, true)
	r.await(ctx, "the restore is seen", func(d upgradestate.Deployment) bool { return upgradestate.RestoredLine(d) != "" })
	r.drives(ctx)
	pass(300 * time.Millisecond)
	r.stop()
}
