package upgradestate

import (
	"fmt"
	"slices"
)

// maxHistory and maxPhases, of one entry, keep the record small.
const (
	maxHistory = 50
	maxPhases  = 40
)

// Entry is something that happened to the deployment, or was asked for.
type Entry struct {
	At string `json:"at,omitempty"` // RFC 3339, by the clock of who wrote it: for people
	By string `json:"by,omitempty"` // who asked for it, by its own account
	// Identity is who was proven to have asked, and Address where from; empty: nobody was.
	Identity string `json:"identity,omitempty"`
	Address  string `json:"address,omitempty"`
	// What is upgrade, retry, switch, breach, accept-breaches, adopt, replace, rebuild, restored, follow-restored, pause, resume, pace, policy, complete, keep, drop, update, or that
	// of a Remark.
	What   string `json:"what"`
	ID     string `json:"id,omitempty"` // of the upgrade or update
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Phases are, of an upgrade, when each was entered: states and steps by their names,
	// READY when all shards were for the first time.
	Phases []PhaseTime `json:"phases,omitempty"`
	// Outcome is how it ended; empty while it goes on.
	Outcome string `json:"outcome,omitempty"`
	Ended   string `json:"ended,omitempty"` // RFC 3339
}

// PhaseTime is when a phase was entered.
type PhaseTime struct {
	Phase string `json:"phase"`
	At    string `json:"at"`
}

// phaseReady is noted in addition to the states and steps.
const phaseReady = "READY"

func (d *Deployment) remark(e Remark) error {
	if e.What == "" {
		return refused("remark: it says nothing")
	}
	d.addEntry(Entry{What: e.What, Detail: e.Detail})
	return nil
}

func (d *Deployment) addEntry(e Entry) {
	d.History = append(d.History, e)
	if over := len(d.History) - maxHistory; over > 0 {
		d.History = slices.Delete(d.History, 0, over)
		d.HistoryDropped += over
	}
}

// Continue returns d with the history of another record of the same deployment in front of its own.
func Continue(d, before Deployment) Deployment {
	d = Clone(d)
	added := d.History
	d.History, d.HistoryDropped = slices.Clone(before.History), before.HistoryDropped
	for _, e := range added {
		d.addEntry(e)
	}
	return d
}

// entry is the latest one about an ID, to be modified; nil when it has gone.
func (d *Deployment) entry(what, id string) *Entry {
	for i := len(d.History) - 1; i >= 0; i-- {
		if e := &d.History[i]; e.What == what && e.ID == id {
			return e
		}
	}
	return nil
}

// Note returns after with a history that tells of the transition from before: what was
// asked for, by whom, and which phases were entered, at that time. It changes nothing
// else, and nothing at all where nothing is to be told.
func Note(before, after Deployment, by, at string) Deployment {
	d := Clone(after)
	for i := range d.History {
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

// Ascribe puts the proven identity of who asked into the entries that a transition made.
// Note was called for it, with that by and at.
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

func (d *Deployment) openEntry(what string) *Entry {
	for i := len(d.History) - 1; i >= 0; i-- {
		if e := &d.History[i]; e.What == what && e.Outcome == "" {
			return e
		}
	}
	return nil
}

// noteRetired notes what became of a retirement: that its collections were set aside, that
// the time until they are dropped was changed, and that they were dropped.
func (d *Deployment) noteRetired(before Deployment, by, at string) {
	if len(d.Retired) > len(before.Retired) {
		if e := d.openEntry("complete"); e != nil {
			e.Outcome, e.Ended = "dropped", at
			if len(d.Kept) > len(before.Kept) {
				e.Outcome = "set aside until " + d.Kept[len(d.Kept)-1].Until
			}
		}
	}
	if r, was := d.Retire, before.Retire; r != nil && was != nil && *r != *was {
		d.addEntry(Entry{At: at, By: by, What: "keep", From: r.Version, Detail: keptUntil(r.Until)})
	}
	for _, was := range before.Kept {
		v := was.Namespace.Version
		switch i := d.kept(v); {
		case i < 0:
			d.addEntry(Entry{At: at, By: by, What: "drop", From: v, Outcome: "dropped", Ended: at})
		case d.Kept[i].Until != was.Until:
			d.addEntry(Entry{At: at, By: by, What: "keep", From: v, Detail: keptUntil(d.Kept[i].Until)})
		}
	}
}

func keptUntil(until string) string {
	if until == "" {
		return "not kept"
	}
	return "until " + until
}

func (d *Deployment) noteUpgrade(before Deployment, by, at string) {
	was, is := before.Upgrade, d.Upgrade
	if was != nil && (is == nil || is.ID != was.ID) {
		if e := d.entry("upgrade", was.ID); e != nil {
			e.Ended = at
			switch last := d.LastSwitch; {
			case last != nil && last.ID == was.ID:
				e.Outcome = "switched"
			case e.Outcome == "":
				e.Outcome = outcomeOfAbort(was.AbortReason)
			}
		}
	}
	if is == nil {
		return
	}
	if was == nil || was.ID != is.ID {
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
			Detail: fmt.Sprintf("attempt %d at the switch was given up: %s", is.Failures, is.LastFailure)})
		if e = d.entry("upgrade", is.ID); e == nil {
			return
		}
	}
	enter := func(phase string) {
		e.Phases = append(e.Phases, PhaseTime{phase, at})
		if over := len(e.Phases) - maxPhases; over > 0 {
			e.Phases = slices.Delete(e.Phases, 1, 1+over) // the beginning, and the latest attempts
		}
	}
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
	if is.Paused != was.Paused {
		what := "resume"
		if is.Paused {
			what = "pause"
		}
		d.addEntry(Entry{At: at, By: by, What: what, Detail: is.Reason})
	}
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
		d.addEntry(Entry{At: at, By: by, What: "update", ID: is.ID, Detail: is.about()})
	}
}

// about is what an update does, for people.
func (u Update) about() string {
	if u.Key != "" {
		return u.Name + " to " + u.Key
	}
	return u.Name + " over " + u.Kind
}
