package rollout

import "time"

// Seen is what a driver has read, after it has read the record that it passes to Advance.
type Seen struct {
	Now time.Time // for the history; it decides nothing
	// Driver names one uninterrupted period of observation. A driver that was away for long uses
	// another name afterwards.
	Driver string
	// Clock is the time that Driver has observed. It never goes back.
	Clock       time.Duration
	Deployments map[string]Deployment
	Checks      map[string]string // by name: why it has not passed; "" means passed. A missing one did not run.
}

// Deployment is the part of a deployment that rollouts decide on. The zero value is a deployment
// that could not be read.
type Deployment struct {
	CurrentVersion string
	UpgradeID      string // of the running upgrade; empty: none runs
	LastUpgradeID  string // of the latest upgrade, running or not
	LastSwitchID   string
	// Against is what is known against the deployment after its switch: breaches, parked records,
	// lag and so on; for people.
	Against string
	// Waits is what the running upgrade waits for before its switch; for people.
	Waits  string
	Unread string // why it could not be read; for people
}

// standing is where an order stands, as the deployment's own record shows it.
type standing int

const (
	unknown   standing = iota // the deployment could not be read
	untouched                 // the order has not begun
	running
	switched
	ended   // it ended without a switch
	foreign // somebody else began an upgrade
)

func standingOf(item Item, d Deployment) standing {
	switch {
	case d.CurrentVersion == "":
		return unknown
	case item.ID == "":
		return untouched
	case d.LastUpgradeID == item.ID && d.UpgradeID == item.ID:
		return running
	case d.LastUpgradeID == item.ID && d.LastSwitchID == item.ID:
		return switched
	case d.LastUpgradeID == item.ID:
		return ended
	case d.LastUpgradeID == item.Base && d.UpgradeID == "" && d.CurrentVersion == item.From:
		return untouched
	default:
		return foreign
	}
}

// Act is what a controller of a deployment has to do.
type Act string

const (
	Nothing Act = ""
	Begin   Act = "begin"
	Abort   Act = "abort"
)

// Action is the next act of a rollout on one deployment.
type Action struct {
	Act    Act
	ID     string // of the upgrade
	Target string // version of Begin
	Reason string // of Abort
}

// Next returns the next act on a deployment. The caller must make it conditional on the revision of
// the rollout: then nothing begins after the rollout was stopped. The act may be repeated.
func Next(r Rollout, name string, d Deployment) Action {
	item, w, ok := r.Item(name)
	if !ok || item.Order == "" || item.Result != inProgress || !Active(r) {
		return Action{}
	}
	at := standingOf(item, d)
	switch {
	case r.State == Running && item.Order == Forward && at == untouched:
		return Action{Act: Begin, ID: item.ID, Target: r.TargetVersion}
	case r.State == RollingBack && w >= r.BackTo && item.Order == Forward && at == running:
		return Action{Act: Abort, ID: item.ID, Reason: "rollout " + r.Name + " rolls back its wave"}
	case r.State == RollingBack && item.Order == Back && at == untouched:
		return Action{Act: Begin, ID: item.ID, Target: item.Home}
	}
	return Action{}
}
