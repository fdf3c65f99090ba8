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
	Unclaimed State = "UNCLAIMED" // no cell has claimed it
	Claimed   State = "CLAIMED"   // its cell is starting it
	Running   State = "RUNNING"
	Crashed   State = "CRASHED" // restarted after a pause
)

// Instance is one instance of a process, either on a cell or waiting for one.
type Instance struct {
	Placement string // unique for each instance ever wanted; empty: not assigned yet
	GUID      string // assigned by its cell
	Cell      string
	State     State
	// Epoch is the process's epoch when the instance was requested. Instances of a deleted and
	// recreated process have another epoch and are stopped.
	Epoch          string
	Wanted, Since  time.Time // times of the request and of the last change of State
	Crashes        int32     // in a row
	CrashReason    string
	PlacementError string // why no cell has claimed it
	Retire         bool   // its cell must stop it
	// GivenUp means that the rollout went on without it. It is Crashed once its cell has stopped it.
	GivenUp bool
}

// Slot is the state of one index and definition of a process. Its methods apply the reports of cells
// and clients. They replace the instances that the fields point to, and never modify them.
type Slot struct{ Instance, Evacuating *Instance }

// Has reports whether a cell knows an instance of the slot by this guid.
func (s Slot) Has(guid, cell string) bool {
	return s.Instance.of(guid, cell) || s.Evacuating.of(guid, cell)
}

// Equal reports whether two slots hold equal instances.
func (s Slot) Equal(o Slot) bool {
	return same(s.Instance, o.Instance) && same(s.Evacuating, o.Evacuating)
}

func same(a, b *Instance) bool { return a == b || a != nil && b != nil && *a == *b }

// ErrRefused is returned for a report that does not fit the instance's state. The slot is
// unchanged. A cell that gets it must stop its instance: another cell has it, or it is no longer
// wanted.
var ErrRefused = errors.New("the instance is not in a state for it")

func (s *Slot) refuse(what string) error {
	if s.Instance == nil {
		return fmt.Errorf("%s: there is none: %w", what, ErrRefused)
	}
	return fmt.Errorf("%s: it is %s: %w", what, s.Instance.State, ErrRefused)
}

// of reports whether a cell knows an instance by this guid.
func (i *Instance) of(guid, cell string) bool {
	return i != nil && i.OnCell() && i.GUID == guid && i.Cell == cell
}

// OnCell reports whether a cell has claimed or runs the instance.
func (i *Instance) OnCell() bool { return i.State == Claimed || i.State == Running }

// Claim assigns an unclaimed instance to a cell.
func (s *Slot) Claim(guid, cell string, now time.Time) error {
	switch {
	case s.Instance.of(guid, cell) && s.Instance.State == Claimed:
		return nil // a retry, after its response was lost
	case s.Instance == nil || s.Instance.State != Unclaimed:
		return s.refuse("claim")
	}
	s.take(guid, cell, Claimed, now)
	return nil
}

// Start records that the instance runs on a cell. A cell may start an unclaimed instance, too.
func (s *Slot) Start(guid, cell string, now time.Time) error {
	mine := s.Instance.of(guid, cell)
	switch {
	// A retry, after its response was lost.
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

// steady is the running time after which a crash starts a new count.
const steady = 5 * time.Minute

// Crash records that an instance ended by itself. An instance to be stopped counts as stopped.
func (s *Slot) Crash(guid, cell, reason string, now time.Time) error {
	// Its successor is wanted already, so no restart is needed.
	if s.Evacuating.of(guid, cell) {
		s.Evacuating = nil
		return nil
	}
	if !s.Instance.of(guid, cell) {
		return s.refuse("crash")
	}
	next := *s.Instance
	if next.Retire {
		s.Instance = next.stopped()
		return nil
	}
	// A crash after a long run is not part of a series. It deserves no pause, and a new timeout.
	if next.State == Running && now.Sub(next.Since) >= steady {
		next.Crashes, next.Wanted = 0, now
	}
	next.GUID, next.Cell, next.State, next.Since = "", "", Crashed, now
	next.Crashes++
	next.CrashReason = reason
	s.Instance = &next
	return nil
}

// Fail records why no cell has claimed an instance.
func (s *Slot) Fail(reason string) error {
	if s.Instance == nil || s.Instance.State != Unclaimed {
		return s.refuse("fail")
	}
	next := *s.Instance
	next.PlacementError = reason
	s.Instance = &next
	return nil
}

// Remove records that a cell has stopped an instance. An unknown instance is no error: it is gone,
// as intended.
func (s *Slot) Remove(guid, cell string) {
	if s.Instance.of(guid, cell) {
		s.Instance = s.Instance.stopped()
	}
	if s.Evacuating.of(guid, cell) {
		s.Evacuating = nil
	}
}

// Evacuate empties the place of an instance for a new one. A running instance runs until its
// successor does, one that does not run yet is released. Decide chooses the successor, which may
// have another definition.
func (s *Slot) Evacuate(guid, cell string, _ time.Time) error {
	switch {
	case s.Evacuating.of(guid, cell):
		return nil
	case !s.Instance.of(guid, cell):
		return s.refuse("evacuate")
	// A slot has room for one evacuating instance only.
	case s.Instance.State == Running && s.Evacuating != nil:
		return fmt.Errorf("evacuate: it has just taken another one's place, which still runs: try again: %w", ErrRefused)
	}
	switch {
	// A retired instance has a successor already, or needs none.
	case s.Instance.State == Running && !s.Instance.Retire:
		s.Evacuating, s.Instance = s.Instance, nil
	default:
		s.Instance = s.Instance.stopped()
	}
	return nil
}

// RetireInstance requests that an instance be stopped. Decide chooses what follows.
func (s *Slot) RetireInstance() {
	s.Instance = retired(s.Instance)
}

// retire retires the instances of a slot. It returns "" if it changes nothing.
func (s *Slot) retire(instance, evacuating bool) Op {
	was := *s
	if instance {
		s.Instance = retired(s.Instance)
	}
	if evacuating {
		s.Evacuating = retired(s.Evacuating)
	}
	if s.Equal(was) {
		return "" // their cells will stop them
	}
	return Retire
}

// retired marks an instance on a cell, since its cell must stop it first. It returns nil for any
// other.
func retired(i *Instance) *Instance {
	// No cell runs it, so it can go at once.
	if i == nil || !i.OnCell() {
		return nil
	}
	next := *i
	next.Retire, next.GivenUp = true, false
	return &next
}

// stopped returns what is left of an instance that its cell no longer has: nothing, unless the
// rollout gave it up. Without that mark the rollout would try it again.
func (i *Instance) stopped() *Instance {
	if !i.GivenUp {
		return nil
	}
	next := *i
	next.GUID, next.Cell, next.State, next.Retire = "", "", Crashed, false
	return &next
}

// givenUp marks an instance, and asks its cell to stop it if it has one.
func (i *Instance) givenUp(now time.Time) *Instance {
	next := *i
	next.GivenUp, next.Retire = true, i.OnCell()
	if !i.OnCell() {
		next.State, next.Since = Crashed, now // no cell may claim it
	}
	return &next
}

// wanted returns an instance that waits for a cell.
func wanted(epoch string, now time.Time) *Instance {
	return &Instance{State: Unclaimed, Epoch: epoch, Wanted: now, Since: now}
}
