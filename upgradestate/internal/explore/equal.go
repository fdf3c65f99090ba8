package explore

import (
	"maps"
	"reflect"
	"slices"

	us "dbcontroller.dev/upgradestate"
)

// equal compares records, and is strict about nil and empty. Reflection over a record took most of
// the time of an exploration, so each field is compared by itself. It remains for parts that few
// records have.
func equal(a, b us.Deployment) bool {
	return a.Format == b.Format && a.Name == b.Name && a.CurrentVersion == b.CurrentVersion && a.Epoch == b.Epoch &&
		a.RingSize == b.RingSize && a.HistoryDropped == b.HistoryDropped && a.LastUpgradeID == b.LastUpgradeID &&
		a.Revision == b.Revision && a.Pace == b.Pace &&
		equalPointers(a.Upgrade, b.Upgrade, equalUpgrades) && equalPointers(a.LastSwitch, b.LastSwitch, equalSwitches) &&
		equalSlices(a.Namespaces, b.Namespaces, equalNamespaces) && equalSlices(a.History, b.History, equalEntries) &&
		equalSlices(a.Available, b.Available, same) && equalSlices(a.Retired, b.Retired, same) &&
		equalSlices(a.Breaches, b.Breaches, same) && equalSlices(a.Restored, b.Restored, same) &&
		equalSlices(a.Kept, b.Kept, equalDeeply) && equalPointers(a.Retire, b.Retire, same) &&
		equalPointers(a.Update, b.Update, equalDeeply) && equalPointers(a.Different, b.Different, equalDeeply) &&
		equalSlices(a.Following, b.Following, same) && equalPointers(a.Anew, b.Anew, equalDeeply)
}

func same[T comparable](a, b T) bool { return a == b }

func equalDeeply[T any](a, b T) bool { return reflect.DeepEqual(a, b) }

func equalPointers[T any](a, b *T, equal func(a, b T) bool) bool {
	return a == b || a != nil && b != nil && equal(*a, *b)
}

func equalSlices[T any](a, b []T, equal func(a, b T) bool) bool {
	return (a == nil) == (b == nil) && slices.EqualFunc(a, b, equal)
}

func equalMaps[K, V comparable](a, b map[K]V) bool {
	return (a == nil) == (b == nil) && maps.Equal(a, b)
}

func equalUpgrades(a, b us.Upgrade) bool {
	return a.ID == b.ID && a.TargetVersion == b.TargetVersion && a.TransformHash == b.TransformHash &&
		a.State == b.State && a.Step == b.Step && a.Attempt == b.Attempt && a.AbortReason == b.AbortReason &&
		a.Again == b.Again && a.Failures == b.Failures && a.LastFailure == b.LastFailure && a.Policy == b.Policy &&
		a.SwitchAsked == b.SwitchAsked && a.TargetSince == b.TargetSince && a.Snapshot == b.Snapshot &&
		equalSlices(a.ReadyShards, b.ReadyShards, same)
}

func equalSwitches(a, b us.Switch) bool {
	return a.ID == b.ID && a.From == b.From && a.To == b.To && a.At == b.At && a.Back == b.Back &&
		a.Position == b.Position && a.TransformHash == b.TransformHash && a.Before == b.Before &&
		a.Generation == b.Generation && a.BeforeGeneration == b.BeforeGeneration && a.Epoch == b.Epoch &&
		a.BeforeEpoch == b.BeforeEpoch && a.Snapshot == b.Snapshot && a.Outdated == b.Outdated &&
		equalMaps(a.Millis, b.Millis)
}

func equalEntries(a, b us.Entry) bool {
	return a.At == b.At && a.By == b.By && a.Identity == b.Identity && a.Address == b.Address && a.What == b.What &&
		a.ID == b.ID && a.From == b.From && a.To == b.To && a.Detail == b.Detail && a.Outcome == b.Outcome &&
		a.Ended == b.Ended && equalSlices(a.Phases, b.Phases, same)
}

func equalNamespaces(a, b us.Namespace) bool {
	return a.Version == b.Version && a.Location == b.Location && a.Hosts == b.Hosts && a.Identity == b.Identity &&
		a.Images == b.Images && a.DeclinedKey == b.DeclinedKey && a.Answered == b.Answered && a.Served == b.Served &&
		equalSlices(a.Kinds, b.Kinds, equalKinds)
}

func equalKinds(a, b us.Kind) bool {
	return a.Kind == b.Kind && a.Fixed == b.Fixed && a.Physical == b.Physical && a.ID == b.ID &&
		a.NextSeq == b.NextSeq && a.Fence == b.Fence && a.Restore == b.Restore && a.Fenced == b.Fenced &&
		a.Hidden == b.Hidden && a.Replaced == b.Replaced && a.Sealed == b.Sealed && equalMaps(a.Expiry, b.Expiry) &&
		equalSlices(a.Carried, b.Carried, same) && equalPointers(a.Pending, b.Pending, same)
}
