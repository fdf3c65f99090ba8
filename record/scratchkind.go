package record

import (
	"slices"
	"strings"
)

// Prefixes for the names of temporary managed kinds. One process uses such a collection for a trial
// and then drops it.
const (
	TrialKinds = "dbc_indexes_" // trial of indexes that a kind will have
	ProofKinds = "dbc_proof_"   // rehearsal of a rollback
	PlanKinds  = "dbc_plan_"    // trial of an upgrade for its plan
)

// IsScratch reports whether a kind is temporary. No lasting data may refer to such a kind.
func IsScratch(kind string) bool {
	return slices.ContainsFunc([]string{TrialKinds, ProofKinds, PlanKinds}, func(prefix string) bool { return strings.HasPrefix(kind, prefix) })
}
