package view

import (
	"cmp"
	"fmt"
	"strings"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

// Standing returns the state of a deployment on one line, for the result of a changing command.
func Standing(d *dbv1.Deployment) string {
	parts := []string{d.GetCurrentVersion() + " is current, no upgrade runs"}
	if u := d.GetUpgradeState(); u != nil {
		parts[0] = fmt.Sprintf("%s -> %s, %s, %d of %d shards ready", d.GetCurrentVersion(), u.GetTargetVersion(), phaseOf(u), len(u.GetReadyShards()), d.GetRingSize())
		if u.GetAbortReason() != "" {
			parts = append(parts, "aborting: "+u.GetAbortReason())
		} else {
			parts = append(parts, policyOf(u))
		}
	}
	if pace := paceOf(d.GetPace()); pace != "" {
		parts = append(parts, pace)
	}
	if u := d.GetUpdate(); u != nil {
		parts = append(parts, fmt.Sprintf("data update %s runs, %d of %d shards done", updateName(u), u.GetDoneShards(), d.GetRingSize()))
	}
	if d.GetRetiring() != "" {
		parts = append(parts, d.GetRetiring()+" is being retired")
	}
	return strings.Join(parts, "; ")
}

// updateName returns the name of a data update, with the key that a rotation moves to.
func updateName(u *dbv1.DataUpdate) string { return u.GetName() + after(" to ", u.GetKey()) }

// kindOf returns the position of a rotation among the kinds, or "" if there is only one.
func kindOf(u *dbv1.DataUpdate) string {
	if u.GetKinds() <= 1 {
		return ""
	}
	return fmt.Sprintf(", kind %d of %d", u.GetDoneKinds()+1, u.GetKinds())
}

// followingOf returns the passes of a data update that begins by itself, and the condition of the next
// one.
func followingOf(f *dbv1.Following) string {
	parts := []string{fmt.Sprintf("%s follows %s to %s", f.GetTask(), f.GetDeployment(), f.GetVersion())}
	switch {
	case f.GetRunning():
		parts = append(parts, fmt.Sprintf("pass %d runs", f.GetPasses()))
	case f.GetPasses() > 0:
		parts = append(parts, fmt.Sprintf("%s, %s changed; the latest: %s", passesOf(f), terminal.Count(f.GetChanged()), f.GetOutcome()))
	}
	if f.GetAgain() {
		parts = append(parts, "another pass follows")
	}
	if f.GetWaitsFor() != "" {
		parts = append(parts, "waits for "+f.GetWaitsFor())
	}
	return strings.Join(parts, "; ")
}

func passesOf(f *dbv1.Following) string {
	if f.GetPasses() == 1 {
		return "1 pass"
	}
	return fmt.Sprintf("%d passes", f.GetPasses())
}

// encryptionOf returns the keys of a namespace's records and any pending rotation. It returns "" if
// the namespace has no keys.
func encryptionOf(ns *dbv1.Namespace) string {
	const off = "off"
	e := ns.GetEncryption()
	if e == nil {
		return ""
	}
	under := func(key string) string {
		if key == off {
			return "plain"
		}
		return "under " + key
	}
	var parts []string
	switch {
	case e.GetKey() == "":
		parts = append(parts, "not known yet")
	case e.GetEvery():
		parts = append(parts, "every record is "+under(e.GetKey()))
	default:
		parts = append(parts, fmt.Sprintf("written %s, records may be under %s: NOT PROMISED that all are %s", under(e.GetKey()), strings.Join(e.GetKeys(), ", "), under(e.GetKey())))
	}
	if e.GetActive() != e.GetKey() && e.GetKey() != "" {
		parts = append(parts, "configured as active is "+e.GetActive())
	}
	if e.GetDeclined() != "" {
		parts = append(parts, fmt.Sprintf("a rotation to %s was cancelled or failed for some records: 'dbcontroller keys rotate' restarts it", e.GetDeclined()))
	}
	if e.GetError() != "" {
		parts = append(parts, "the database does not answer"+after(" since ", e.GetAt())+": "+e.GetError())
	}
	return strings.Join(parts, "; ")
}

// paceOf returns the limits on bulk work. "" means the configured pace, without a limit in effect
// now.
func paceOf(p *dbv1.Pace) string {
	var parts []string
	if p.GetPaused() {
		parts = append(parts, "PAUSED"+after(": ", p.GetReason())+"; 'dbcontroller resume' ends the pause")
	}
	if p.GetMaxRate() > 0 {
		parts = append(parts, fmt.Sprintf("at most %s/s", terminal.Count(int64(p.GetMaxRate()))))
	}
	if p.GetMaxSourceLoad() > 0 {
		parts = append(parts, fmt.Sprintf("source load at most %d %%", p.GetMaxSourceLoad()))
	}
	if p.GetWindow() != "" {
		parts = append(parts, "within "+p.GetWindow()+" UTC")
	}
	if len(p.GetNow()) > 0 {
		parts = append(parts, "throttled now: "+strings.Join(p.GetNow(), ", "))
	}
	return strings.Join(parts, "; ")
}

// readinessText returns the reasons that the switch waits for. u is nil after a switch with work
// left.
func readinessText(o *dbv1.SwitchReadiness, u *dbv1.UpgradeState) string {
	parts := []string{"the switch waits for nothing else"}
	if u.GetState() == dbv1.UpgradeState_SWITCHING {
		parts[0] = "the switch runs"
	}
	if waits := blockersOf(o); len(waits) > 0 {
		parts[0] = "the switch waits for " + strings.Join(waits, "; ")
	}
	if o.PredictedPauseMillis != nil {
		parts = append(parts, "predicted pause "+terminal.Millis(o.GetPredictedPauseMillis())+stepsOf(o.GetPredictedMillis()))
	}
	if o.GetRollback() != "" {
		parts = append(parts, "rollback "+o.GetRollback())
	}
	return strings.Join(parts, "; ")
}

// blockersOf returns the reasons that a switch waits, each with the command or action that resolves
// it. A text that lacks the kind or version gets it as a prefix.
func blockersOf(o *dbv1.SwitchReadiness) []string {
	if len(o.GetBlockers()) == 0 {
		return o.GetWaitsFor() // from an older controller
	}
	var out []string
	for _, b := range o.GetBlockers() {
		text := b.GetText()
		place := b.GetVersion()
		if b.GetKind() != "" {
			place += "/" + b.GetKind()
		}
		if !strings.Contains(text, b.GetKind()) || !strings.Contains(text, b.GetVersion()) {
			text = place + ": " + text
		}
		if b.GetResolve() != "" && !strings.Contains(text, b.GetResolve()) {
			text += " -> " + b.GetResolve()
		}
		out = append(out, text)
	}
	return out
}

// useOf returns how often and by whom a former name is still used.
func useOf(u *dbv1.NameUse) string {
	const most = 5
	uses := fmt.Sprintf("%s reads, %s refused writes", terminal.Count(u.GetReads()), terminal.Count(u.GetWrites()))
	if u.GetReads()+u.GetWrites() == 0 {
		uses = "the number is unknown" // behind a validator
	}
	text := fmt.Sprintf("%s of %s, which the switch left: %s, last %s", u.GetKind(), u.GetVersion(), uses, terminal.Time(u.GetLast()))
	var who []string
	for _, c := range u.GetUsers()[:min(most, len(u.GetUsers()))] {
		name := cmp.Or(c.GetApplication(), "an application without a name")
		if c.GetDriver() != "" {
			name += " (" + c.GetDriver() + ")"
		}
		who = append(who, name+after(" at ", c.GetAddress()))
	}
	switch {
	case len(who) == 0:
		return text + "; no client seen yet"
	case len(u.GetUsers()) > most:
		who = append(who, "...")
	}
	return text + "; seen: " + strings.Join(who, ", ")
}

// rollbackOf returns whether a rollback would lose anything.
func rollbackOf(r *dbv1.RollbackSafe) string {
	text := "safe"
	if !r.GetSafe() {
		text = "NOT SAFE: " + r.GetReason()
	}
	if r.GetWaived() > 0 {
		text += fmt.Sprintf("; %s waived", terminal.Count(r.GetWaived()))
	}
	return text
}

// usageOf returns the number of calls of each API version at a server.
func usageOf(s *dbv1.Server) string {
	var parts []string
	for _, u := range s.GetUsage() {
		part := fmt.Sprintf("%s %s", u.GetVersion(), terminal.Count(u.GetCalls()))
		if u.GetLast() != "" {
			part += ", last " + terminal.Time(u.GetLast())
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// after returns before+text, or "" if text is empty.
func after(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// policyOf returns the conditions of an upgrade's switch.
func policyOf(u *dbv1.UpgradeState) string {
	p := u.GetPolicy()
	text := "switch when ready"
	switch {
	// 'switch' has removed the hold that the policy still names.
	case p.GetHold() && u.GetSwitchAsked():
		text = "switch when ready, as requested by 'switch'"
	case p.GetHold():
		text = "hold at ready until 'dbcontroller switch'"
	}
	if u.GetToSnapshot() {
		text = "TO THE SNAPSHOT, without the writes since the latest switch; " + text
	}
	if p.GetDeadlineMs() > 0 {
		text += "; deadline " + terminal.Millis(p.GetDeadlineMs())
	}
	if p.GetMaxPauseMs() > 0 {
		text += "; pause at most " + terminal.Millis(p.GetMaxPauseMs())
	}
	if p.GetMaxHoldMs() > 0 {
		text += "; writes held at most " + terminal.Millis(p.GetMaxHoldMs())
	}
	switch {
	case p.GetRetries() < 0:
		text += "; no second attempt"
	case p.GetRetries() > 0:
		text += fmt.Sprintf("; at most %d more attempts", p.GetRetries())
	}
	return text
}

// replacedOf returns the replaced collections, latest first, and the progress of the new copy.
func replacedOf(r *dbv1.Replaced, ring int32) string {
	const most = 3
	var names []string
	kinds := r.GetKinds()
	for i := len(kinds) - 1; i >= 0 && len(names) < most; i-- {
		text := kinds[i].GetKind()
		if at := kinds[i].GetAt(); at != "" {
			text += " at " + terminal.Time(at) + " UTC"
		}
		names = append(names, text)
	}
	text := fmt.Sprintf("%s of %s", strings.Join(names, ", "), r.GetVersion())
	if more := len(kinds) - len(names); more > 0 {
		text = fmt.Sprintf("%s and %d more of %s", strings.Join(names, ", "), more, r.GetVersion())
	}
	text += fmt.Sprintf("; %s is rebuilt: ", r.GetTo())
	// Copied and total cover only the reporting shards, and none has begun yet.
	if r.GetReportingShards() == 0 {
		return text + "not begun"
	}
	if r.GetTotal() > 0 {
		text += fmt.Sprintf("%s of %s copied (%d %%), ", terminal.Count(r.GetCopied()), terminal.Count(r.GetTotal()), r.GetCopied()*100/r.GetTotal())
	}
	return text + fmt.Sprintf("%d of %d shards compared", r.GetComparedShards(), ring)
}
