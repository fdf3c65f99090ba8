package app

import (
	"time"

	"dbcontroller.dev/integration/workload"
)

// state is the value of a key, in the canonical form of each version. The zero state means absent.
type state struct{ v1, v2 string }

// ledger records the acknowledged writes of one service.
type ledger = workload.Ledger[state]

// form selects the form in which a place shows a state.
type form = func(state) string

// formOf returns the form of a version's API and documents.
func formOf(version string) form {
	return func(s state) string {
		if version == newVersion {
			return s.v2
		}
		return s.v1
	}
}

// findings are the records that differ from the acknowledged state. A record counts once, even if
// several places show it wrong.
type findings struct {
	records map[workload.Kind]map[string]bool
	note    func(string)
	late    map[string]bool // records that the following version had later
	lateFor time.Duration   // time until the last of them was there
}

func newFindings(note func(string)) *findings {
	return &findings{records: map[workload.Kind]map[string]bool{}, late: map[string]bool{}, note: note}
}

// add counts findings and prints the first few of each kind.
func (f *findings) add(found workload.Findings) {
	for _, one := range found {
		known := f.records[one.Kind]
		if known == nil {
			known = map[string]bool{}
			f.records[one.Kind] = known
		}
		// Print the first few of a kind only: one cause often breaks many records.
		if !known[one.Record] && len(known) < mostProblems {
			f.note(one.Error())
		}
		known[one.Record] = true
	}
}

// noteLate counts records that do not have their acknowledged state yet.
func (f *findings) noteLate(wrong workload.Findings) {
	for _, w := range wrong {
		f.late[w.Record] = true
	}
}

// lost, duplicated and resurrected are the only counts in a result. A record that no client
// created counts as duplicated. A record changed by a refused write counts as lost.
func (f *findings) lost() int {
	return len(f.records[workload.Lost]) + len(f.records[workload.Refused])
}

func (f *findings) duplicated() int {
	return len(f.records[workload.Duplicated]) + len(f.records[workload.Foreign])
}

func (f *findings) resurrected() int { return len(f.records[workload.Resurrected]) }
