package upgradestate

import (
	"fmt"
	"slices"
)

// Update is a running data update: a task over all records of a kind of the current version. Each
// shard of the ring is one part of it.
type Update struct {
	ID      string      `json:"id"` // of this run
	Name    string      `json:"name"`
	Version string      `json:"version"`
	Kind    string      `json:"kind"`
	Hash    string      `json:"hash"` // of the task
	Done    []int       `json:"done"` // shards, in order
	Count   UpdateCount `json:"count"`
	Example string      `json:"example,omitempty"` // one of the failed records with its error
	// Key, if not empty, is the encryption key under which records are rewritten, or "off". Such an
	// update is no task of the service, and covers further kinds one after the other.
	Key  string   `json:"key,omitempty"`
	Rest []string `json:"rest,omitempty"` // kinds still to be covered
	Step int      `json:"step,omitempty"` // number of finished kinds
}

// RotateKeys is the Update.Name of updates with a Key.
const RotateKeys = "rotate-keys"

// Run returns an ID of the pass over the update's present kind. UpdateDone.ID must equal it.
func (u Update) Run() string {
	if u.Step == 0 {
		return u.ID
	}
	return fmt.Sprintf("%s.%d", u.ID, u.Step)
}

// UpdateCount counts records by result. Changed may be too low: a change right before a kill is not
// counted.
type UpdateCount struct {
	Seen    int64 `json:"seen"`
	Changed int64 `json:"changed"`
	Failed  int64 `json:"failed,omitempty"` // unchanged
}

func (d *Deployment) beginUpdate(e BeginUpdate) error {
	u := e.Update
	ns, _ := d.Namespace(d.CurrentVersion)
	if e.Follows != nil {
		if d.Update != nil && d.Update.ID == u.ID {
			return nil // a repetition after an unknown outcome
		}
		if err := d.mayFollow(u, *e.Follows); err != nil {
			return err
		}
	}
	switch {
	case e.Unasked && (u.Version != d.CurrentVersion || d.Upgrade != nil || u.Key != "" && ns.DeclinedKey == u.Key):
		return outdated("update %s was not requested", u.Name)
	case u.ID == "" || u.Name == "" || u.Kind == "" || u.Hash == "":
		return refused("update: id, name, kind and hash are all needed")
	case u.Version != d.CurrentVersion:
		return refused("update %s: it is for version %s, and the current version is %s", u.Name, u.Version, d.CurrentVersion)
	// Its writes would have to be drained, too.
	case switching(*d):
		return refused("update %s: upgrade %s is switching: wait until it ends", u.Name, d.Upgrade.ID)
	}
	if run := d.Update; run != nil {
		if run.Name == u.Name && run.Hash == u.Hash {
			return nil
		}
		return refused("update %s: data update %s is running: let it finish or cancel it", u.Name, run.Name)
	}
	for _, kind := range append([]string{u.Kind}, u.Rest...) {
		// A fixed-name kind belongs to its application, which does not know the keys.
		if k, ok := ns.Kind(kind); !ok || u.Key != "" && k.Fixed {
			return refused("update %s: %s has no kind %s", u.Name, d.CurrentVersion, kind)
		}
	}
	// The event belongs to the caller.
	u.Rest = slices.Clone(u.Rest)
	for _, k := range ns.Kinds {
		// Kinds may have been announced since the initiator looked.
		u.cover(k)
	}
	u.Done, u.Count, u.Example, u.Step = []int{}, UpdateCount{}, "", 0
	d.Update = &u
	if e.Follows != nil {
		d.follow(u, *e.Follows)
	}
	// A new start ends an earlier refusal of the key.
	if u.Key != "" {
		d.setDeclined(u.Version, "")
	}
	return nil
}

// cover adds a kind to an update over all kinds. The initiator may not have seen the kind, and its
// records may have any key until no process writes under another one.
func (u *Update) cover(k Kind) {
	if u.Key != "" && !k.Fixed && k.Kind != u.Kind && !slices.Contains(u.Rest, k.Kind) {
		u.Rest = append(u.Rest, k.Kind)
	}
}

