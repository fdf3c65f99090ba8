package api

// These request fields confirm the effects of a call. An old controller ignores a field that it
// does not know, and would then act without confirmation. Callers therefore check GetVersion first.
const (
	ConfirmsLoss     = "BeginUpgradeRequest.confirm"
	ConfirmsComplete = "CompleteRequest.confirm"
	CountsWaived     = "WaiveKindRequest.count"
)

// Features returns the features of this controller.
func Features() []string { return []string{ConfirmsLoss, ConfirmsComplete, CountsWaived} }
