// Package view shows deployments to people: as a page for 'get', as a list, as a view on the terminal that
// 'watch' redraws, and as lines for a log. Its goldens in testdata show all of them.
package view

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

// Deployment prints the whole deployment.
func Deployment(w io.Writer, d *dbv1.Deployment) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, d.GetName())
	writeSummary(&b, d)
	if len(d.GetNamespaces()) > 0 {
		b.WriteByte('\n')
		t := terminal.Table(&b, "  VERSION\tLOCATION\tKIND\tCOLLECTION\tFENCE")
		for _, ns := range d.GetNamespaces() {
			for _, k := range ns.GetKinds() {
				name := k.GetPhysicalName()
				// During a switch, show where the collection is being renamed to.
				if k.GetNextName() != "" {
					name += " -> " + k.GetNextName()
				}
				fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", ns.GetVersion(), ns.GetLocation(), k.GetKind(), name, k.GetFenceClass())
			}
		}
		terminal.Flush(t)
		guarantees(&b, d)
	}
	if len(d.GetServers()) > 0 {
		b.WriteByte('\n')
		t := terminal.Table(&b, "  SERVER\tROLE\tVERSIONS\tACTIVE\tHOLDS\tCALLED")
		for _, s := range d.GetServers() {
			role := "server"
			if s.GetClient() {
				role = "application"
			}
			holds := "no"
			if s.GetAcked() {
				holds = "yes"
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\n", s.GetId(), role, cmp.Or(strings.Join(s.GetVersions(), " "), "-"), cmp.Or(s.GetActiveVersion(), "-"), holds, cmp.Or(usageOf(s), "-"))
		}
		terminal.Flush(t)
	}
	return terminal.Write(w, b.Bytes())
}

// guarantees explains each fence class in use once.
func guarantees(b *bytes.Buffer, d *dbv1.Deployment) {
	said := map[string]string{}
	for _, ns := range d.GetNamespaces() {
		for _, k := range ns.GetKinds() {
			if k.GetFenceGuarantee() != "" {
				said[k.GetFenceClass()] = k.GetFenceGuarantee()
			}
		}
	}
	for _, class := range slices.Sorted(maps.Keys(said)) {
		fmt.Fprintf(b, "  %s: %s\n", class, said[class])
	}
}

func writeSummary(b *bytes.Buffer, d *dbv1.Deployment) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, l := range summary(d) {
		fmt.Fprintf(t, "  %s\t%s\n", l.label, l.text)
	}
	terminal.Flush(t)
}

type labelled struct{ label, text string }

