package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

var _ api.Planner = (*Planner)(nil)

// errPlanning refuses a second plan at the same time.
var errPlanning = errors.New("a plan is being made already: wait for it")

// plan is one plan in progress. It reads, tries things in its own scratch collections, and changes
// nothing else.
type plan struct {
	*Planner
	record  upgradestate.Deployment
	dir     transform.Direction
	report  *pb.PlanReport
	surveys map[string]record.Survey // by version; absent: no answer from the server
	infos   map[string]record.Info   // by source kind
	sizes   map[string]record.Size   // by source kind
	like    []scratchKind            // kinds of the target after the upgrade
	refused bool                     // the target cannot hold one of its kinds
	tried   measured
	say     func(more string) // reports progress within the present step
}

// step is a part of a plan. With tries it tries something or asks other processes, so it needs a
// controller.
type step struct {
	doing string
	look  func(context.Context) error
	tries bool
}

// possible lists the versions that an upgrade may lead to.
func (l *Planner) possible(d upgradestate.Deployment) string {
	if to := l.Reachable(d); len(to) > 0 {
		return "give a target version: " + strings.Join(to, ", ")
	}
	return "there is none to upgrade to"
}

// Plan reports the needs and effects of an upgrade to target; "" means the version that follows. It
// returns an error if no plan can be made. Reasons against the upgrade are in the report.
func (l *Planner) Plan(ctx context.Context, target string, progress func(api.Work)) (*pb.PlanReport, error) {
	// Two plans would sweep each other's scratch collections.
	if !l.planning.TryLock() {
		return nil, errPlanning
	}
	defer l.planning.Unlock()
	d, err := l.Deployments.Get(ctx)
	if err != nil {
		return nil, err
	}
	if target == "" {
		var ok bool
		if target, ok = l.Wants(d); !ok {
			return nil, fmt.Errorf("no version follows %s: %s", d.CurrentVersion, l.possible(d))
		}
	}
	if !slices.Contains(l.Reachable(d), target) {
		return nil, fmt.Errorf("version %s cannot be reached from %s: %s", target, d.CurrentVersion, l.possible(d))
	}
	// The collections are between two names, so the plan would find them under neither.
	if ns, _ := d.Namespace(d.CurrentVersion); slices.ContainsFunc(ns.Kinds, opens) {
		return nil, fmt.Errorf("after the switch to %s its collections are getting their names: repeat the plan in a moment", d.CurrentVersion)
	}
	dir, err := l.Registry.Direction(d.CurrentVersion, target)
	if err != nil {
		return nil, err
	}
	p := &plan{
		Planner: l, record: d, dir: dir, surveys: map[string]record.Survey{}, infos: map[string]record.Info{}, sizes: map[string]record.Size{},
		report: &pb.PlanReport{FromVersion: dir.From(), ToVersion: dir.To()},
	}
	steps := []step{
		{"checks the deployment", p.state, false}, {"checks servers and applications", p.servers, true}, {"checks connections", p.wires, false},
		{"checks databases and privileges", p.databases, false}, {"checks keys", p.keys, false}, {"checks collections", p.sources, false}, {"checks references between kinds", p.references, false}, {"checks how collections are sharded", p.spread, false},
		{"checks names", p.names, false}, {"checks indexes and options", p.shapes, false}, {"looks for records that the target cannot hold", p.limits, false}, {"tries fences", p.fences, true}, {"copies a sample", p.copy, false},
		{"estimates the space", p.space, false}, {"estimates the oplog", p.oplog, false}, {"proves the rollback", p.rollback, true},
		{"checks whether the upgrade can be undone", p.undo, false}, {"tries scratch databases", p.rehearsal, true},
	}
	if l.ReadOnly {
		p.untried()
		steps = slices.DeleteFunc(steps, func(s step) bool { return s.tries })
	}
	// The order matters: later steps use the findings of earlier ones.
	for i, step := range steps {
		p.say = func(more string) {
			progress(api.Work{Doing: step.doing + more, Done: int64(i), Total: int64(len(steps))})
		}
		p.say("")
		if err := step.look(ctx); err != nil {
			return nil, err
		}
	}
	// Warnings do not prevent an upgrade; failures do.
	p.report.Ok = !slices.ContainsFunc(p.report.Checks, func(c *pb.PlanCheck) bool { return c.Verdict == pb.PlanCheck_FAILED })
	return p.report, nil
}

// opens reports whether a collection is being renamed for its clients.
func opens(k upgradestate.Kind) bool {
	return k.Pending != nil && k.Pending.Reason == upgradestate.PendingOpen
}

