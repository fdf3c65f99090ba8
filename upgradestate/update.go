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
	switch {
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
	ns, _ := d.Namespace(d.CurrentVersion)
	if _, ok := ns.Kind(u.Kind); !ok {
		return refused("update %s: %s has no kind %s", u.Name, d.CurrentVersion, u.Kind)
	}
	u.Done, u.Count, u.Example = []int{}, UpdateCount{}, ""
	d.Update = &u
	return nil
}

func (d *Deployment) updateDone(e UpdateDone) error {
	u := d.Update
	switch {
	case u == nil || u.ID != e.ID:
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
	if len(u.Done) == d.RingSize {
		outcome := "done"
		if u.Count.Failed > 0 {
			outcome = fmt.Sprintf("not done: %d records failed, such as %s", u.Count.Failed, u.Example)
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
	d.endUpdate(outcome)
	return nil
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
