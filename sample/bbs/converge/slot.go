package converge

import (
	"errors"
	"fmt"
	"time"
)

// State of an instance.
type State string

// States of an instance.
const (
	Unclaimed State = "UNCLAIMED" // no cell has taken it
	Claimed   State = "CLAIMED"   // its cell starts it
	Running   State = "RUNNING"
	Crashed   State = "CRASHED" // it is started again after a pause
)

// Instance is one instance of a process: on a cell, or waiting for one.
type Instance struct {
	Placement string // one for each instance that was ever wanted; empty: not drawn yet
	GUID      string // given by the cell that has it
	Cell      string
	State     State
	// Definition that it runs, and the epoch of the process for which it was wanted: a process
	// that was deleted and made anew has the old one's instances replaced.
	Definition, Epoch string
	Wanted, Since     time.Time // since when it is wanted, and in this state
	Crashes           int32     // in a row
	CrashReason       string
	PlacementError    string // why no cell has taken it
	Retire            bool   // its cell must stop it
}

// Slot is what there is of one index of a process. Its methods are what cells and clients say;
// they replace what Instance and Evacuating point to, and do not write to it.
type Slot struct{ Instance, Evacuating *Instance }

// Equal reports whether two slots hold the same.
func (s Slot) Equal(o Slot) bool {
	return same(s.Instance, o.Instance) && same(s.Evacuating, o.Evacuating)
}

func same(a, b *Instance) bool { return a == b || a != nil && b != nil && *a == *b }

// ErrRefused is returned for what does not fit the state that an instance is in. Nothing has
// changed. A cell that gets it stops what it runs: another one has the instance, or nobody.
var ErrRefused = errors.New("the instance is not in a state for it")

func (s *Slot) refuse(what string) error {
	if s.Instance == nil {
		return fmt.Errorf("%s: there is none: %w", what, ErrRefused)
	}
	return fmt.Errorf("%s: it is %s: %w", what, s.Instance.State, ErrRefused)
}

// of reports whether an instance is the one that a cell calls so.
func (i *Instance) of(guid, cell string) bool {
	return i != nil && i.OnCell() && i.GUID == guid && i.Cell == cell
}

// OnCell reports whether a cell has it.
func (i *Instance) OnCell() bool { return i.State == Claimed || i.State == Running }

// Claim gives an unclaimed instance to a cell.
func (s *Slot) Claim(guid, cell string, now time.Time) error {
	switch {
	case s.Instance.of(guid, cell) && s.Instance.State == Claimed:
		return nil // its answer was lost
	case s.Instance == nil || s.Instance.State != Unclaimed:
		return s.refuse("claim")
	}
	s.take(guid, cell, Claimed, now)
	return nil
}

// Start says that the instance runs on a cell.
func (s *Slot) Start(guid, cell string, now time.Time) error {
	mine := s.Instance.of(guid, cell)
	switch {
	case mine && s.Instance.State == Running:
		return nil
	case !mine && (s.Instance == nil || s.Instance.State != Unclaimed):
		return s.refuse("start")
	}
	s.take(guid, cell, Running, now)
	return nil
}

func (s *Slot) take(guid, cell string, state State, now time.Time) {
	next := *s.Instance
	next.GUID, next.Cell, next.State, next.Since, next.PlacementError = guid, cell, state, now, ""
	s.Instance = &next
}

// steady is how long an instance must have run for its crash to be a first one.
const steady = 5 * time.Minute

// Crash says that an instance has ended by itself. One that was to stop has stopped.
func (s *Slot) Crash(guid, cell, reason string, now time.Time) error {
	if s.Evacuating.of(guid, cell) {
		s.Evacuating = nil
		return nil
	}
	if !s.Instance.of(guid, cell) {
		return s.refuse("crash")
	}
	next := *s.Instance
	if next.Retire {
		s.Instance = nil
		return nil
	}
	if next.State == Running && now.Sub(next.Since) >= steady {
		next.Crashes = 0
	}
	next.GUID, next.Cell, next.State, next.Since = "", "", Crashed, now
	next.Crashes++
	next.CrashReason = reason
	s.Instance = &next
	return nil
}

// Fail says why no cell has taken an instance.
func (s *Slot) Fail(reason string) error {
	if s.Instance == nil || s.Instance.State != Unclaimed {
		return s.refuse("fail")
	}
	next := *s.Instance
	next.PlacementError = reason
	s.Instance = &next
	return nil
}

// Remove says that a cell has stopped an instance. Where there is no such one it is no error:
// that is what was to be.
func (s *Slot) Remove(guid, cell string) {
	if s.Instance.of(guid, cell) {
		s.Instance = nil
	}
	if s.Evacuating.of(guid, cell) {
		s.Evacuating = nil
	}
}

// Evacuate has an instance that runs give its place to another one, and run until that one
// does. One that does not run yet is given back.
func (s *Slot) Evacuate(guid, cell string, now time.Time) error {
	switch {
	case s.Evacuating.of(guid, cell):
		return nil
	case !s.Instance.of(guid, cell):
		return s.refuse("evacuate")
	case s.Instance.State == Running && s.Evacuating != nil:
		return fmt.Errorf("evacuate: it has just taken another one's place, which still runs: try again: %w", ErrRefused)
	}
	if s.Instance.State == Running {
		s.Evacuating = s.Instance
	}
	s.Instance = wanted(s.Instance.Definition, s.Instance.Epoch, now)
	return nil
}

// RetireInstance has an instance stopped. What follows is Decide's to say.
func (s *Slot) RetireInstance() {
	s.Instance = retired(s.Instance)
}

// retired is what is left at once of an instance that must go: its cell has to stop it first.
func retired(i *Instance) *Instance {
	if i == nil || !i.OnCell() {
		return nil
	}
	next := *i
	next.Retire = true
	return &next
}

// wanted is an instance for which no cell was found yet.
func wanted(definition, epoch string, now time.Time) *Instance {
	return &Instance{State: Unclaimed, Definition: definition, Epoch: epoch, Wanted: now, Since: now}
}
