package upgradestate

import (
	"fmt"
	"slices"
	"strings"
)

// maxHistory bounds the entries of the history, and maxPhases the phases of one entry, to keep the
// record small.
const (
	maxHistory = 50
	maxPhases  = 40
)

// Entry is one event or request in the history of the deployment.
type Entry struct {
	At string `json:"at,omitempty"` // RFC 3339, by the clock of the writer; for people
	By string `json:"by,omitempty"` // name that the requester gave
	// Identity is the authenticated identity of the requester, and Address its network address.
	// Both are empty without authentication.
	Identity string `json:"identity,omitempty"`
	Address  string `json:"address,omitempty"`
	// What is upgrade, retry, switch, breach, accept-breaches, adopt, replace, rebuild, restored,
	// follow-restored, pause, resume, pace, policy, complete, keep, drop, update, verify, repair,
	// start-at, or the What of a Remark.
	What   string `json:"what"`
	ID     string `json:"id,omitempty"` // of the upgrade or update; the kind for breach, adopt and replace
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Phases are the phases of an upgrade with their times: states and steps by name, and READY for
	// the first time that all shards were ready.
	Phases []PhaseTime `json:"phases,omitempty"`
	// Outcome is the result; empty while the upgrade, update or retirement goes on.
	Outcome string `json:"outcome,omitempty"`
	Ended   string `json:"ended,omitempty"` // RFC 3339
}

// PhaseTime is the time when a phase began.
type PhaseTime struct {
	Phase string `json:"phase"` // a state or step by name, or READY
	At    string `json:"at"`    // RFC 3339, by the clock of the writer; for people
}

// phaseReady is recorded in addition to the states and steps.
const phaseReady = "READY"

func (d *Deployment) remark(e Remark) error {
	if e.What == "" {
		return refused("remark: the text is empty")
	}
	d.addEntry(Entry{What: e.What, Detail: e.Detail})
	return nil
}

func (d *Deployment) addEntry(e Entry) {
	d.History = append(d.History, e)
	// The oldest entries go first. The count shows that some are missing.
	if over := len(d.History) - maxHistory; over > 0 {
		d.History = slices.Delete(d.History, 0, over)
		d.HistoryDropped += over
	}
}

// Continue returns d with the history of before, an earlier record of the same deployment, in front
// of its own.
func Continue(d, before Deployment) Deployment {
	d = Clone(d)
	added := d.History
	d.History, d.HistoryDropped = slices.Clone(before.History), before.HistoryDropped
	for _, e := range added {
		d.addEntry(e)
	}
	return d
}

// entry returns the latest entry about an ID, to be modified in place, or nil if it is no longer
// there.
func (d *Deployment) entry(what, id string) *Entry {
	for i := len(d.History) - 1; i >= 0; i-- {
		if e := &d.History[i]; e.What == what && e.ID == id {
			return e
		}
	}
	return nil
}

// Note returns after, with the transition from before added to its history: the request with its
// author (by), new phases of the upgrade, and their time (at, RFC 3339). Note changes only the
// history. If the transition has no news, it adds nothing.
func Note(before, after Deployment, by, at string) Deployment {
	d := Clone(after)
	for i := range d.History {
		// Apply added these entries. It has no clock and does not know the author.
		if d.History[i].At == "" {
			d.History[i].At, d.History[i].By = at, by
		}
	}
	d.noteUpgrade(before, by, at)
	d.notePace(before, by, at)
	if r := d.Retire; r != nil && before.Retire == nil {
		d.addEntry(Entry{At: at, By: by, What: "complete", From: r.Version})
	}
	d.noteRetired(before, by, at)
	d.noteUpdate(before, by, at)
	return d
}

// Ascribe returns d with the authenticated identity and network address of the requester in the
// history's entries of a transition. by and at must equal the arguments of Note for the transition.
// An empty identity changes nothing.
func Ascribe(d Deployment, by, at, identity, address string) Deployment {
	if identity == "" {
		return d
	}
	d = Clone(d)
	for i := range d.History {
		if e := &d.History[i]; e.At == at && e.By == by {
			e.Identity, e.Address = identity, address
		}
	}
	return d
}