// add appends a finding to the report.
func (p *plan) add(verdict pb.PlanCheck_Verdict, area, subject, format string, args ...any) {
	p.report.Checks = append(p.report.Checks, &pb.PlanCheck{Area: area, Subject: subject, Verdict: verdict, Text: fmt.Sprintf(format, args...)})
}

func (p *plan) ok(area, subject, format string, args ...any) {
	p.add(pb.PlanCheck_OK, area, subject, format, args...)
}

func (p *plan) warn(area, subject, format string, args ...any) {
	p.add(pb.PlanCheck_WARNING, area, subject, format, args...)
}

func (p *plan) fail(area, subject, format string, args ...any) {
	p.add(pb.PlanCheck_FAILED, area, subject, format, args...)
}

// failed records an error as a finding. It returns an error only if the plan itself has ended.
func (p *plan) failed(ctx context.Context, area, subject string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.fail(area, subject, "%v", err)
	return nil
}

// state checks whether the deployment allows an upgrade to begin.
func (p *plan) state(context.Context) error {
	d, to := p.record, p.dir.To()
	switch u := d.Upgrade; {
	// A plan during its own upgrade is allowed.
	case u != nil && u.TargetVersion == to:
		p.ok("upgrade", to, "an upgrade to it runs already")
	case u != nil:
		p.fail("upgrade", to, "an upgrade to %s runs: let it end, or abort it", u.TargetVersion)
	case d.Retire != nil:
		p.fail("upgrade", to, "%s is being retired: wait until it ends", d.Retire.Version)
	case d.Update != nil && d.Update.Key == "": // a rotation of keys ends when the upgrade begins
		p.warn("upgrade", to, "data update %s runs, and no switch begins before its end", d.Update.Name)
	case d.Pace.Paused:
		p.warn("upgrade", to, "bulk work is paused: run 'resume' first, or nothing is copied")
	default:
		p.ok("upgrade", to, "it may begin")
	}
	return nil
}

// servers checks the participating controllers, servers and applications.
func (p *plan) servers(ctx context.Context) error {
	store := p.Deployments
	controllers, err := store.Controllers(ctx)
	if err != nil {
		return err
	}
	// Not a failure: one controller can do the upgrade, but its stop stops the upgrade.
	if len(controllers) < 2 {
		p.warn("controllers", strings.Join(controllers, " "), "%d of them run: with a second one the upgrade continues if one stops", len(controllers))
	} else {
		p.ok("controllers", strings.Join(controllers, " "), "%d of them run", len(controllers))
	}
	servers, err := store.Servers(ctx)
	if err != nil {
		return err
	}
	if len(servers) == 0 {
		p.warn("servers", "", "no server or application is registered: no client will hold its writes, so the fence refuses writes until clients find the new place")
	}
	for _, s := range servers {
		what := fmt.Sprintf("protocol %d, versions [%s]", s.Protocol, strings.Join(s.Versions, " "))
		if s.Client {
			what = fmt.Sprintf("protocol %d, an application of fixed-name kinds", s.Protocol)
		}
		// Check each server by itself, so that the report names every server that is too old.
		if err := upgradestate.CheckServers([]upgradestate.ServerState{s}, p.dir.To()); err != nil {
			p.fail("servers", s.ID, "%s: %v", what, err)
			continue
		}
		p.ok("servers", s.ID, "%s: new enough", what)
	}
	return nil
}

// keys checks whether every process can decrypt the target's records after the switch. An unknown
// target has no records yet.
func (p *plan) keys(ctx context.Context) error {
	to := p.dir.To()
	if _, known := p.record.Namespace(to); !known || p.KeysLack == nil {
		return nil
	}
	lack, err := p.KeysLack(ctx, to)
	if err != nil {
		return p.failed(ctx, "keys", to, err)
	}
	if lack != "" {
		p.fail("keys", to, "%s", lack)
	}
	return nil
}

// databases describes the servers of both versions, and tries the privileges there.
func (p *plan) databases(ctx context.Context) error {
	for _, v := range []string{p.dir.From(), p.dir.To()} {
		ns := p.Space(v)
		if ns == nil {
			return fmt.Errorf("version %s is not configured here", v)
		}
		check := ns.Check
		// Check would create collections; reading the marks only proves the connection.
		if p.ReadOnly { // which would try things
			check = func(ctx context.Context) error { _, err := ns.Marks(ctx); return err }
		}
		switch err := check(ctx); {
		case err == nil && p.ReadOnly:
		case err == nil:
			p.ok("privileges", v, "collections can be created, written, indexed, changed, renamed and dropped: all of this was tried")
		case p.Unprivileged(err):
			p.fail("privileges", v, "%v", err)
		default:
			if err := p.failed(ctx, "server", v, err); err != nil {
				return err
			}
			continue
		}
		// Not every backend can describe its server.
		s, known := p.Space(v).(Surveyor)
		if !known {
			continue
		}
		found, err := s.Survey(ctx)
		if err != nil {
			if err := p.failed(ctx, "server", v, err); err != nil {
				// Continue with the other version, so that the report names every problem.
				return err
			}
			continue
		}
		p.surveys[v] = found
		p.server(v, found)
		p.load(ctx, v)
	}
	return nil
}

