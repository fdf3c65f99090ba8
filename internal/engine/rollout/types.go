package rollout

import (
	"fmt"
	"slices"
	"time"
)

// Format is the version of the persisted record. A binary refuses a newer one.
const Format = 1

// State is the state of a rollout.
type State string

const (
	// Running: waves begin one after the other.
	Running State = "RUNNING"
	// Paused: no deployment begins and no gate passes, until an operator resumes it. Upgrades that
	// run go on.
	Paused State = "PAUSED"
	// Stopped: a wave failed, or an operator stopped the rollout. No deployment begins. Upgrades that
	// run go on.
	Stopped State = "STOPPED"
	// RollingBack: the deployments of one or more waves return to their former versions.
	RollingBack State = "ROLLING_BACK"
	// RolledBack: all of them have returned.
	RolledBack State = "ROLLED_BACK"
	// Done: all waves have passed their gates.
	Done State = "DONE"
)

// Step is the stage of the current wave.
type Step string

const (
	// StepUpgrade: the deployments of the wave upgrade.
	StepUpgrade Step = "UPGRADE"
	// StepGate: all of them have switched. The gate is not passed yet.
	StepGate Step = "GATE"
	// StepPause: the gate has passed. The next wave waits.
	StepPause Step = "PAUSE"
)

// OnFailure is what happens to a wave that fails.
type OnFailure string

const (
	StopOnly    OnFailure = "stop"
	RollBackToo OnFailure = "rollback"
)

// Direction is the direction of an order.
type Direction string

const (
	Forward Direction = "upgrade"
	Back    Direction = "rollback"
)

// Result is how the latest order of a deployment has ended.
type Result string

const (
	Upgraded   Result = "upgraded"
	WasThere   Result = "was there" // it served the target before its wave
	Ended      Result = "ended"     // the upgrade ended without a switch
	NotBegun   Result = "not begun" // the order was withdrawn in time
	Returned   Result = "rolled back"
	LeftAlone  Result = "left alone" // somebody else has upgraded it since
	NotRolled  Result = "not rolled back"
	inProgress Result = ""
)

// Rollout is the record of one rollout. Revision is the revision in the coordination store and not
// part of the stored value.
type Rollout struct {
	Format        int    `json:"format"`
	Name          string `json:"name"`
	ID            string `json:"id"` // unique, part of every upgrade id
	TargetVersion string `json:"targetVersion"`
	Policy        Policy `json:"policy"`
	Waves         []Wave `json:"waves"`

	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // of STOPPED, PAUSED and the states of a rollback; for people
	Wave   int    `json:"wave"`             // index of the current wave
	Step   Step   `json:"step"`
	// StepMillis is how long drivers had observed the step, when Driver had observed for ClockMillis.
	// Limits and pauses count only observed time: no wall clock decides.
	StepMillis  int64  `json:"stepMillis,omitempty"`
	Driver      string `json:"driver,omitempty"` // of the latest look
	ClockMillis int64  `json:"clockMillis,omitempty"`
	// Holds means that Driver has seen the gate's conditions hold since it had observed for
	// HeldMillis. Another driver begins anew, because nobody looked meanwhile.
	Holds      bool   `json:"holds,omitempty"`
	HeldMillis int64  `json:"heldMillis,omitempty"`
	Waits      string `json:"waits,omitempty"` // what the current step waits for; for people
	// BackTo is the index of the first wave that a rollback includes.
	BackTo int `json:"backTo,omitempty"`

	By      string    `json:"by,omitempty"` // who began it
	Began   time.Time `json:"began,omitzero"`
	History []Entry   `json:"history,omitempty"` // oldest first, at most maxHistory

	Revision int64 `json:"-"`
}

