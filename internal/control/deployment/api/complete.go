package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/upgradestate"
)

const (
	// defaultUnused is how long a retired version's API must have been without calls.
	defaultUnused = time.Hour
	// defaultKept is how long the collections of a retired version are kept under other names.
	defaultKept = 24 * time.Hour
	// longestAsked bounds both times in a request.
	longestAsked = 366 * 24 * time.Hour
)

// Complete implements the API. The record refuses to retire a version that is needed. Complete
// checks the rest: whether anybody uses the version, and whether the caller knows what will be
// deleted. The check of use is a courtesy, because the clients of a version are served from the
// current one after the deletion.
func (v *Service) Complete(ctx context.Context, req *connect.Request[pb.CompleteRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	m := req.Msg
	unused := time.Duration(m.UnusedForMs) * time.Millisecond
	switch {
	case m.Version == "":
		return nil, invalid("version", "", "the version to retire, such as v1")
	case m.UnusedForMs < 0 || m.UnusedForMs > longestAsked.Milliseconds():
		return nil, invalid("unused_for_ms", itoa(m.UnusedForMs), fmt.Sprintf("0 for %d, or up to %d", defaultUnused.Milliseconds(), longestAsked.Milliseconds()))
	case m.GetKeepForMs() < 0 || m.GetKeepForMs() > longestAsked.Milliseconds():
		return nil, invalid("keep_for_ms", itoa(m.GetKeepForMs()), fmt.Sprintf("0 to drop at once, or up to %d", longestAsked.Milliseconds()))
	case m.UnusedForMs == 0:
		unused = defaultUnused
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	lost, err := v.declaredLost(ctx, s, d, m)
	if err != nil {
		return nil, err
	}
	// The version is retired and its collections are kept: change only the time.
	if _, kept := upgradestate.KeptNamespace(d, m.Version); kept && m.KeepForMs != nil && !lost {
		return v.keep(ctx, s, d, m)
	}
	ev := upgradestate.Complete{Version: m.Version, Until: keptUntil(m, time.Now()), Lost: lost}
	if !upgradestate.Retired(d, m.Version) {
		if err := v.mayRetire(ctx, s, d, m, ev, unused); err != nil {
			return nil, err
		}
	}
	waits := ""
	if _, kept := upgradestate.KeptNamespace(d, m.Version); kept && !lost {
		if gone, why := v.retireLacks(ctx, s, d, m.Version); why != nil {
			waits = "; " + lostHint(d, m.Version, why, gone)
		}
	}
	// A retired version needs no second check: the call is a repetition, or gives up its data.
	res, err := v.change(ctx, s, m, ev, completeEffects, func(d upgradestate.Deployment) string {
		if slices.Contains(d.Retired, m.Version) {
			return m.Version + " was retired already" + waits
		}
		return m.Version + " is being retired already" + waits
	})
	return asking(res, err, m, d, m.Version)
}

// keep changes how long the collections of a retired version are kept. It needs the same
// confirmation as the retirement, because it may drop them at once.
func (v *Service) keep(ctx context.Context, s *deployment.Store, d upgradestate.Deployment, m *pb.CompleteRequest) (*connect.Response[pb.Deployment], error) {
	ev := upgradestate.Keep{Version: m.Version, Until: keptUntil(m, time.Now())}
	would := fmt.Sprintf("drop the collections of %s now", m.Version)
	if ev.Until != "" {
		would = fmt.Sprintf("keep the collections of %s until %s", m.Version, ev.Until)
	}
	// Repeated confirmation is required, since a shorter time may drop data at once.
	want, _ := Confirmation(d, m.Version)
	if m.Confirm != want && (m.Confirm != "" || !m.DryRun) {
		return nil, refuse("complete: " + unconfirmed(d, m.Version, m.Confirm, would))
	}
	changes := func(before, after upgradestate.Deployment) []string {
		was, _ := upgradestate.KeptNamespace(before, m.Version)
		if is, _ := upgradestate.KeptNamespace(after, m.Version); is.Until == was.Until {
			return nil
		}
		return []string{would}
	}
	res, err := v.change(ctx, s, m, ev, changes, func(upgradestate.Deployment) string {
		return "the collections of " + m.Version + " are kept until then already, or are being dropped"
	})
	return asking(res, err, m, d, m.Version)
}

// keptUntil returns when the collections of a version that is retired now are dropped. Empty means
// at once.
func keptUntil(m *pb.CompleteRequest, now time.Time) string {
	keep := defaultKept
	if m.KeepForMs != nil {
		keep = time.Duration(m.GetKeepForMs()) * time.Millisecond
	}
	if keep == 0 {
		return ""
	}
	return now.Add(keep).UTC().Format(time.RFC3339)
}

// mayRetire checks the conditions that the record does not contain: use and confirmation.
func (v *Service) mayRetire(ctx context.Context, s *deployment.Store, d upgradestate.Deployment, m *pb.CompleteRequest, ev upgradestate.Complete, unused time.Duration) error {
	// Let the record refuse first; its reasons are more important.
	after, err := upgradestate.Apply(d, ev)
	if err != nil {
		return err
	}
	// Against a lost target 'recover' does not help, because it needs every database.
	if d.LastSwitch == nil && !ev.Lost {
		if gone, why := v.retireLacks(ctx, s, d, m.Version); gone {
			return refuse("complete: " + lostHint(d, m.Version, why, gone))
		}
		return refuse(fmt.Sprintf("complete: %s is still in use: no switch was made yet", m.Version))
	}
	// Servers report their own use; an unreadable one could be using the version.
	servers, err := s.Servers(ctx)
	if err != nil {
		return err
	}
	// If two versions serve the same API, calls of it do not show use of the old version.
	if api := upgradestate.APIVersion(m.Version); api != upgradestate.APIVersion(d.CurrentVersion) {
		if who := userOf(servers, api, unused, m.IgnoreUsage, time.Now()); who != "" {
			return refuse("complete: " + who)
		}
	}
	if who := servedLately(d, m.Version, unused, m.IgnoreUsage, time.Now()); who != "" {
		return refuse("complete: " + who)
	}
	want, _ := Confirmation(d, m.Version)
	if !ev.Lost && m.Confirm != want && (m.Confirm != "" || !m.DryRun) {
		return refuse("complete: " + unconfirmed(d, m.Version, m.Confirm, strings.Join(completeEffects(d, after), "; ")))
	}
	// A retirement that waits for a lost database blocks every upgrade and rollback.
	if gone, why := v.retireLacks(ctx, s, d, m.Version); why != nil && !ev.Lost {
		return refuse("complete: " + lostHint(d, m.Version, why, gone))
	}
	return nil
}

// lostSuffix follows the confirmation of a caller who declares that the version's database is lost.
const lostSuffix = "/lost"

// lostHint explains how to retire a version whose data cannot be dropped. Only data that may be gone
// can be given up.
func lostHint(d upgradestate.Deployment, version string, why error, gone bool) string {
	if !gone {
		return fmt.Sprintf("the data of %s cannot be dropped: %v; its database answers, so it is not lost: correct this and repeat the command (if it is lost for good and another server has its address, remove %s from dbs first)",
			version, why, version)
	}
	want, _ := Confirmation(d, version)
	return fmt.Sprintf("the data of %s cannot be dropped: %v; if its database is lost for good, give --confirm %s%s, and nothing is dropped there",
		version, why, want, lostSuffix)
}

// declaredLost reports whether the caller declares the database of the version lost. It refuses that
// while the database answers, because its data would stay there for ever.
func (v *Service) declaredLost(ctx context.Context, s *deployment.Store, d upgradestate.Deployment, m *pb.CompleteRequest) (bool, error) {
	want, _ := Confirmation(d, m.Version)
	if m.Confirm != want+lostSuffix {
		return false, nil
	}
	switch gone, why := v.retireLacks(ctx, s, d, m.Version); {
	case why == nil:
		return false, refuse(fmt.Sprintf("complete: the database of %s is not lost, as far as this controller can see: give --confirm %s", m.Version, want))
	case !gone:
		return false, refuse("complete: " + lostHint(d, m.Version, why, gone))
	}
	return true, nil
}

// retireLacks returns why the data of a version cannot be dropped, and whether its database may be
// gone. Only controllers of the deployment can know.
func (v *Service) retireLacks(ctx context.Context, s *deployment.Store, d upgradestate.Deployment, version string) (gone bool, why error) {
	if s != v.own || v.cfg.RetireLacks == nil {
		return false, nil
	}
	return v.cfg.RetireLacks(ctx, d, version)
}

// completeEffects lists the effects of a retirement.
func completeEffects(before, after upgradestate.Deployment) []string {
	if len(after.Kept) < len(before.Kept) {
		return []string{"forget the collections that were set aside; nothing is dropped"}
	}
	if r := after.Retire; r != nil && r.Lost && before.Retire != nil && !before.Retire.Lost {
		return []string{fmt.Sprintf("end the retirement of %s without its database; nothing is dropped there", r.Version)}
	}
	if before.Retire != nil || after.Retire == nil {
		return nil
	}
	ns, _ := before.Namespace(after.Retire.Version)
	var does []string
	until := after.Retire.Until
	for _, k := range ns.Kinds {
		if after.Retire.Lost {
			does = append(does, fmt.Sprintf("leave collection %s (%s) of %s, whose database is lost", k.Physical, k.Kind, ns.Location))
			continue
		}
		if until == "" {
			does = append(does, fmt.Sprintf("drop collection %s (%s) of %s", k.Physical, k.Kind, ns.Location))
		} else {
			does = append(does, fmt.Sprintf("set collection %s (%s) of %s aside as %s", k.Physical, k.Kind, ns.Location, upgradestate.RetiredName(ns.Version, k)))
		}
		// Only fixed-name kinds leave a view, and only if no other kind needs the name.
		if k.Fixed && k.ID != "" && !upgradestate.Namesake(before, ns, k) {
			does = append(does, fmt.Sprintf("leave a view %s, so that applications that still use this name get an error; the database stays for the view", k.Kind))
		}
	}
	if until != "" {
		does = append(does, fmt.Sprintf("drop the collections that are set aside at %s", until))
	}
	return append(does,
		fmt.Sprintf("drop the state of copying to and from %s", ns.Version),
		fmt.Sprintf("no upgrade or rollback to %s is possible afterwards", ns.Version))
}

// servedLately explains that a version was current within the time that it must be unused. It
// returns "" if not, or if the time is unknown. Applications of fixed-name kinds used the version
// until then, and most reasons for a rollback appear soon.
func servedLately(d upgradestate.Deployment, version string, unused time.Duration, ignoreUsage bool, now time.Time) string {
	last := d.LastSwitch
	if ignoreUsage || last == nil || last.From != version {
		return ""
	}
	left, err := time.Parse(time.RFC3339, last.At)
	if err != nil || now.Sub(left) >= unused {
		return ""
	}
	return fmt.Sprintf("%s was served until %s, less than %s ago: wait, give a shorter --unused-for, or give --ignore-usage", version, last.At, unused)
}

// userOf names a server that uses a version, or cannot report its use. "" means none. Applications
// of fixed-name kinds do not count, because they ask for the location of the data.
func userOf(servers []upgradestate.ServerState, version string, unused time.Duration, ignoreUsage bool, now time.Time) string {
	for _, s := range servers {
		switch {
		// Applications ask for the location, and follow a switch by themselves.
		case s.Client:
		case upgradestate.APIVersion(s.Active) == version:
			return fmt.Sprintf("server %s serves from %s now: wait until it has followed the switch, or stop it", s.ID, version)
		case len(s.Versions) == 1 && s.Versions[0] == version:
			return fmt.Sprintf("server %s knows only %s: update or stop it", s.ID, version)
		case ignoreUsage:
		default:
			if why := usedLately(s, version, unused, now); why != "" {
				return why + ", or give --ignore-usage"
			}
		}
	}
	return ""
}

// usedLately explains a server's recent use of a version, or why it is unknown. It returns "" if
// the version was unused.
func usedLately(s upgradestate.ServerState, version string, unused time.Duration, now time.Time) string {
	since, err := time.Parse(time.RFC3339, s.Since)
	// A server without counters may be an older binary.
	if s.Since == "" || err != nil {
		return fmt.Sprintf("server %s does not report how its APIs are used: see its /usage", s.ID)
	}
	used := s.Used[version]
	if last, err := time.Parse(time.RFC3339, used.Last); err == nil && now.Sub(last) < unused {
		return fmt.Sprintf("server %s was called by %s %d times, the last time at %s, less than %s ago: move its clients first (its /usage names them)",
			s.ID, version, used.Calls, used.Last, unused)
	} else if err != nil && used.Calls > 0 {
		return fmt.Sprintf("server %s was called by %s %d times and does not report when: see its /usage", s.ID, version, used.Calls)
	}
	if now.Sub(since) < unused {
		return fmt.Sprintf("server %s counts calls only since %s, and %s without calls by %s are required: wait, give a shorter --unused-for",
			s.ID, s.Since, unused, version)
	}
	return ""
}
