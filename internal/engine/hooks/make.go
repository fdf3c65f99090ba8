package hooks

import (
	"crypto/rand"
	"strings"
	"time"

	"dbcontroller.dev/upgradestate"
)

func newID() string { return rand.Text() }

// clip shortens a text to most bytes, without splitting a character.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// Names of history entries and phases, as package upgradestate writes them.
const (
	entryUpgrade  = "upgrade"
	entryRetry    = "retry"
	entryBreach   = "breach"
	entryComplete = "complete"
	entryDrop     = "drop"
	phaseReady    = "READY"
	switched      = "switched"
)

// follow creates the events that a record contains and that do not exist yet.
func (s *State) follow(d upgradestate.Deployment) {
	// An older record, from a former leader, would repeat events.
	if d.Revision <= s.Revision {
		return
	}
	count := d.HistoryDropped + len(d.History)
	if s.Revision == 0 || count < s.Entries {
		// First record, or a recreated one: events that are over are not news.
		s.Entries, s.Open = count, nil
		for i, e := range d.History {
			// A running upgrade is news. Process its entry, so that its end is reported too.
			if u := d.Upgrade; u != nil && e.What == entryUpgrade && e.ID == u.ID {
				s.Entries = d.HistoryDropped + i
			}
		}
	}
	s.Revision = d.Revision
	for n := max(s.Entries, d.HistoryDropped); n < count; n++ {
		s.enter(d, n, d.History[n-d.HistoryDropped])
	}
	s.Entries = count
	s.settle(d, true)
}

// enter creates the event of a new entry, after the pending events of earlier entries.
func (s *State) enter(d upgradestate.Deployment, n int, e upgradestate.Entry) {
	switch e.What {
	case entryUpgrade:
		s.settle(d, true)
		s.Open = append(s.Open, Open{Entry: n, What: e.What, ID: e.ID, From: e.From, To: e.To})
		s.add(d, Event{Type: Begin, At: e.At, Upgrade: e.ID, From: e.From, To: e.To, By: e.By, Detail: e.Detail})
	case entryComplete:
		s.settle(d, true)
		s.Open = append(s.Open, Open{Entry: n, What: e.What, From: e.From})
	case entryRetry:
		// A retry does not end its upgrade.
		s.settle(d, false)
		retry := Event{Type: Retry, At: e.At, Upgrade: e.ID, Detail: e.Detail}
		for _, o := range s.Open {
			if o.ID == e.ID {
				// The entry of a retry does not contain the versions.
				retry.From, retry.To = o.From, o.To
			}
		}
		s.add(d, retry)
	case entryDrop: // an older version, set aside earlier
		s.add(d, Event{Type: Completed, At: e.At, From: e.From, Detail: e.Outcome})
	case entryBreach:
		s.add(d, Event{Type: FenceBroken, At: e.At, From: e.From, Kind: e.ID, Detail: e.Detail})
	}
}

// settle creates the Ready events of open entries and, with ends, the events of their ends.
func (s *State) settle(d upgradestate.Deployment, ends bool) {
	open := s.Open
	s.Open = nil
	for _, o := range open {
		e := upgradestate.Entry{What: o.What, ID: o.ID, From: o.From, To: o.To}
		if i := o.Entry - d.HistoryDropped; i >= 0 && i < len(d.History) {
			e = d.History[i]
		} else if o.What == entryComplete || d.Upgrade == nil || d.Upgrade.ID != o.ID {
			// The history dropped the entry before it ended. Infer the outcome from the last
			// switch.
			if e.Outcome = "aborted"; d.LastSwitch != nil && d.LastSwitch.ID == o.ID {
				e.Outcome = switched
			}
			if o.What == entryComplete {
				e.Outcome = "done"
			}
		}
		for _, p := range e.Phases {
			if p.Phase == phaseReady && !o.Ready {
				o.Ready = true
				s.add(d, Event{Type: Ready, At: p.At, Upgrade: o.ID, From: o.From, To: o.To})
			}
		}
		if !ends || e.Outcome == "" {
			s.Open = append(s.Open, o)
			continue
		}
		s.end(d, o, e)
	}
}

// end creates the event of an entry's end.
func (s *State) end(d upgradestate.Deployment, o Open, e upgradestate.Entry) {
	ended := Event{At: e.Ended, Upgrade: o.ID, From: o.From, To: o.To}
	switch {
	case o.What == entryComplete:
		ended.Type, ended.Detail = Completed, e.Outcome
	case e.Outcome == switched:
		ended.Type = Switched
		if last := d.LastSwitch; last != nil && last.ID == o.ID {
			ended.Millis, ended.Rollback = last.Millis, last.Back
		}
	default:
		ended.Type, ended.Detail = Aborted, strings.TrimPrefix(e.Outcome, "aborted: ")
	}
	s.add(d, ended)
}

const (
	parkedMore = 10          // growth factor before the count is reported again
	parkedRest = time.Minute // minimum time between two events
)

// park creates an event for count groups that are parked in a direction and not waived. It reports
// whether the state changed.
func (s *State) park(d upgradestate.Deployment, direction string, count int64, now time.Time) bool {
	if s.Parked.Direction != direction {
		s.Parked.Direction, s.Parked.Count = direction, 0
	}
	switch at, err := time.Parse(time.RFC3339, s.Parked.At); {
	// No event: the operator who fixed the last group knows. Reset, so that a new one is reported.
	case count == 0:
		changed := s.Parked.Count != 0
		s.Parked.Count = 0
		return changed
	// Small growth and quick changes would flood the hook.
	case count < parkedMore*s.Parked.Count, err == nil && now.Sub(at) < parkedRest && now.After(at):
		return false
	}
	s.Parked.Count, s.Parked.At = count, now.UTC().Format(time.RFC3339)
	e := Event{Type: Parked, At: s.Parked.At, From: d.CurrentVersion, Parked: count}
	if to, ok := upgradestate.Followed(d); ok {
		e.To = to.TargetVersion
	}
	if d.Upgrade != nil {
		e.Upgrade = d.Upgrade.ID
	}
	s.add(d, e)
	return true
}