// summary returns the changing part of a deployment, one line for each fact.
func summary(d *dbv1.Deployment) []labelled {
	var out []labelled
	add := func(label, format string, args ...any) {
		out = append(out, labelled{label, fmt.Sprintf(format, args...)})
	}
	if d.GetRegion() != "" {
		add("region", "%s", d.GetRegion())
	}
	add("version", "%s, epoch %d", d.GetCurrentVersion(), d.GetEpoch())
	u := d.GetUpgradeState()
	switch {
	// A running upgrade hides the available ones: only one can run.
	case u != nil:
		add("upgrade", "%s -> %s, %s", d.GetCurrentVersion(), u.GetTargetVersion(), phaseOf(u))
		if u.GetAbortReason() != "" {
			again := ""
			if u.GetAgain() {
				again = "; the switch will be retried"
			}
			add("aborting", "%s%s", u.GetAbortReason(), again)
		}
		if u.GetFailures() > 0 {
			add("given up", "%d attempts at the switch, the latest because: %s", u.GetFailures(), u.GetLastFailure())
		}
		add("policy", "%s", policyOf(u))
		add("shards", "%d of %d ready%s", len(u.GetReadyShards()), d.GetRingSize(), pendingOf(u))
	case len(d.GetAvailableUpgrades()) > 0:
		var to []string
		for _, a := range d.GetAvailableUpgrades() {
			to = append(to, a.GetTargetVersion())
		}
		add("upgrade", "none; available: %s", strings.Join(to, ", "))
	default:
		add("upgrade", "none")
	}
	if p := d.GetPace(); p != nil && paceOf(p) != "" {
		add("pace", "%s", paceOf(p))
	}
	if p := d.GetUpdate(); p != nil {
		add("data update", "%s over %s of %s%s: %d of %d shards, %s seen, %s changed%s", updateName(p), p.GetKind(), p.GetVersion(), kindOf(p),
			p.GetDoneShards(), d.GetRingSize(), terminal.Count(p.GetSeen()), terminal.Count(p.GetChanged()), after("; last error: ", p.GetLastError()))
	}
	for _, f := range d.GetFollowing() {
		add("follows", "%s", followingOf(f))
	}
	for _, ns := range d.GetNamespaces() {
		if text := encryptionOf(ns); text != "" {
			add("encryption", "%s: %s", ns.GetVersion(), text)
		}
	}
	if p := d.GetProgress(); p != nil {
		if p.GetTotal() > 0 { // a rollback copies nothing
			add("copied", "%s", copiedOf(d))
		}
		if u != nil || p.GetTotal() > 0 || p.GetVerified() > 0 || p.GetMaxLagMillis() > 0 {
			add("lag", "%s", lagOf(p.MaxLagMillis))
			add("compared", "%s groups, %s different", terminal.Count(p.GetVerified()), terminal.Count(p.GetMismatched()))
		}
		if p.GetParked() > 0 {
			add("parked", "%s; see 'dbcontroller parked'", terminal.Count(p.GetParked()))
		}
		if p.GetLateDeletes() > 0 {
			add("late deletes", "%s passed the validator fence; the reverse sync undoes them", terminal.Count(p.GetLateDeletes()))
		}
		if len(p.GetWaitsFor()) > 0 && len(d.GetReadiness().GetBlockers()) == 0 { // blockers include these
			add("waits for", "%s", strings.Join(p.GetWaitsFor(), "; "))
		}
		if p.GetLastError() != "" {
			add("last error", "%s", p.GetLastError())
		}
	}
	if r := d.GetReplaced(); r != nil {
		add("replaced", "%s", replacedOf(r, d.GetRingSize()))
	}
	if o := d.GetReadiness(); o != nil {
		add("readiness", "%s", readinessText(o, u))
	}
	if s := d.GetLastSwitch(); s != nil {
		add("last switch", "%s -> %s at %s%s%s", s.GetFromVersion(), s.GetToVersion(), terminal.Time(s.GetAt())+" UTC", pauseOf(s), stepsOf(s.GetMillis()))
	}
	if f := d.GetFormerNames(); f.GetUnknown() != "" {
		add("former names", "the users are unknown: %s", f.GetUnknown())
	}
	for _, u := range d.GetFormerNames().GetUses() {
		add("STILL USED", "%s", useOf(u))
	}
	if r := d.GetReverseSync(); r != nil {
		state := "off"
		if r.GetEnabled() {
			state = "on"
		}
		if r.GetReason() != "" {
			state += ": " + r.GetReason()
		}
		add("reverse sync", "%s", state)
	}
	// Labels in capitals mark states that need an operator.
	for _, line := range d.GetUnreadable() {
		add("UNREADABLE", "%s", line)
	}
	for _, w := range d.GetWarnings() {
		add("INSECURE", "%s", w)
	}
	for _, s := range d.GetServers() {
		for _, w := range s.GetWarnings() {
			add("INSECURE", "server %s: %s", s.GetId(), w)
		}
	}
	for _, s := range d.GetServers() {
		for _, c := range s.GetCopies() {
			add("copies", "%s", copiesOf(c))
		}
	}
	for _, s := range d.GetServers() {
		for _, m := range s.GetMoves() {
			add("moves", "%s", movesOf(m))
		}
	}
	if line := d.GetRestored(); line != "" {
		add("RESTORED", "it waits for %s", line)
	}
	if line := d.GetDifferent(); line != "" {
		add("DIFFERENT", "the switch waits for %s", line)
	}
	if line := d.GetViews(); line != "" {
		add("views", "%s", line)
	}
	for _, b := range d.GetBreaches() {
		add("BREACH", "%s of %s: %s", b.GetKind(), b.GetVersion(), b.GetWhat())
	}
	if r := d.GetRollbackSafe(); r != nil {
		add("rollback", "%s", rollbackOf(r))
		for _, line := range r.GetLacks() {
			add("rollback", "it will lack: %s", line)
		}
	}
	if d.GetRetiring() != "" {
		add("retiring", "%s: its namespace is being set aside, or dropped", d.GetRetiring())
	}
	if len(d.GetRetired()) > 0 {
		add("retired", "%s", strings.Join(d.GetRetired(), ", "))
	}
	for _, k := range d.GetKept() {
		until := "being dropped"
		if k.GetUntil() != "" {
			until = "until " + k.GetUntil()
		}
		add("kept", "%s in %s, %s: %s", k.GetVersion(), k.GetLocation(), until, strings.Join(k.GetCollections(), ", "))
	}
	if len(d.GetControllers()) > 0 {
		add("controllers", "%s", strings.Join(d.GetControllers(), " "))
	}
	return out
}

// copiesOf describes the copies of another region's records.
func copiesOf(c *dbv1.RegionCopies) string {
	text := fmt.Sprintf("%s of region %s in %s: ", c.GetKind(), c.GetRegion(), c.GetVersion())
	switch {
	case c.GetAway() == "" && c.GetWhole():
		text += "up to date"
	case !c.GetWhole():
		text += "incomplete, records are missing"
	default:
		text += "perhaps outdated since " + terminal.Time(c.GetAway()) + " UTC"
	}
	if c.GetProblem() != "" {
		text += ": " + c.GetProblem()
	}
	if c.GetBoth() > 0 {
		text += fmt.Sprintf("; OWNED TWICE: %d", c.GetBoth())
	}
	return text
}