// load tries the measurement that throttles the copy. Without it the copy stands still.
func (p *plan) load(ctx context.Context, version string) {
	monitor, ok := p.Space(version).(record.Monitor)
	switch {
	case p.Settings.Unthrottled:
		p.warn("load", version, "copying does not slow down under load: copy.throttle is off")
	case ok:
		if _, err := monitor.Health(ctx); err != nil {
			p.fail("load", version, "its load cannot be measured, so that copying would stop: %v, or set copy.throttle: off", err)
			return
		}
		// Without a processor load the limit would silently have no effect.
		bounded := p.Settings.MaxSourceLoad > 0 || p.record.Pace.MaxSourceLoad > 0
		if s := p.surveys[version]; bounded && version == p.dir.From() && (s.NoCPU || s.Mongos) {
			p.warn("load", version, "the bound of the source's load (copy.maxSourceLoad, --max-source-load) has no effect: the database does not report the load of its processors; limit the rate instead (copy.maxRate, --max-rate)")
			return
		}
		p.ok("load", version, "its load can be measured: copying slows down under load")
	}
}

// server reports the findings about a server.
func (p *plan) server(version string, s record.Survey) {
	switch {
	// The server runs with the features of an older release, so its own release does not count.
	case s.Feature != "" && !strings.HasPrefix(s.Server, s.Feature+"."):
		p.warn("server", version, "%s: the server has an older feature compatibility; set featureCompatibilityVersion after its own upgrade is final", s.Text)
	case !s.UUIDs:
		p.warn("server", version, "%s: it does not check collection UUIDs, so the weaker validator fence is used; MongoDB 6.0 and later check them", s.Text)
	default:
		p.ok("server", version, "%s", s.Text)
	}
	if !s.May("inprog") || !s.May("killAnySession") {
		p.warn("privileges", version, "a fence cannot end open transactions and waits for them for up to a minute: grant inprog and killAnySession on the cluster, or the role that 'dbcontroller roles' prints")
	}
	if s.Mongos && !s.May("moveChunk") {
		p.warn("privileges", version, "the switch cannot stop moves of chunks and waits for a running one, up to 10 s, while writes are held: grant moveChunk on the database, or the role that 'dbcontroller roles' prints")
	}
}

// sources checks the collections to copy.
func (p *plan) sources(ctx context.Context) error {
	ns := p.Space(p.dir.From())
	places := upgradestate.EnginePlaces(p.record, p.dir.From())
	for _, k := range p.dir.SourceKinds() {
		name := k.Name // the application's name, unless the record has another
		if at := places[k.Name]; len(at) > 0 {
			name = at[0].Name
		}
		info, err := ns.Describe(ctx, k, name)
		var holds record.Size
		if err == nil && info.Exists {
			holds, err = ns.Size(ctx, info.Token)
		}
		var refused *record.UnsupportedError
		switch {
		case errors.As(err, &refused):
			p.fail("collections", k.Name, "it cannot be a source: %v", err)
		case err != nil:
			if err := p.failed(ctx, "collections", k.Name, err); err != nil {
				return err
			}
		// A first plan, before any controller has created the collections.
		case !info.Exists && !k.Fixed && p.ReadOnly && len(p.record.Namespaces) == 0:
			p.ok("collections", k.Name, "there is no collection %s in the database of %s yet: the first controller creates it", name, p.dir.From())
		case !info.Exists && !transform.IsLineage(k.Name):
			p.fail("collections", k.Name, "there is no collection %s in the database of %s: correct kinds, or the database or prefix in dbs of the configuration", name, p.dir.From())
		// A discontinued kind. The operator must know that its records stay behind.
		case !transform.SyncsFrom(p.dir, k.Name):
			p.warn("collections", k.Name, "%s has no counterpart: its %d records are not migrated", p.dir.To(), holds.Records)
		default:
			// The collection may have another name than its kind.
			info.Token.Kind = k.Name
			p.infos[k.Name], p.sizes[k.Name] = info, holds
			p.ok("collections", k.Name, "%d records, %s", holds.Records, size(holds.Bytes))
		}
	}
	p.views()
	return nil
}

