package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// standing says on one line where a deployment stands, for those who have just changed it.
func standing(d *dbv1.Deployment) string {
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
		parts = append(parts, fmt.Sprintf("data update %s runs, %d of %d shards done", u.GetName(), u.GetDoneShards(), d.GetRingSize()))
	}
	if d.GetRetiring() != "" {
		parts = append(parts, d.GetRetiring()+" is being retired")
	}
	return strings.Join(parts, "; ")
}

// policyOf says when an upgrade switches.
func policyOf(u *dbv1.UpgradeState) string {
	p := u.GetPolicy()
	text := "switch when ready"
	switch {
	case p.GetHold() && u.GetSwitchAsked():
		text = "switch when ready, as 'switch' asked for"
	case p.GetHold():
		text = "hold at ready until 'dbcontroller switch'"
	}
	if u.GetToSnapshot() {
		text = "TO THE SNAPSHOT, without what was written since the latest switch; " + text
	}
	if p.GetDeadlineMs() > 0 {
		text += "; deadline " + millis(p.GetDeadlineMs())
	}
	if p.GetMaxPauseMs() > 0 {
		text += "; pause at most " + millis(p.GetMaxPauseMs())
	}
	if p.GetMaxHoldMs() > 0 {
		text += "; writes held at most " + millis(p.GetMaxHoldMs())
	}
	switch {
	case p.GetRetries() < 0:
		text += "; no second attempt"
	case p.GetRetries() > 0:
		text += fmt.Sprintf("; at most %d more attempts", p.GetRetries())
	}
	return text
}

// paceOf says how bulk work is held back; empty: as configured, and not at all now.
func paceOf(p *dbv1.Pace) string {
	var parts []string
	if p.GetPaused() {
		parts = append(parts, "PAUSED"+after(": ", p.GetReason())+"; 'dbcontroller resume' goes on")
	}
	if p.GetMaxRate() > 0 {
		parts = append(parts, fmt.Sprintf("at most %s/s", count(int64(p.GetMaxRate()))))
	}
	if p.GetMaxSourceLoad() > 0 {
		parts = append(parts, fmt.Sprintf("source load at most %d %%", p.GetMaxSourceLoad()))
	}
	if p.GetWindow() != "" {
		parts = append(parts, "within "+p.GetWindow()+" UTC")
	}
	if len(p.GetNow()) > 0 {
		parts = append(parts, "held back now: "+strings.Join(p.GetNow(), ", "))
	}
	return strings.Join(parts, "; ")
}

// readinessText says what is between an upgrade and its switch.
func readinessText(o *dbv1.SwitchReadiness) string {
	parts := []string{"the switch waits for nothing else"}
	if len(o.GetWaitsFor()) > 0 {
		parts[0] = "the switch waits for " + strings.Join(o.GetWaitsFor(), "; ")
	}
	if o.PredictedPauseMillis != nil {
		parts = append(parts, "predicted pause "+millis(o.GetPredictedPauseMillis()))
	}
	if o.GetRollback() != "" {
		parts = append(parts, "rollback "+o.GetRollback())
	}
	return strings.Join(parts, "; ")
}

// rollbackOf says whether a rollback would leave anything behind.
func rollbackOf(r *dbv1.RollbackSafe) string {
	text := "safe"
	if !r.GetSafe() {
		text = "NOT SAFE: " + r.GetReason()
	}
	if r.GetWaived() > 0 {
		text += fmt.Sprintf("; %s waived", count(r.GetWaived()))
	}
	return text
}

// usageOf is how much each API version was called at a server.
func usageOf(s *dbv1.Server) string {
	var parts []string
	for _, u := range s.GetUsage() {
		part := fmt.Sprintf("%s %s", u.GetVersion(), count(u.GetCalls()))
		if u.GetLast() != "" {
			part += ", last " + shortTime(u.GetLast())
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// after is text with something before it, or nothing.
func after(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// count writes a number with commas between the thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 1
	if n < 0 {
		first = 2
	}
	for i := len(s) - 3; i >= first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// millis writes a duration as short as it can be read.
func millis(ms int64) string {
	if ms < 1000 {
		return strconv.FormatInt(ms, 10) + " ms"
	}
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// span writes seconds as hours, minutes and seconds.
func span(seconds int64) string { return (time.Duration(seconds) * time.Second).String() }
