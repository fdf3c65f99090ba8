package record

import (
	"slices"
	"strings"
)

// Beginnings of the names of managed kinds in whose collections something is tried, by one process,
// and which go again.
const (
	TrialKinds = "dbc_indexes_" // indexes that a kind will have
	ProofKinds = "dbc_proof_"   // a rollback
	PlanKinds  = "dbc_plan_"    // what an upgrade will find
)

// IsScratch reports whether a kind is one of those. Nothing that outlasts it is to be noted of it.
func IsScratch(kind string) bool {
	return slices.ContainsFunc([]string{TrialKinds, ProofKinds, PlanKinds}, func(prefix string) bool { return strings.HasPrefix(kind, prefix) })
}
