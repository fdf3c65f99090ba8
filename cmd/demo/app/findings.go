package app

import (
	"time"

	"dbcontroller.dev/integration/workload"
)

// state is what a key holds, as each version shows it: canonical prints of the content
// that can be compared. The zero state is absence.
type state struct{ v1, v2 string }

// ledger is what clients were told of the records of one service.
type ledger = workload.Ledger[state]

// form is how a place shows a state.
type form = func(state) string

// formOf is the form of an API, or of the documents, of a version.
func formOf(version string) form {
	return func(s state) string {
		if version == newVersion {
			return s.v2
		}
		return s.v1
	}
}

// findings are the records at which what is there is not what clients were told, each once
// in however many places it is found.
type findings struct {
	records map[workload.Kind]map[string]bool
	note    func(string)
	late    map[string]bool // records that the version that follows had a moment later
	lateFor time.Duration   // until the last of them was there
}

func newFindings(note func(string)) *findings {
	return &findings{records: map[workload.Kind]map[string]bool{}, late: map[string]bool{}, note: note}
}

// add counts what was found, and tells people of the first records of each kind.
func (f *findings) add(found workload.Findings) {
	for _, one := range found {
		known := f.records[one.Kind]
		if known == nil {
			known = map[string]bool{}
			f.records[one.Kind] = known
		}
		if !known[one.Record] && len(known) < mostProblems {
			f.note(one.Error())
		}
		known[one.Record] = true
	}
}

// noteLate counts what is not yet as it was acknowledged.
func (f *findings) noteLate(wrong workload.Findings) {
	for _, w := range wrong {
		f.late[w.Record] = true
	}
}

// lost, duplicated and resurrected are the numbers of the result, which has no others: what
// is there and never was counts as duplicated, and what is as a refused write left it as lost.
func (f *findings) lost() int {
	return len(f.records[workload.Lost]) + len(f.records[workload.Refused])
}

func (f *findings) duplicated() int {
	return len(f.records[workload.Duplicated]) + len(f.records[workload.Foreign])
}

func (f *findings) resurrected() int { return len(f.records[workload.Resurrected]) }
