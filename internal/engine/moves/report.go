package moves

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Moves are the moves of records of one kind to or from one region that have not ended.
type Moves struct {
	Kind   string
	Region string // the other one
	In     bool   // from there to here
	Count  int
	Since  time.Time // begin of the oldest one
	Record string    // name of the oldest one
	Waits  string    // what that one waits for
}

// Report returns the moves that have not ended. A move that began less than a second ago may be missing.
func (m *Mover) Report() []Moves {
	type group struct {
		kind, region string
		in           bool
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[group]*Moves{}
	for d, p := range m.pending {
		g := group{d.Kind, p.region, p.in}
		one := all[g]
		if one == nil {
			one = &Moves{Kind: d.Kind, Region: p.region, In: p.in}
			all[g] = one
		}
		one.Count++
		if one.Count == 1 || p.since.Before(one.Since) || p.since.Equal(one.Since) && d.Name < one.Record {
			one.Since, one.Record, one.Waits = p.since, strings.ToValidUTF8(d.Name, "?"), strings.ToValidUTF8(p.waits, "?")
		}
	}
	out := make([]Moves, 0, len(all))
	for _, one := range all {
		out = append(out, *one)
	}
	slices.SortFunc(out, func(a, b Moves) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Record, b.Record))
	})
	return out
}
