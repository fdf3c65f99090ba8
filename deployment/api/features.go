package api

// Fields of requests that confirm what a call is about to change. A controller that does not know
// one ignores it and does what was asked for unconfirmed. So callers ask first, see GetVersion.
const (
	ConfirmsLoss     = "BeginUpgradeRequest.confirm"
	ConfirmsComplete = "CompleteRequest.confirm"
	CountsWaived     = "WaiveKindRequest.count"
)

// Features are those that this controller knows.
func Features() []string { return []string{ConfirmsLoss, ConfirmsComplete, CountsWaived} }
