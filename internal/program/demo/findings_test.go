package app

import (
	"strings"
	"testing"

	"dbcontroller.dev/integration/workload"
)

func TestFindingsCountEachRecordOnce(t *testing.T) {
	t.Parallel()
	var notes []string
	f := newFindings(func(s string) { notes = append(notes, s) })
	for _, place := range []string{"one place", "another"} {
		for _, kind := range []workload.Kind{workload.Lost, workload.Duplicated, workload.Resurrected} {
			f.add(workload.Findings{{Kind: kind, Record: "thing a", Detail: place}})
		}
	}
	if f.lost() != 1 || f.duplicated() != 1 || f.resurrected() != 1 {
		t.Errorf("%d lost, %d duplicated, %d resurrected, want 1 each", f.lost(), f.duplicated(), f.resurrected())
	}
	if got := strings.Join(notes, "|"); got != "lost: thing a: one place|duplicated: thing a: one place|resurrected: thing a: one place" {
		t.Errorf("told: %s", got)
	}
}

// Whatever the oracle can find in a place is one of the numbers that must be 0.
func TestEveryFindingCounts(t *testing.T) {
	t.Parallel()
	for _, kind := range []workload.Kind{workload.Lost, workload.Refused, workload.Duplicated, workload.Foreign, workload.Resurrected} {
		f := newFindings(func(string) {})
		f.add(workload.Findings{{Kind: kind, Record: "thing a"}})
		if n := f.lost() + f.duplicated() + f.resurrected(); n != 1 {
			t.Errorf("%s: %d are counted", kind, n)
		}
	}
}
