package upgradestate

import (
	"fmt"
	"slices"
)

// Update is a data update that runs: a task over all records of a kind of the current
// version. The shards of the ring are its parts.
type Update struct {
	ID      string      `json:"id"` // of this run
	Name    string      `json:"name"`
	Version string      `json:"version"`
	Kind    string      `json:"kind"`
	Hash    string      `json:"hash"` // of what the task does
	Done    []int       `json:"done"` // shards, in order
	Count   UpdateCount `json:"count"`
	Example string      `json:"example,omitempty"` // one of those that failed, and why
	// Key, if not empty, is the key that the records are brought under, or "off": this is no
	// task of the service, and goes over further kinds one after the other.
	Key  string   `json:"key,omitempty"`
	Rest []string `json:"rest,omitempty"` // kinds that are still to come
	Step int      `json:"step,omitempty"` // kinds that are done
}

// RotateKeys is the name of updates that have a Key.
const RotateKeys = "rotate-keys"

// Run identifies the pass over the kind that the update is at.
func (u Update) Run() string {
	if u.Step == 0 {
		return u.ID
	}
	return fmt.Sprintf("%s.%d", u.ID, u.Step)
}

// UpdateCount is how many records were looked at, and what became of them. Changed is what
// its controller knows of: a record that was changed right before a kill is not in it.
type UpdateCount struct {
	Seen    int64 `json:"seen"`
	Changed int64 `json:"changed"`
	Failed  int64 `json:"failed,omitempty"` // and are as they were
}

func (d *Deployment) beginUpdate(e BeginUpdate) error {
	u := e.Update
	ns, _ := d.Namespace(d.CurrentVersion)
	switch {
	case e.Unasked && (u.Version != d.CurrentVersion || d.Upgrade != nil || u.Key != "" && ns.DeclinedKey == u.Key):
		return outdated("update %s, which nobody asked for", u.Name)
	case u.ID == "" || u.Name == "" || u.Kind == "" || u.Hash == "":
		return refused("update: id, name, kind and hash are all needed")
	case u.Version != d.CurrentVersion:
		return refused("update %s: it is for version %s, and %s is served", u.Name, u.Version, d.CurrentVersion)
	case switching(*d):
		return refused("update %s: upgrade %s is switching: wait for its end", u.Name, d.Upgrade.ID)
	}
	if run := d.Update; run != nil {
		if run.Name == u.Name && run.Hash == u.Hash {
			return nil
		}
		return refused("update %s: data update %s is running: let it finish or cancel it", u.Name, run.Name)
	}
	for _, kind := range append([]string{u.Kind}, u.Rest...) {
		if k, ok := ns.Kind(kind); !ok || u.Key != "" && k.Fixed {
			return refused("update %s: %s has no kind %s", u.Name, d.CurrentVersion, kind)
		}
	}
	u.Rest = slices.Clone(u.Rest)
	for _, k := range ns.Kinds {
		u.cover(k)
	}
	u.Done, u.Count, u.Example, u.Step = []int{}, UpdateCount{}, "", 0
	d.Update = &u
	if u.Key != "" {
		d.setDeclined(u.Version, "")
	}
	return nil
}

// cover has an update that goes over all kinds go over k as well, which the one that began it may not
// have seen: records of it may be under any key until nobody writes under another one.
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
	if len(u.Done) == d.RingSize && len(u.Rest) > 0 {
		u.Kind, u.Rest = u.Rest[0], slices.Clone(u.Rest[1:])
		u.Step, u.Done = u.Step+1, []int{}
		return nil
	}
	if len(u.Done) == d.RingSize {
		outcome := "done"
		if u.Count.Failed > 0 {
			outcome = fmt.Sprintf("not done: %d records failed, such as %s", u.Count.Failed, u.Example)
			d.decline(*u)
		}
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
	d.endUpdate(outcome)
	return nil
}

// decline notes that the records are not to be brought under the key of u unless a person asks.
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

// configureKey forgets that another key than the one that is configured was declined.
func (d *Deployment) configureKey(e ConfigureKey) error {
	if ns, _ := d.Namespace(e.Version); ns.DeclinedKey != e.Key {
		d.setDeclined(e.Version, "")
	}
	return nil
}

// yieldUpdate ends an update that may as well be made later, so that an upgrade need not wait for
// it: records may be under either key until then.
func (d *Deployment) yieldUpdate(id string) {
	if d.Update != nil && d.Update.Key != "" {
		d.endUpdate("cancelled: upgrade " + id + " begins")
	}
}

// endUpdate leaves what became of the update in the history.
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
		return fmt.Errorf("data update %s of version %s runs while %s is served", u.Name, u.Version, d.CurrentVersion)
	case switching(d):
		return fmt.Errorf("data update %s runs while upgrade %s switches", u.Name, d.Upgrade.ID)
	}
	return nil
}