// openEntry returns the latest entry without an outcome, or nil.
func (d *Deployment) openEntry(what string) *Entry {
	for i := len(d.History) - 1; i >= 0; i-- {
		if e := &d.History[i]; e.What == what && e.Outcome == "" {
			return e
		}
	}
	return nil
}

// noteRetired records the progress of a retirement: collections set aside, a changed time of the
// drop, and the drop.
func (d *Deployment) noteRetired(before Deployment, by, at string) {
	if len(d.Retired) > len(before.Retired) {
		if e := d.openEntry("complete"); e != nil {
			e.Outcome, e.Ended = "dropped", at
			if before.Retire != nil && before.Retire.Lost {
				e.Outcome = givenUp
			}
			if len(d.Kept) > len(before.Kept) {
				e.Outcome = "set aside until " + d.Kept[len(d.Kept)-1].Until
			}
		}
	}
	if r, was := d.Retire, before.Retire; r != nil && was != nil && r.Lost && !was.Lost {
		d.addEntry(Entry{At: at, By: by, What: "keep", From: r.Version, Detail: givenUp})
	} else if r != nil && was != nil && *r != *was {
		d.addEntry(Entry{At: at, By: by, What: "keep", From: r.Version, Detail: keptUntil(r.Until)})
	}
	for _, was := range before.Kept {
		v := was.Namespace.Version
		switch i := d.kept(v); {
		case i < 0 && d.endGivenUp(v, at):
		case i < 0:
			d.addEntry(Entry{At: at, By: by, What: "drop", From: v, Outcome: "dropped", Ended: at})
		case d.Kept[i].Until != was.Until:
			d.addEntry(Entry{At: at, By: by, What: "keep", From: v, Detail: keptUntil(d.Kept[i].Until)})
		}
	}
}

// givenUp is the outcome for a version whose database is lost: nothing was dropped there.
const givenUp = "given up: its database is lost"

// endGivenUp ends the entry of kept data that this transition gave up. It returns false if there is
// none.
func (d *Deployment) endGivenUp(version, at string) bool {
	for i := range d.History {
		if e := &d.History[i]; e.What == "drop" && e.From == version && e.Outcome == givenUp && e.Ended == "" {
			e.Ended = at
			return true
		}
	}
	return false
}

func keptUntil(until string) string {
	if until == "" {
		return "not kept"
	}
	return "until " + until
}

