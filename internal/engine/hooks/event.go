package hooks

import (
	"maps"
	"slices"
	"time"

	"dbcontroller.dev/upgradestate"
)

// Type is the kind of an event.
type Type string

const (
	// The types of events.
	Begin       Type = "begin"        // an upgrade began
	Ready       Type = "ready"        // all its shards were ready for the first time
	Retry       Type = "retry"        // an attempt at its switch failed and will be repeated
	Switched    Type = "switched"     // it switched
	Aborted     Type = "aborted"      // it ended without a switch
	Parked      Type = "parked"       // some groups cannot be migrated, or many more than before
	FenceBroken Type = "fence-broken" // a fence was missing and was set again
	Completed   Type = "completed"    // an abandoned version was set aside or dropped
)

// Types lists every Type.
var Types = []Type{Begin, Ready, Retry, Switched, Aborted, Parked, FenceBroken, Completed}

// Event is one reported event. Hooks receive it as JSON; docs/operations.md describes it. Later
// versions may add fields.
type Event struct {
	ID         string `json:"id"`       // unique; the same for each delivery
	Sequence   int64  `json:"sequence"` // grows by one with each event of the deployment
	Type       Type   `json:"event"`
	Deployment string `json:"deployment"`
	At         string `json:"at"` // RFC 3339, time of the event
	// Version is the current version when the event was created.
	Version string `json:"version"`
	Upgrade string `json:"upgrade,omitempty"` // id of the upgrade, if the event is about one
	From    string `json:"from,omitempty"`    // the upgrade's versions; for Completed and FenceBroken the affected version
	To      string `json:"to,omitempty"`
	By      string `json:"by,omitempty"` // requester, by its own account
	// Detail is a text for operators, such as the policy of an upgrade or the reason of an abort.
	Detail   string           `json:"detail,omitempty"`
	Rollback bool             `json:"rollback,omitempty"` // for Switched: it was a rollback
	Millis   map[string]int64 `json:"millis,omitempty"`   // for Switched: parts of the pause
	Kind     string           `json:"kind,omitempty"`     // for FenceBroken
	Parked   int64            `json:"parked,omitempty"`   // for Parked: groups that are not waived
}

// Format is the version of State. A binary refuses a newer one.
const Format = 1

// State is the stored delivery state. The zero value belongs to a deployment without hooks so far.
type State struct {
	Format   int   `json:"format"`
	Sequence int64 `json:"sequence"` // of the latest event
	// Revision of the record that the last events came from. A late record from a former leader has
	// a lower one and creates no events.
	Revision int64 `json:"revision"`
	// Entries counts the processed entries of the history, including entries that the history has
	// dropped.
	Entries int `json:"entries"`
	// Open lists the processed entries without a reported end.
	Open   []Open `json:"open,omitempty"`
	Parked Told   `json:"parked,omitzero"`
	// Queue holds the events that some hook has not received, oldest first.
	Queue []Event `json:"queue,omitempty"`
	// Done holds, for each hook, the sequence of the latest event that it received or that was
	// dropped for it.
	Done map[string]int64 `json:"done,omitempty"`
}

// Open is an entry of the history that has not ended.
type Open struct {
	Entry int    `json:"entry"` // its number, counted as in Entries
	What  string `json:"what"`  // this and the next fields are as in the entry
	ID    string `json:"id,omitempty"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Ready bool   `json:"ready,omitempty"` // the Ready event exists
}

// Told is the last reported number of parked groups.
type Told struct {
	Direction string `json:"direction"`
	Count     int64  `json:"count"`        // 0: none are known
	At        string `json:"at,omitempty"` // RFC 3339, of the latest event
}

// maxQueue bounds State and the backlog of an unreachable hook. The oldest events above it are
// dropped.
const maxQueue = 200

// maxDetail bounds a text, in bytes.
const maxDetail = 500

// add creates an event and appends it to the queue.
func (s *State) add(d upgradestate.Deployment, e Event) {
	s.Sequence++
	e.ID, e.Sequence, e.Deployment, e.Version = newID(), s.Sequence, d.Name, d.CurrentVersion
	e.Detail = clip(e.Detail, maxDetail)
	if e.At == "" {
		e.At = time.Now().UTC().Format(time.RFC3339)
	}
	s.Queue = append(s.Queue, e)
}

// configure adapts the state to the configured hooks. A new hook receives only later events, and a
// removed hook is forgotten.
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

// skip advances a hook past events that it does not want.
func (s *State) skip(name string, wants func(Type) bool) {
	at, known := s.Done[name]
	if !known {
		return
	}
	for _, e := range s.Queue {
		if e.Sequence <= at {
			continue
		}
		// Stop at the first wanted event: it must be delivered first.
		if wants(e.Type) {
			return
		}
		at = e.Sequence
		s.Done[name] = at
	}
}

// trim removes the events that every hook received. It returns the undelivered events that exceeded
// the queue.
func (s *State) trim() (leftOut []Event) {
	// Without hooks every event counts as received.
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

// clone returns a copy that shares only immutable events.
func (s State) clone() State {
	s.Open, s.Queue, s.Done = slices.Clone(s.Open), slices.Clone(s.Queue), maps.Clone(s.Done)
	return s
}