func (d *Deployment) updateDone(e UpdateDone) error {
	u := d.Update
	switch {
	case u == nil || u.Run() != e.ID:
		return outdated("done for data update %s", e.ID)
	case e.Shard < 0 || e.Shard >= d.RingSize:
		return refused("update %s: shard %d is not in the ring of %d", u.Name, e.Shard, d.RingSize)
	// A repetition must not count twice.
	case slices.Contains(u.Done, e.Shard):
		return nil
	}
	u.Done = append(u.Done, e.Shard)
	slices.Sort(u.Done)
	u.Count.Seen += e.Count.Seen
	u.Count.Changed += e.Count.Changed
	u.Count.Failed += e.Count.Failed
	if u.Example == "" {
		u.Example = e.Example
	}
	// The next kind is a new run, so that late reports of this one are outdated.
	if len(u.Done) == d.RingSize && len(u.Rest) > 0 {
		u.Kind, u.Rest = u.Rest[0], slices.Clone(u.Rest[1:])
		u.Step, u.Done = u.Step+1, []int{}
		return nil
	}
	if len(u.Done) == d.RingSize {
		outcome := "done"
		if u.Count.Failed > 0 {
			outcome = fmt.Sprintf("not done: %d records failed, such as %s", u.Count.Failed, u.Example)
			// A start without an operator would fail in the same way.
			d.decline(*u)
		}
		d.endPass(outcome, true, false)
		d.endUpdate(outcome)
	}
	return nil
}

func (d *Deployment) cancelUpdate(e CancelUpdate) error {
	if d.Update == nil || e.ID != "" && e.ID != d.Update.ID {
		return nil
	}
	outcome := "cancelled"
	if e.Reason != "" {
		outcome += ": " + e.Reason
	}
	d.decline(*d.Update)
	// Nobody begins again what an operator has cancelled. After another switch a pass is due anyway.
	d.endPass(outcome, false, false)
	d.endUpdate(outcome)
	return nil
}

// decline records that the records are not to be rewritten under the key of u without an operator's
// request.
func (d *Deployment) decline(u Update) {
	if u.Key != "" {
		d.setDeclined(u.Version, u.Key)
	}
}

func (d *Deployment) setDeclined(version, key string) {
	for i := range d.Namespaces {
		if ns := &d.Namespaces[i]; ns.Version == version {
			ns.DeclinedKey = key
		}
	}
}

// configureKey clears a refusal of another key than the configured one.
func (d *Deployment) configureKey(e ConfigureKey) error {
	if ns, _ := d.Namespace(e.Version); ns.DeclinedKey != e.Key {
		d.setDeclined(e.Version, "")
	}
	return nil
}

// yieldUpdate ends an update that can run later as well, so that an upgrade need not wait for it.
// Until then records may have either key. Updates that begin by themselves make room for a rollback
// only: an upgrade takes long, and references would lead nowhere meanwhile.
func (d *Deployment) yieldUpdate(e Begin) {
	if d.Update == nil {
		return
	}
	f, follows := FollowingOf(*d, d.Update.Name)
	follows = follows && f.Run == d.Update.ID
	if d.Update.Key == "" && (!follows || !d.leadsBack(e.TargetVersion, e.Snapshot)) {
		return
	}
	outcome := "cancelled: upgrade " + e.ID + " begins"
	d.endPass(outcome, false, true)
	d.endUpdate(outcome)
}

// endUpdate removes the update and records its outcome in the history.
func (d *Deployment) endUpdate(outcome string) {
	if e := d.entry("update", d.Update.ID); e != nil {
		e.Outcome = fmt.Sprintf("%s; %d seen, %d changed", outcome, d.Update.Count.Seen, d.Update.Count.Changed)
	}
	d.Update = nil
}

func validateUpdate(d Deployment) error {
	u := d.Update
	switch {
	case u == nil:
		return nil
	case u.ID == "" || u.Name == "" || u.Kind == "":
		return fmt.Errorf("data update %q has no id, name or kind", u.Name)
	case u.Version != d.CurrentVersion:
		return fmt.Errorf("data update %s of version %s runs while %s is the current version", u.Name, u.Version, d.CurrentVersion)
	case switching(d):
		return fmt.Errorf("data update %s runs while upgrade %s switches", u.Name, d.Upgrade.ID)
	}
	return nil
}