// noteUpgrade records the beginning, the phases and the end of an upgrade.
func (d *Deployment) noteUpgrade(before Deployment, by, at string) {
	was, is := before.Upgrade, d.Upgrade
	// The upgrade has ended, by a flip or by an abort.
	if was != nil && (is == nil || is.ID != was.ID) {
		if e := d.entry("upgrade", was.ID); e != nil {
			e.Ended = at
			switch last := d.LastSwitch; {
			case last != nil && last.ID == was.ID:
				e.Outcome = "switched"
			// abort may have set the outcome already.
			case e.Outcome == "":
				e.Outcome = outcomeOfAbort(was.AbortReason)
			}
		}
	}
	if is == nil {
		return
	}
	if was == nil || was.ID != is.ID {
		// A new upgrade starts an entry with its first phase.
		e := Entry{At: at, By: by, What: "upgrade", ID: is.ID, From: d.CurrentVersion, To: is.TargetVersion, Detail: is.Policy.String()}
		if is.Snapshot {
			e.Detail = "to the snapshot, " + e.Detail
		}
		e.Phases = []PhaseTime{{string(is.State), at}}
		d.addEntry(e)
		return
	}
	e := d.entry("upgrade", is.ID)
	if e == nil {
		return
	}
	if is.Failures > was.Failures {
		d.addEntry(Entry{At: at, By: by, What: "retry", ID: is.ID,
			Detail: fmt.Sprintf("attempt %d at the switch failed: %s", is.Failures, is.LastFailure)})
		// addEntry may have moved or removed the entry.
		if e = d.entry("upgrade", is.ID); e == nil {
			return
		}
	}
	enter := func(phase string) {
		e.Phases = append(e.Phases, PhaseTime{phase, at})
		if over := len(e.Phases) - maxPhases; over > 0 {
			e.Phases = slices.Delete(e.Phases, 1, 1+over) // keeps the beginning and the latest attempts
		}
	}
	// Only the first time, since shards become unready and ready again.
	noted := slices.ContainsFunc(e.Phases, func(p PhaseTime) bool { return p.Phase == phaseReady })
	if is.Step == StepNone && AllReady(*d) && !noted {
		enter(phaseReady)
	}
	switch {
	case is.Step == was.Step:
	case is.Step == StepNone:
		enter(string(is.State))
	default:
		enter(string(is.Step))
	}
	if is.SwitchAsked && !was.SwitchAsked {
		d.addEntry(Entry{At: at, By: by, What: "switch", ID: is.ID})
	}
	if is.Policy != was.Policy {
		d.addEntry(Entry{At: at, By: by, What: "policy", ID: is.ID, Detail: is.Policy.String()})
	}
}

func outcomeOfAbort(reason string) string {
	if reason == "" {
		return "aborted"
	}
	return "aborted: " + reason
}

func (d *Deployment) notePace(before Deployment, by, at string) {
	was, is := before.Pace, d.Pace
	if is == was {
		return
	}
	// A pause and its end are entries of their own, with the reason.
	if is.Paused != was.Paused {
		what := "resume"
		if is.Paused {
			what = "pause"
		}
		d.addEntry(Entry{At: at, By: by, What: what, Detail: is.Reason})
	}
	// The rest of the pace gets an entry of its own.
	was.Paused, was.Reason = is.Paused, is.Reason
	if is != was {
		d.addEntry(Entry{At: at, By: by, What: "pace", Detail: paceDetail(is)})
	}
}

func paceDetail(p Pace) string {
	rate, load, window := "rate as configured", "source load as configured", "at any time"
	if p.MaxRate > 0 {
		rate = fmt.Sprintf("at most %d records a second", p.MaxRate)
	}
	if p.MaxSourceLoad > 0 {
		load = fmt.Sprintf("source load at most %d %%", p.MaxSourceLoad)
	}
	if p.Window != "" {
		window = "in " + p.Window
	}
	return rate + ", " + load + ", " + window
}

func (d *Deployment) noteUpdate(before Deployment, by, at string) {
	was, is := before.Update, d.Update
	if was != nil && (is == nil || is.ID != was.ID) {
		if e := d.entry("update", was.ID); e != nil {
			e.Ended = at
		}
	}
	if is != nil && (was == nil || was.ID != is.ID) {
		e := Entry{At: at, By: by, What: "update", ID: is.ID, Detail: is.about()}
		if f, ok := FollowingOf(*d, is.Name); ok && f.Run == is.ID {
			e.Detail += fmt.Sprintf("%s %s to %s, pass %d", followsInfix, f.Deployment, f.Version, f.Passes)
		}
		d.addEntry(e)
	}
}

// followsInfix ends the description of an update in the history, before what it follows.
const followsInfix = ", follows"

// Updated returns the task and the kind of a history entry about a data update.
func (e Entry) Updated() (task, kind string) {
	if e.What != "update" {
		return "", ""
	}
	detail, _, _ := strings.Cut(e.Detail, followsInfix)
	task, kind, _ = strings.Cut(detail, " over ")
	return task, kind
}

// about describes an update for people.
func (u Update) about() string {
	if u.Key != "" {
		return u.Name + " to " + u.Key
	}
	return u.Name + " over " + u.Kind
}
