package figures

import (
	"fmt"
	"strings"
	"time"
)

// growth models the time of a copy as a function of its records. It uses three copies, each ten
// times as large as the one before. A copy has a fixed cost and a cost per record. The second step
// shows the full cost of a further record; the first step may still be cheaper.
type growth struct {
	fixed   float64 // seconds
	records [Steps]float64
	took    [Steps]float64 // seconds
}

// first returns the seconds per record between the first and the second size, further those between
// the second and the third.
func (g growth) first() float64   { return g.step(1) }
func (g growth) further() float64 { return g.step(2) }
func (g growth) step(i int) float64 {
	return (g.took[i] - g.took[i-1]) / (g.records[i] - g.records[i-1])
}

// dearer returns the increase of the cost per record for ten times the records, in seconds. It is
// never negative: a decrease is noise.
func (g growth) dearer() float64 { return max(g.further()-g.first(), 0) }

// at predicts the seconds of a copy of 10^tenfolds times the largest size. least assumes that a
// record keeps the cost of the last step. most assumes that each tenfold adds the same increase
// again, as the depth of an index does.
func (g growth) at(tenfolds int) (least, most float64) {
	least, most = g.took[Steps-1], g.took[Steps-1]
	// Nine tenths of a copy ten times as large are new records.
	n, dear := g.records[Steps-1], g.further()
	for range tenfolds {
		dear += g.dearer()
		least += 9 * n * g.further()
		most += 9 * n * dear
		n *= 10
	}
	return least, most
}

// trend writes the model: its constants, and its predictions for sizes that were not measured.
func (f *File) trend(b *strings.Builder) {
	var largest int
	for _, r := range f.Rows { // only the names hold the sizes
		var n float64
		if _, err := fmt.Sscanf(strings.ReplaceAll(r.Name, ".", " "), "cost %g", &n); err == nil {
			largest = max(largest, int(n))
		}
	}
	times := func(what string, seconds func(r Row, n float64) float64) (g growth, ok bool) {
		for i, size := range Sizes(largest) {
			r, _ := f.Row(Cost(size, what))
			// The model needs all three sizes.
			if r.Value == nil {
				return g, false
			}
			g.records[i] = float64(size)
			g.took[i] = seconds(r, g.records[i])
		}
		// What the smallest copy takes beyond the cost of its records.
		g.fixed = max(g.took[0]-g.records[0]*g.first(), 0)
		return g, g.first() > 0
	}
	fmt.Fprintf(b, "\n## Model\n\n| seconds of | fixed | a record, up to %s | a record, up to %s | dearer per tenfold | %s | %s |\n| --- | --- | --- | --- | --- | --- | --- |\n",
		number(float64(largest/10)), number(float64(largest)), number(float64(largest)*10), number(float64(largest)*100))
	for _, l := range []struct {
		title, what string
		seconds     func(r Row, n float64) float64
	}{
		{"copy", "copy", func(r Row, n float64) float64 { return n / *r.Value }},
		{"ready", "ready", func(r Row, _ float64) float64 { return *r.Value }},
		{"processor time of the controller", "cpu", func(r Row, n float64) float64 { return *r.Value * n / 1e6 }},
		{"the limit", "copy", func(r Row, n float64) float64 { return n / Median(r.Limits) }},
	} {
		g, ok := times(l.what, l.seconds)
		if !ok {
			fmt.Fprintf(b, "| %s | not measured | | | | | |\n", l.title)
			continue
		}
		fmt.Fprintf(b, "| %s | %s s | %s µs | %s µs | %s µs | %s | %s |\n", l.title, number(g.fixed), number(g.first()*1e6), number(g.further()*1e6), number(g.dearer()*1e6), span(g.at(1)), span(g.at(2)))
	}
}

// span formats a range of durations, or one duration if both ends look equal.
func span(least, most float64) string {
	a, z := duration(least), duration(most)
	// Rounding can make both ends equal.
	if a == z {
		return a
	}
	return a + " to " + z
}

// duration formats seconds with a suitable unit.
func duration(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d >= 2*time.Hour:
		return number(d.Hours()) + " h"
	case d >= 2*time.Minute:
		return number(d.Minutes()) + " min"
	default:
		return number(seconds) + " s"
	}
}