// views warns about views of the source that show other data after the switch.
func (p *plan) views() {
	from, to := p.dir.From(), p.dir.To()
	if text := collections.LeftViews(p.surveys[from].Views, p.dir.SourceKinds(), from, to); text != "" {
		p.warn("views", from, "%s", text)
	}
}

// names checks that the target's names at the switch are free.
func (p *plan) names(ctx context.Context) error {
	if err := p.Collections.CheckNames(ctx, p.record, p.dir.To()); err != nil {
		return p.failed(ctx, "names", p.dir.To(), err)
	}
	p.ok("names", p.dir.To(), "the names that its collections get at the switch are free")
	return nil
}

// rollback tries the rollback, and predicts the pause from its measurements.
func (p *plan) rollback(ctx context.Context) error {
	d := p.record
	if p.refused {
		p.warn("rollback", p.dir.From(), "it cannot be tried until the database of %s can hold all kinds", p.dir.To())
		return nil
	}
	what, text := p.needs(d, p.dir.To(), false)
	if what == needNothing {
		p.ok("rollback", p.dir.From(), "%s", text)
		p.pause(nil)
		return nil
	}
	work, err := p.proof(d, p.dir.To(), what == needRenames)
	var found proved
	if err == nil {
		// A prefix of its own: a Prover may sweep the collections of proofs at the same time.
		work.prefix, work.newPrefix = planPrefix, newPrefix(planPrefix)
		work.at = func(doing string) { p.say(": " + doing) }
		found, err = work.run(ctx)
	}
	switch {
	case err != nil:
		if err := p.failed(ctx, "rollback", p.dir.From(), err); err != nil {
			return err
		}
		p.pause(nil)
		return nil
	case what == needRenames:
		p.warn("rollback", p.dir.From(), "%s", text)
	default:
		p.ok("rollback", p.dir.From(), "%s; controllers prove it again before the switch", found)
	}
	// Measure the coordination store as well: its writes are part of the pause.
	start := time.Now()
	if _, err := p.Deployments.Get(ctx); err != nil {
		return err
	}
	p.pause(found.parts(time.Since(start)))
	return nil
}

// undo reports how long the upgrade can be reverted.
func (p *plan) undo(context.Context) error {
	from := p.dir.From()
	if what, _ := p.needs(p.record, p.dir.To(), false); what == needRenames {
		p.warn("undo", from, "until the flip, 'abort' undoes everything; after it only 'rollback --to-snapshot' does, without the later writes of clients")
		return nil
	}
	p.ok("undo", from, "until the flip, 'abort' undoes everything; after it 'rollback' does, with the later writes of clients; "+
		"'complete' cannot be undone: it sets the collections of %s aside, and drops them after --keep-for", from)
	return nil
}

// rehearsal checks whether 'rehearse' can have its scratch databases. Only rehearse needs them, so
// a problem is no failure of the plan.
func (p *plan) rehearsal(ctx context.Context) error {
	if p.CheckScratch == nil {
		p.warn("rehearsal", "", "'dbcontroller rehearse' will fail: this controller has no scratch databases")
		return nil
	}
	for _, v := range []string{p.dir.From(), p.dir.To()} {
		// Try both versions: they may be on different servers with different privileges.
		database, err := p.CheckScratch(ctx, v)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.warn("rehearsal", v, "'dbcontroller rehearse' will fail: %v", err)
			continue
		}
		p.ok("rehearsal", v, "'dbcontroller rehearse' can create and drop the database %s", database)
	}
	return nil
}

// pause reports the predicted pause. nil parts mean that only the latest switch is known.
func (p *plan) pause(parts map[string]time.Duration) {
	total, known := switchover.Predict(parts, p.record.LastSwitch)
	if !known {
		p.warn("pause", p.dir.To(), "it cannot be predicted: see the rollback")
		return
	}
	ms := total.Milliseconds()
	p.report.PredictedPauseMillis = &ms
	p.ok("pause", p.dir.To(), "writes will be held for about %d ms; lag and slow servers add to it", ms)
}

// size formats a number of bytes.
func size(n int64) string {
	const unit = 1024
	switch {
	case n < unit:
		return fmt.Sprintf("%d bytes", n)
	case n < unit*unit:
		return fmt.Sprintf("%.1f KiB", float64(n)/unit)
	case n < unit*unit*unit:
		return fmt.Sprintf("%.1f MiB", float64(n)/(unit*unit))
	default:
		return fmt.Sprintf("%.1f GiB", float64(n)/(unit*unit*unit))
	}
}
