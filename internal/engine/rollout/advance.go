package rollout

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// maxReturns is the number of upgrades that one rollback of a deployment may take. Each may end
// without a switch, for example because a database fails meanwhile.
const maxReturns = 5

// backLimit bounds the time in which no deployment of a rollback gets further. After it somebody has
// to look at those that do not run: a rollback may be refused for ever.
const backLimit = time.Hour

// Advance returns the record after what a driver has seen. It makes one transition at most, so the
// driver stores each before it looks again. An equal record means that nothing changes.
func Advance(r Rollout, s Seen) Rollout {
	r = Clone(r)
	if !Active(r) {
		return r
	}
	r.observe(s)
	if r.State == RollingBack {
		r.rollBack(s)
		return r
	}
	switch r.Step {
	case StepUpgrade:
		r.upgrade(s)
	case StepGate:
		r.gate(s)
	case StepPause:
		if r.inStep(s) >= millis(r.Policy.PauseMillis) {
			r.Wave++
			r.enter(StepUpgrade, s)
			r.Note(s.Now, "", fmt.Sprintf("wave %d begins", r.Wave+1))
			return r
		}
		r.Waits = fmt.Sprintf("the pause before wave %d", r.Wave+2)
	}
	return r
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (r *Rollout) enter(step Step, s Seen) {
	r.restart()
	r.Step, r.Driver, r.ClockMillis, r.Waits = step, s.Driver, s.Clock.Milliseconds(), ""
}

// upgrade orders the upgrades of the wave, and waits until all have switched.
func (r *Rollout) upgrade(s Seen) {
	items, waits := r.Waves[r.Wave].Items, []string(nil)
	for i := range items {
		item, d := &items[i], s.Deployments[items[i].Name]
		if item.Result != inProgress {
			continue
		}
		if item.Order == "" {
			waits = append(waits, r.give(i, s))
			continue
		}
		switch standingOf(*item, d) {
		case unknown:
			waits = append(waits, item.Name+": "+cmp.Or(d.Unread, "not read yet"))
		case untouched:
			waits = append(waits, item.Name+": "+cmp.Or(item.Detail, "its upgrade"))
		case running:
			// What kept it from beginning is over.
			waits = append(waits, item.Name+": "+d.pending("its upgrade"))
		case switched:
			item.Result, item.Detail = Upgraded, ""
		case ended:
			item.Result = Ended
			r.fail(s, fmt.Sprintf("%s: upgrade %s ended without a switch", item.Name, item.ID))
			return
		case foreign:
			item.Result, item.Detail = LeftAlone, foreignText(d)
			r.fail(s, item.Name+": "+item.Detail)
			return
		}
	}
	r.Waits = few(waits)
	switch {
	case r.Waits == "":
		r.enter(StepGate, s)
		r.Note(s.Now, "", fmt.Sprintf("wave %d: all deployments serve %s", r.Wave+1, r.TargetVersion))
	case r.Policy.WaveLimitMillis > 0 && r.inStep(s) >= millis(r.Policy.WaveLimitMillis):
		r.fail(s, fmt.Sprintf("its upgrades have not ended after %s: it waits for %s", millis(r.Policy.WaveLimitMillis), r.Waits))
	}
}

// give gives a deployment its order, and returns what the wave then waits for. A deployment that
// serves the target already needs none, and one with another upgrade waits for the end of that one.
func (r *Rollout) give(i int, s Seen) string {
	item := &r.Waves[r.Wave].Items[i]
	d := s.Deployments[item.Name]
	switch {
	case d.CurrentVersion == "":
		return item.Name + ": " + cmp.Or(d.Unread, "not read yet")
	case d.UpgradeID != "":
		return fmt.Sprintf("%s: upgrade %s, which does not belong to the rollout", item.Name, d.UpgradeID)
	case d.CurrentVersion == r.TargetVersion:
		item.Result = WasThere
		return ""
	}
	r.order(r.Wave, i, Forward, s)
	return item.Name + ": its upgrade"
}

// gate passes the wave when its conditions have held for long enough.
func (r *Rollout) gate(s Seen) {
	items, waits := r.Waves[r.Wave].Items, []string(nil)
	for i := range items {
		item, d := &items[i], s.Deployments[items[i].Name]
		switch at := standingOf(*item, d); {
		case d.CurrentVersion == "":
			waits = append(waits, item.Name+": "+cmp.Or(d.Unread, "not read yet"))
		case item.Result == WasThere && d.CurrentVersion == r.TargetVersion && d.UpgradeID == "", at == switched && d.CurrentVersion == r.TargetVersion:
			if d.Against != "" {
				waits = append(waits, item.Name+": "+d.Against)
			}
		default:
			item.Result, item.Detail = LeftAlone, foreignText(d)
			r.fail(s, item.Name+": "+item.Detail)
			return
		}
	}
	for _, name := range r.Policy.Checks {
		why, ran := s.Checks[name]
		if !ran {
			why = "it has not run yet"
		}
		if why != "" {
			waits = append(waits, fmt.Sprintf("check %s: %s", name, why))
		}
	}
	r.Waits = few(waits)
	switch {
	case r.Waits != "":
		r.breaks()
	case !r.Holds:
		r.Holds, r.HeldMillis = true, s.Clock.Milliseconds()
	}
	if r.Waits == "" && s.Clock-millis(r.HeldMillis) >= millis(r.Policy.HoldMillis) {
		r.pass(s)
		return
	}
	if limit := millis(r.Policy.GateLimitMillis); r.inStep(s) >= limit {
		r.fail(s, fmt.Sprintf("its gate has not passed after %s: %s", limit, cmp.Or(r.Waits, "its conditions have not held for "+millis(r.Policy.HoldMillis).String())))
		return
	}
	if r.Waits == "" {
		r.Waits = "its conditions hold, for " + millis(r.Policy.HoldMillis).String()
	}
}

func (r *Rollout) pass(s Seen) {
	r.Note(s.Now, "", fmt.Sprintf("wave %d passes its gate", r.Wave+1))
	r.enter(StepPause, s)
	if r.Wave == len(r.Waves)-1 {
		r.State = Done
	}
}

// fail ends the rollout. It is one transition with the rollback of the wave, so that no crash can
// come between the two.
func (r *Rollout) fail(s Seen, why string) {
	r.Reason, r.State, r.Waits = fmt.Sprintf("wave %d: %s", r.Wave+1, why), Stopped, ""
	if r.Policy.OnFailure == RollBackToo {
		r.State, r.BackTo = RollingBack, r.Wave
		r.enter(r.Step, s) // the limit of the rollback begins
	}
	r.Note(s.Now, "", fmt.Sprintf("stops: %s", r.Reason))
}

// rollBack returns the deployments of the waves from BackTo on. The limit gives up those that cannot
// begin. It waits for running ones: the final record has to say how they end.
func (r *Rollout) rollBack(s Seen) {
	type wait struct {
		item    *Item
		why     string
		running bool
	}
	var waiting []wait
	further := false
	for w := r.BackTo; w < len(r.Waves); w++ {
		items := r.Waves[w].Items
		for i := range items {
			before := items[i]
			why := r.giveBack(w, i, s)
			further = further || items[i].ID != before.ID || items[i].Result != before.Result
			if why != "" {
				waiting = append(waiting, wait{&items[i], why, standingOf(before, s.Deployments[before.Name]) == running})
			}
		}
	}
	var waits, left []string
	over := !further && r.inStep(s) >= backLimit
	for _, x := range waiting {
		if over && !x.running {
			x.item.Result, x.item.Detail = NotRolled, shorten(fmt.Sprintf("nothing happened for %s; it waits for %s", backLimit, x.why), maxDetail)
			continue
		}
		waits = append(waits, x.item.Name+": "+x.why)
	}
	for w := r.BackTo; w < len(r.Waves); w++ {
		for _, item := range r.Waves[w].Items {
			if item.Result == LeftAlone || item.Result == NotRolled {
				left = append(left, item.Name+": "+item.Detail)
			}
		}
	}
	if r.Waits = few(waits); r.Waits != "" {
		if further {
			r.StepMillis, r.ClockMillis = 0, s.Clock.Milliseconds()
		}
		return
	}
	if len(left) > 0 {
		r.State, r.Reason = Stopped, fmt.Sprintf("%s; rolled back except %s", r.Reason, few(left))
	} else {
		r.State = RolledBack
	}
	r.Note(s.Now, "", "the rollback ends")
}

// giveBack returns what the rollback of one deployment waits for, "" if it has ended.
func (r *Rollout) giveBack(w, i int, s Seen) string {
	item := &r.Waves[w].Items[i]
	d := s.Deployments[item.Name]
	at := standingOf(*item, d)
	switch {
	case item.Order == "" || item.Order == Back && item.Result != inProgress || item.Result == NotBegun || item.Result == NotRolled:
		return ""
	case at == unknown:
		return cmp.Or(d.Unread, "not read yet")
	case at == foreign:
		item.Result, item.Detail = LeftAlone, foreignText(d)
	case item.Order == Forward:
		return r.turn(w, i, at, s)
	case at == switched:
		item.Result, item.Detail = Returned, ""
	case at == ended && item.Returns >= maxReturns:
		item.Result, item.Detail = NotRolled, fmt.Sprintf("%s ended without a switch", item.ID)
	case at == ended:
		r.order(w, i, Back, s)
		return "its rollback"
	default:
		return cmp.Or(item.Detail, d.pending("its rollback"))
	}
	return ""
}

// turn ends the upgrade of a deployment that goes back. Its standing was read after the record, and
// nothing begins under a record of a rollback, so an untouched deployment stays untouched.
func (r *Rollout) turn(w, i int, at standing, s Seen) string {
	item := &r.Waves[w].Items[i]
	switch at {
	case untouched:
		item.Result, item.Detail = NotBegun, ""
	case ended:
		item.Result, item.Detail = Ended, ""
	case switched:
		r.order(w, i, Back, s)
		return "its rollback"
	default:
		// An upgrade that cannot be aborted any more switches, and then goes back.
		item.Result = inProgress
		return cmp.Or(item.Detail, s.Deployments[item.Name].pending("the end of its upgrade"))
	}
	return ""
}

// pending returns what a wave waits for while an upgrade of d runs.
func (d Deployment) pending(what string) string {
	if d.Waits == "" {
		return what
	}
	return what + ", which waits for " + shorten(strings.ReplaceAll(d.Waits, "\n", " "), maxDetail)
}

func foreignText(d Deployment) string {
	if d.UpgradeID != "" {
		return fmt.Sprintf("upgrade %s runs, which does not belong to the rollout", d.UpgradeID)
	}
	return fmt.Sprintf("somebody else has begun %s since; it serves %s", cmp.Or(d.LastUpgradeID, "an upgrade"), d.CurrentVersion)
}

// few joins reasons, and bounds their number to keep the record small.
func few(all []string) string {
	const most = 3
	var some []string
	for _, text := range all {
		if text != "" {
			some = append(some, text)
		}
	}
	if len(some) > most {
		return fmt.Sprintf("%s; and %d more", strings.Join(some[:most], "; "), len(some)-most)
	}
	return strings.Join(some, "; ")
}
