package upgradestate

import "encoding/json"

// MarshalJSON adds upgradeState.pendingShards, which follows from the ring size and the
// ready shards, for those who read the record without this package. Decoding ignores it.
func (d Deployment) MarshalJSON() ([]byte, error) {
	type plain Deployment
	type upgrade struct {
		*Upgrade
		PendingShards []int `json:"pendingShards"`
	}
	out := struct {
		plain
		Upgrade *upgrade `json:"upgradeState,omitempty"`
	}{plain: plain(d)}
	if d.Upgrade != nil {
		out.Upgrade = &upgrade{Upgrade: d.Upgrade, PendingShards: PendingShards(d)}
	}
	return json.Marshal(out)
}
