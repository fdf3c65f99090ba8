package hooks

import (
	"maps"
	"slices"
	"time"

	"dbcontroller.dev/upgradestate"
)

// Type says what happened.
type Type string

const (
	Begin       Type = "begin"        // an upgrade has begun
	Ready       Type = "ready"        // all its shards were ready for the first time
	Retry       Type = "retry"        // an attempt at its switch was given up, and is made again
	Switched    Type = "switched"     // it has switched
	Aborted     Type = "aborted"      // it has ended without
	Parked      Type = "parked"       // there is something that cannot be migrated, or much more than before
	FenceBroken Type = "fence-broken" // a fence was not in force, and was put back
	Completed   Type = "completed"    // a version that was left is set aside, or dropped
)

// Types are all of them.
var Types = []Type{Begin, Ready, Retry, Switched, Aborted, Parked, FenceBroken, Completed}

// Event is something that happened. It is sent as JSON; docs/operations.md describes it.
// Fields may be added.
type Event struct {
	ID         string `json:"id"`       // unique; the same each time that it is sent
	Sequence   int64  `json:"sequence"` // grows by one with each event of the deployment
	Type       Type   `json:"event"`
	Deployment string `json:"deployment"`
	At         string `json:"at"` // RFC 3339, when it happened
	// Version is the current one when the event was made.
	Version string `json:"version"`
	Upgrade string `json:"upgrade,omitempty"` // id of the upgrade, of what is about one
	From    string `json:"from,omitempty"`    // its versions; of Completed and FenceBroken the version meant
	To      string `json:"to,omitempty"`
	By      string `json:"by,omitempty"` // who asked for it, by its own account
	// Detail is for people: the policy of an upgrade, why it was aborted, what was found.
	Detail   string           `json:"detail,omitempty"`
	Rollback bool             `json:"rollback,omitempty"` // of Switched: it went back
	Millis   map[string]int64 `json:"millis,omitempty"`   // of Switched: the parts of the pause
	Kind     string           `json:"kind,omitempty"`     // of FenceBroken
	Parked   int64            `json:"parked,omitempty"`   // of Parked: groups, not waived
}

// Format is the version of State. A binary refuses a newer one.
const Format = 1

// State is what was told, as it is kept. The zero value is that of a deployment that hooks
// were never configured for.
type State struct {
	Format   int   `json:"format"`
	Sequence int64 `json:"sequence"` // of the latest event
	// Revision is that of the record that events were made of last: one that comes late, from
	// a process that leads no longer, makes none.
	Revision int64 `json:"revision"`
	// Entries is how many entries of the history were looked at, those included that it no
	// longer has.
	Entries int `json:"entries"`
	// Open are those of Entries whose end is still to be told.
	Open   []Open `json:"open,omitempty"`
	Parked Told   `json:"parked,omitzero"`
	// Queue are the events that some hook was not told of, oldest first.
	Queue []Event `json:"queue,omitempty"`
	// Done is, by hook, the sequence of the latest event that it was told of, or that was left out.
	Done map[string]int64 `json:"done,omitempty"`
}

// Open is an entry of the history that has not ended.
type Open struct {
	Entry int    `json:"entry"` // its number, counted as in Entries
	What  string `json:"what"`  // as in the entry, as are the next ones
	ID    string `json:"id,omitempty"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Ready bool   `json:"ready,omitempty"` // this was told
}

// Told is what was said of parked groups last.
type Told struct {
	Direction string `json:"direction"`
	Count     int64  `json:"count"`        // 0: that there is none is known
	At        string `json:"at,omitempty"` // RFC 3339, of the latest event
}

// maxQueue bounds State, and what waits for a hook that is away. Those that are over are the
// oldest, and left out.
const maxQueue = 200

// maxDetail bounds a text in bytes.
const maxDetail = 500

// add makes an event.
func (s *State) add(d upgradestate.Deployment, e Event) {
	s.Sequence++
	e.ID, e.Sequence, e.Deployment, e.Version = newID(), s.Sequence, d.Name, d.CurrentVersion
	e.Detail = clip(e.Detail, maxDetail)
	if e.At == "" {
		e.At = time.Now().UTC().Format(time.RFC3339)
	}
	s.Queue = append(s.Queue, e)
}

// configure makes the state one of these hooks: a new one is told what happens from now on,
// one that is no longer there is forgotten.
func (s *State) configure(names []string) {
	done := make(map[string]int64, len(names))
	for _, name := range names {
		at, known := s.Done[name]
		if !known {
			at = s.Sequence
		}
		done[name] = at
	}
	s.Done = done
	s.trim()
}

// skip takes a hook past events that it does not want.
func (s *State) skip(name string, wants func(Type) bool) {
	at, known := s.Done[name]
	if !known {
		return
	}
	for _, e := range s.Queue {
		if e.Sequence <= at {
			continue
		}
		if wants(e.Type) {
			return
		}
		at = e.Sequence
		s.Done[name] = at
	}
}

// trim removes events that every hook was told of. It returns those that not every hook was told
// of, and that there is no room for.
func (s *State) trim() (leftOut []Event) {
	told := s.Sequence
	for _, at := range s.Done {
		told = min(told, at)
	}
	s.Queue = slices.DeleteFunc(s.Queue, func(e Event) bool { return e.Sequence <= told })
	if over := len(s.Queue) - maxQueue; over > 0 {
		leftOut = slices.Clone(s.Queue[:over])
		s.Queue = slices.Delete(s.Queue, 0, over)
	}
	return leftOut
}

// clone shares nothing that is changed later: events are not.
func (s State) clone() State {
	s.Open, s.Queue, s.Done = slices.Clone(s.Open), slices.Clone(s.Queue), maps.Clone(s.Done)
	return s
}
