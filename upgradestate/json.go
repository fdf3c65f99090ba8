package upgradestate

import "encoding/json"

// MarshalJSON adds upgradeState.pendingShards for readers without this package. It follows from the
// ring size and the ready shards. Decoding ignores it.
func (d Deployment) MarshalJSON() ([]byte, error) {
	// Without the method set, or Marshal would call this method again.
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
