package figures

import (
	"fmt"
	"strings"
	"time"
)

// growth is how a time grows with records, by what three copies took, each ten times as large as
// the one before: a beginning that every copy pays, and a cost of each further record, which the
// second step has in full and the first one had less of.
type growth struct {
	fixed   float64 // seconds
	records [Steps]float64
	took    [Steps]float64 // seconds
}

// first and further are the seconds of each record between the first and the second size, and
// between the second and the third.
func (g growth) first() float64   { return g.step(1) }
func (g growth) further() float64 { return g.step(2) }
func (g growth) step(i int) float64 {
	return (g.took[i] - g.took[i-1]) / (g.records[i] - g.records[i-1])
}

// dearer is by how much a record costs more when there are ten times as many, in seconds. It is
// never less than 0: that more records cost less each is what noise looks like.
func (g growth) dearer() float64 { return max(g.further()-g.first(), 0) }

// at is how long a copy takes that is so many times ten times as large as the largest one: at least
// if a record goes on to cost what it cost in the last step, at most if each further tenfold makes it
// dearer by as much again, as the depth of an index does.
func (g growth) at(tenfolds int) (least, most float64) {
	least, most = g.took[Steps-1], g.took[Steps-1]
	n, dear := g.records[Steps-1], g.further()
	for range tenfolds {
		dear += g.dearer()
		least += 9 * n * g.further()
		most += 9 * n * dear
		n *= 10
	}
	return least, most
}

// trend is the model: its constants, and what they make of sizes that nobody has measured.
func (f *File) trend(b *strings.Builder) {
	var largest int
	for _, r := range f.Rows { // the sizes are in the names alone
		var n float64
		if _, err := fmt.Sscanf(strings.ReplaceAll(r.Name, ".", " "), "cost %g", &n); err == nil {
			largest = max(largest, int(n))
		}
	}
	times := func(what string, seconds func(r Row, n float64) float64) (g growth, ok bool) {
		for i, size := range Sizes(largest) {
			r, _ := f.Row(Cost(size, what))
			if r.Value == nil {
				return g, false
			}
			g.records[i] = float64(size)
			g.took[i] = seconds(r, g.records[i])
		}
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

// span is a duration, or the two that it lies between.
func span(least, most float64) string {
	a, z := duration(least), duration(most)
	if a == z {
		return a
	}
	return a + " to " + z
}

// duration has the unit that people think in.
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
