package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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

// restoredCell is a restore in a phase of the way from v1 to v2.
type restoredCell struct {
	version string // whose database is restored
	at      moment // in which it happens; "tail": held at ready
	passes  bool   // and the controller that is there goes on
	verb    string // by which an operator decides; empty: none is needed
}

func (c restoredCell) String() string {
	return fmt.Sprintf("%s, %s, passes %t, %s", c.version, c.at, c.passes, c.verb)
}

// restoredCells are the phases before the flip.
var restoredCells = []restoredCell{
	{"v1", moment{"load", 2}, false, "restored --follow"},
	{"v1", moment{"tail", 0}, false, "restored --follow"},
	{"v1", moment{"tail", 0}, false, "restored --keep"},
	{"v1", moment{"at HOLD", 0}, false, "restored --follow"},
	{"v1", moment{"fence v1", 0}, false, "restored --follow"},
	{"v1", moment{"fenced v1", 0}, false, "restored --follow"},
	{"v1", moment{"at DRAIN", 0}, false, "recover --current v1"},
	{"v1", moment{"at SEAL_TARGET", 0}, false, "recover --current v1"},
	{"v1", moment{"at SEAL_SOURCE", 0}, false, "recover --current v1"},
	{"v1", moment{"flip", 0}, true, ""}, // it has everything that v1 had
	{"v2", moment{"load", 2}, false, ""},
	{"v2", moment{"tail", 0}, false, ""},
	{"v2", moment{"at HOLD", 0}, false, ""},
	{"v2", moment{"fenced v1", 0}, false, ""},
	{"v2", moment{"at DRAIN", 0}, false, ""},
	{"v2", moment{"at SEAL_TARGET", 0}, false, ""},
	{"v2", moment{"at SEAL_SOURCE", 0}, false, ""},
	{"v2", moment{"flip", 0}, true, "recover --current v1"}, // nothing was acknowledged by v2
	// The commit of the flip is lost: the driver looks at the databases before the next one.
	{"v2", moment{"flip", 0}, false, ""},
}

// allEngines are the pairs of engines.
var allEngines = []engines{"", "v1", "v2"}

// TestRestoredOnTheWay restores the database of each version in each phase of an upgrade, under
// traffic. At ready it does so in either engine, and elsewhere with one pair of engines in turn.
// Nothing is lost that was acknowledged, unless the restore of the served version itself has undone
// it. The upgrade goes on, by itself or by the one verb that the deployment names.
func TestRestoredOnTheWay(t *testing.T) {
	for i, c := range cases(restoredCells) {
		in := []engines{"", engines(c.version)}
		if c.at.what != "tail" { // what differs is what others do meanwhile, and the names
			in = allEngines[i%len(allEngines):][:1]
		}
		for _, e := range turns(i, in...) {
			t.Run(fmt.Sprintf("%s/%s", e, c), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { restoredOnTheWay(t, e, uint64(i), c) })
			})
		}
	}
}

func restoredOnTheWay(t *testing.T, e engines, seed uint64, c restoredCell) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := e.found(ctx, t, seed)
	r.serves(ctx)
	pass(time.Second)
	struck := make(chan struct{})
	var at state
	strikes := func(*process) {
		r.restore(at, c.version == "v1" && c.verb != "")
		close(struck)
	}
	r.tp = &trap{moment: c.at, spring: strikes, passes: c.passes}
	copying := c.at.what == "load"
	r.manual = true
	if copying {
		r.maxRate = 60
	}
	r.controllers = r.started(ctx, "controller", 2, r.tp)
	if !copying {
		r.beginHeld(ctx)
		r.await(ctx, "ready", ready)
	}
	at = r.backup(c.version)
	r.livesOn(ctx, c.version)
	if copying {
		r.beginHeld(ctx)
		soon(t, struck)
	}
	switch {
	case c.verb == "restored --keep":
		r.quietly(ctx, "v2", at)
	case c.at.what == "tail":
		strikes(nil)
	}
	r.goesOn(ctx, "v2", c.verb)
	if r.kept == nil {
		soon(t, struck)
	}
	r.ends(ctx, "v2", c.verb)
	cancel()
	r.end()
}