// Policy is what an operator chose for a rollout.
type Policy struct {
	PauseMillis     int64     `json:"pauseMillis,omitempty"`     // between two waves
	HoldMillis      int64     `json:"holdMillis,omitempty"`      // how long the gate's conditions must hold
	GateLimitMillis int64     `json:"gateLimitMillis"`           // the wave fails if its gate has not passed by then
	WaveLimitMillis int64     `json:"waveLimitMillis,omitempty"` // the same for its upgrades; 0: no limit
	MaxLagMillis    int64     `json:"maxLagMillis,omitempty"`    // of the version that follows; 0: not checked
	Checks          []string  `json:"checks,omitempty"`          // by name
	OnFailure       OnFailure `json:"onFailure"`
}

// Wave is a group of deployments that upgrade at the same time.
type Wave struct {
	Items []Item `json:"items"`
}

// Item is one deployment of a rollout.
type Item struct {
	Name  string    `json:"name"`
	Order Direction `json:"order,omitempty"` // empty: none yet
	ID    string    `json:"upgradeId,omitempty"`
	From  string    `json:"from,omitempty"` // the version before the order
	// Base is the deployment's latest upgrade id when the order was given. If it has another one by
	// now, and not ID, somebody else has begun an upgrade.
	Base  string `json:"base,omitempty"`
	Home  string `json:"home,omitempty"`  // the version that a rollback returns to
	Tries int    `json:"tries,omitempty"` // orders so far, so that each gets an id of its own
	// Returns counts the orders of the current rollback.
	Returns int    `json:"returns,omitempty"`
	Result  Result `json:"result,omitempty"` // empty: the order goes on
	Detail  string `json:"detail,omitempty"` // why it does not go on; for people
}

// Entry is one event of a rollout.
type Entry struct {
	At   time.Time `json:"at"`
	By   string    `json:"by,omitempty"`
	What string    `json:"what"`
}

// maxHistory bounds the history, to keep the record small.
const maxHistory = 50

// Clone returns a deep copy of r.
func Clone(r Rollout) Rollout {
	r.Policy.Checks = slices.Clone(r.Policy.Checks)
	r.Waves = slices.Clone(r.Waves)
	for i := range r.Waves {
		r.Waves[i].Items = slices.Clone(r.Waves[i].Items)
	}
	r.History = slices.Clone(r.History)
	return r
}

// Active reports whether a driver has work with the rollout.
func Active(r Rollout) bool { return r.State == Running || r.State == RollingBack }

// Open reports whether the rollout gives orders, or is paused. No other one may then have its
// deployments.
func Open(r Rollout) bool { return Active(r) || r.State == Paused }

// Names returns the deployments in the order of the waves.
func Names(r Rollout) []string {
	var all []string
	for _, w := range r.Waves {
		for _, i := range w.Items {
			all = append(all, i.Name)
		}
	}
	return all
}

// Item returns a deployment of the rollout and the index of its wave.
func (r Rollout) Item(name string) (item Item, wave int, ok bool) {
	for w := range r.Waves {
		for _, i := range r.Waves[w].Items {
			if i.Name == name {
				return i, w, true
			}
		}
	}
	return Item{}, 0, false
}

// Note adds an entry to the history.
func (r *Rollout) Note(at time.Time, by, what string) {
	r.History = append(r.History, Entry{At: at, By: by, What: what})
	if over := len(r.History) - maxHistory; over > 0 {
		r.History = slices.Delete(r.History, 0, over)
	}
}

// order gives an item a new order. The id names the rollout, and no other order has it.
func (r *Rollout) order(w, i int, to Direction, s Seen) {
	item, d := &r.Waves[w].Items[i], s.Deployments[r.Waves[w].Items[i].Name]
	item.Tries++
	item.Order, item.ID = to, fmt.Sprintf("%s-%d-%d-%d", r.ID, w, i, item.Tries)
	item.From, item.Base, item.Result, item.Detail = d.CurrentVersion, d.LastUpgradeID, inProgress, ""
	if item.Returns++; to == Forward {
		item.Home, item.Returns = d.CurrentVersion, 0
	}
}
