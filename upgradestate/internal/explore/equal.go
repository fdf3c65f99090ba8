package explore

import (
	"maps"
	"reflect"
	"slices"

	us "dbcontroller.dev/upgradestate"
)

// equal compares records. Reflection over the namespaces, the bulk of a record, took most of the
// time of an exploration, so they are compared field by field.
func equal(a, b us.Deployment) bool {
	if (a.Namespaces == nil) != (b.Namespaces == nil) || !slices.EqualFunc(a.Namespaces, b.Namespaces, equalNamespaces) {
		return false
	}
	// The rest is small, and new fields of the record are compared without a change here.
	a.Namespaces, b.Namespaces = nil, nil
	return reflect.DeepEqual(a, b)
}

func equalNamespaces(a, b us.Namespace) bool {
	return a.Version == b.Version && a.Location == b.Location && a.Hosts == b.Hosts && a.Identity == b.Identity &&
		a.Images == b.Images && a.DeclinedKey == b.DeclinedKey && slices.EqualFunc(a.Kinds, b.Kinds, equalKinds)
}

func equalKinds(a, b us.Kind) bool {
	return a.Kind == b.Kind && a.Fixed == b.Fixed && a.Physical == b.Physical && a.ID == b.ID &&
		a.NextSeq == b.NextSeq && a.Fence == b.Fence && a.Restore == b.Restore && a.Fenced == b.Fenced &&
		a.Hidden == b.Hidden && a.Replaced == b.Replaced && a.Sealed == b.Sealed && maps.Equal(a.Expiry, b.Expiry) &&
		slices.Equal(a.Carried, b.Carried) &&
		(a.Pending == b.Pending || a.Pending != nil && b.Pending != nil && *a.Pending == *b.Pending)
}