// TestRestoredAfterTheSwitch is TestRestoredOnTheWay after the switch to v2: before the rollback, and
// in each step of its switch. A backup of the night is from before the switch.
func TestRestoredAfterTheSwitch(t *testing.T) {
	before := moment{} // the rollback begins afterwards
	for i, c := range cases([]restoredLater{
		{"v1", false, before, ""},
		{"v1", true, before, ""},
		{"v2", false, before, "restored --follow"},
		{"v2", false, before, "restored --keep"},
		{"v2", true, before, "recover --current v2"},
		{"v2", true, before, "recover --current v1"},
		{"v1", false, moment{"at HOLD", 0}, ""},
		{"v1", false, moment{"fenced v2", 0}, ""},
		{"v1", false, moment{"at DRAIN", 0}, ""},
		{"v1", false, moment{"at SEAL_TARGET", 0}, ""},
		{"v1", false, moment{"at SEAL_SOURCE", 0}, ""},
		{"v1", false, moment{"flip v1", 0}, ""}, // the commit of the flip is lost
		{"v2", false, moment{"at HOLD", 0}, "restored --follow"},
		{"v2", false, moment{"fenced v2", 0}, "restored --follow"},
		{"v2", false, moment{"at DRAIN", 0}, "recover --current v2"},
		{"v2", false, moment{"at SEAL_TARGET", 0}, "recover --current v2"},
		{"v2", false, moment{"at SEAL_SOURCE", 0}, "recover --current v2"},
	}) {
		in := []engines{"", engines(c.version)}
		if c.at != before { // as in TestRestoredOnTheWay
			in = allEngines[i%len(allEngines):][:1]
		}
		for _, e := range turns(i, in...) {
			t.Run(fmt.Sprintf("%s/%s", e, c), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { restoredAfterTheSwitch(t, e, uint64(i), c) })
			})
		}
	}
}

// restoredLater is a restore after the switch to v2.
type restoredLater struct {
	version string // whose database is restored
	night   bool   // from a backup of before the switch
	at      moment // of the rollback in which it happens; the zero moment: before it
	verb    string // by which an operator decides; empty: none is needed
}

func (c restoredLater) String() string {
	at := "before the rollback"
	if c.at.what != "" {
		at = c.at.String()
	}
	return fmt.Sprintf("%s, night %t, %s, %s", c.version, c.night, at, c.verb)
}

func restoredAfterTheSwitch(t *testing.T, e engines, seed uint64, c restoredLater) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := e.found(ctx, t, seed)
	r.serves(ctx)
	pass(time.Second)
	r.tp = &trap{}
	r.controllers = r.started(ctx, "controller", 2, r.tp)
	r.beginHeld(ctx)
	r.await(ctx, "ready", ready)
	var at state
	if c.night {
		r.stop()
		r.follows(ctx, "v2")
		at = r.backup(c.version)
		r.drives(ctx)
	}
	r.goesOn(ctx, "v2", "")
	pass(2 * time.Second)
	if !c.night {
		at = r.backup(c.version)
	}
	r.livesOn(ctx, c.version)
	struck := make(chan struct{})
	switch {
	case c.at.what != "":
		r.tp.arm(c.at, func(*process) {
			r.restore(at, c.version == "v2")
			close(struck)
		})
	case c.verb == "restored --keep" || c.verb == "recover --current v1":
		r.quietly(ctx, "v1", at)
	default:
		r.restore(at, c.version == "v2")
	}
	r.goesOn(ctx, "v1", c.verb)
	if c.at.what != "" {
		soon(t, struck)
	}
	r.ends(ctx, "v1", c.verb)
	cancel()
	r.end()
}