// movesOf describes the moves of records to or from another region.
func movesOf(m *dbv1.RegionMoves) string {
	way := "to"
	if m.GetIn() {
		way = "from"
	}
	text := fmt.Sprintf("%s %s region %s: %d since %s UTC", m.GetKind(), way, m.GetRegion(), m.GetCount(), terminal.Time(m.GetSince()))
	if m.GetCount() > 1 {
		text += ", the oldest is"
	} else {
		text += ","
	}
	return text + " " + m.GetRecord() + ": " + m.GetWaits()
}

func phaseOf(u *dbv1.UpgradeState) string {
	s := u.GetState().String()
	if u.GetStep() != "" {
		s += "/" + u.GetStep()
	}
	return s
}

// pendingOf names the shards that are not ready, unless there are too many for a line.
func pendingOf(u *dbv1.UpgradeState) string {
	const most = 16
	pending := u.GetPendingShards()
	if len(pending) == 0 || len(pending) > most {
		return ""
	}
	names := make([]string, len(pending))
	for i, s := range pending {
		names[i] = fmt.Sprint(s)
	}
	return "; pending " + strings.Join(names, " ")
}

func copiedOf(d *dbv1.Deployment) string {
	p := d.GetProgress()
	s := fmt.Sprintf("%s of %s", terminal.Count(p.GetCopied()), terminal.Count(p.GetTotal()))
	if p.GetTotal() > 0 {
		s += fmt.Sprintf(" (%d %%)", p.GetCopied()*100/p.GetTotal())
	}
	if p.GetRate() >= 1 {
		s += fmt.Sprintf(", %s/s", terminal.Count(int64(p.GetRate())))
	}
	if p.EtaSeconds != nil && p.GetCopied() < p.GetTotal() {
		s += fmt.Sprintf(", %s left", terminal.Seconds(p.GetEtaSeconds()))
	}
	// A shard without an owner reports nothing. Counting it as 0 would be wrong.
	if n := p.GetReportingShards(); n < d.GetRingSize() {
		s += fmt.Sprintf("; %d of %d shards, the others have no controller", n, d.GetRingSize())
	}
	return s
}

func lagOf(lag *int64) string {
	if lag == nil {
		return "not known"
	}
	return terminal.Millis(*lag)
}

// pauseOf returns the total time that a switch held writes.
func pauseOf(s *dbv1.LastSwitch) string {
	if len(s.GetMillis()) == 0 {
		return ""
	}
	return ", writes held " + terminal.Millis(int64(s.GetPauseMillis()))
}

// stepsOf lists the durations of a switch's steps in their order. A prediction also has the restart
// of the servers' stacks.
func stepsOf(millis map[string]int32) string {
	var parts []string
	for _, step := range []string{"hold", "fence", "drain", "seal", "flip", "restart"} {
		if n, ok := millis[step]; ok {
			parts = append(parts, fmt.Sprintf("%s %d ms", step, n))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// List prints deployments as a table.
func List(w io.Writer, all *dbv1.ListDeploymentsResponse) error {
	var b bytes.Buffer
	// Most configurations name no other region.
	regions := len(all.GetRegions()) > 0
	head := "NAME\tVERSION\tUPGRADE\tSTATE\tREADY"
	if regions {
		head += "\tREGION"
	}
	t := terminal.Table(&b, head)
	for _, d := range all.GetDeployments() {
		to, state, ready := "-", "-", "-"
		if u := d.GetUpgradeState(); u != nil {
			to, state = u.GetTargetVersion(), phaseOf(u)
			ready = fmt.Sprintf("%d/%d", len(u.GetReadyShards()), d.GetRingSize())
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s", d.GetName(), d.GetCurrentVersion(), to, state, ready)
		if regions {
			fmt.Fprintf(t, "\t%s", cmp.Or(d.GetRegion(), "here"))
		}
		fmt.Fprintln(t)
	}
	terminal.Flush(t)
	for _, r := range all.GetRegions() {
		if r.GetUnavailable() != "" {
			fmt.Fprintf(&b, "region %s is not listed: %s\n", r.GetName(), r.GetUnavailable())
		}
	}
	return terminal.Write(w, b.Bytes())
}

// Parked prints parked records as a table.
func Parked(w io.Writer, ps []*dbv1.ParkedRecord) error {
	if len(ps) == 0 {
		return terminal.Write(w, []byte("nothing is parked\n"))
	}
	var b bytes.Buffer
	t := terminal.Table(&b, "KIND\tKEY\tVERSION\tSHARD\tWAIVED\tERROR")
	for _, p := range ps {
		waived := "no"
		if p.GetWaived() {
			waived = "yes"
		}
		// The error may hold a stack trace. Its first line is the message.
		first, _, _ := strings.Cut(p.GetError(), "\n")
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", cmp.Or(p.GetKind(), "-"), cmp.Or(p.GetKey(), "-"), cmp.Or(p.GetVersion(), "-"), p.GetShard(), waived, first)
	}
	terminal.Flush(t)
	return terminal.Write(w, b.Bytes())
}
