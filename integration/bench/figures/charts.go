package figures

import (
	"fmt"
	"html"
	"strings"
)

// Charts returns the charts of the page by file name. They belong in a folder with the page's name.
func (f *File) Charts() map[string]string {
	if f.Name == Scale {
		return map[string]string{"copy.svg": f.copies()}
	}
	return map[string]string{"bars.svg": f.bars(), "copy.svg": f.copies(), "latency.svg": f.latencies()}
}

// Colours that differ on light and dark pages, and in lightness if printed without colour.
const (
	good  = "#1a7f37"
	bad   = "#cf222e"
	plain = "#0969da"
	faint = "#8c959f"
)

// line is one bar of a chart.
type line struct {
	label, text, colour string
	length              float64 // in the chart's unit
}

// bars shows each figure relative to its bar. 1 is the bar and longer is better, for both kinds of
// bars.
func (f *File) bars() string {
	const longest = 2
	var lines []line
	for _, r := range f.Rows {
		got, ok := r.judged()
		if !ok || r.Met == nil {
			continue
		}
		l := line{label: r.Name, length: longest, colour: bad}
		switch {
		// A bar of at least: the more, the longer.
		case r.Bar.Most == 0:
			l.length = got / r.Bar.Least
		// A bar of at most: the less, the longer. A figure of 0 gets the full length.
		case got > 0:
			l.length = r.Bar.Most / got
		}
		l.text = fmt.Sprintf("%.2f", l.length)
		// One very good figure would otherwise squeeze all others.
		if l.length > longest {
			l.length, l.text = longest, l.text+" (the bar is cut)"
		}
		if *r.Met {
			l.colour = good
		}
		if r.Short != "" {
			l.text += ", falls short"
		}
		lines = append(lines, l)
	}
	return chart("Figures against their bars: 1 is the bar, longer is better", lines, longest, 1)
}

// copies shows copies with the limits of the same runs.
func (f *File) copies() string {
	var lines []line
	longest := 0.0
	for _, r := range f.Rows {
		// Only copies have a limit.
		if r.Value == nil || r.RatioToLimit == nil {
			continue
		}
		limit := Median(r.Limits)
		lines = append(lines, line{r.Name, number(*r.Value) + " " + r.Unit, plain, *r.Value},
			line{"", number(limit) + " is the limit", faint, limit})
		longest = max(longest, *r.Value, limit)
	}
	return chart("Copies, and the limit of the same runs", lines, longest, 0)
}

// latencies shows the figures in milliseconds.
func (f *File) latencies() string {
	var lines []line
	longest := 0.0
	for _, r := range f.Rows {
		if r.Value == nil || r.Unit != "ms" {
			continue
		}
		colour := plain
		// Rows without a bar are neither good nor bad.
		if r.Met != nil && !*r.Met {
			colour = bad
		}
		lines = append(lines, line{r.Name, number(*r.Value) + " ms", colour, *r.Value})
		longest = max(longest, *r.Value)
	}
	return chart("Latencies; red ones miss their bar", lines, longest, 0)
}

// chart draws horizontal bars. longest is the value of the full width. mark is the position of a
// vertical line; 0 means none. All numbers are rounded, so that the same figures give the same
// bytes on any machine.
func chart(title string, lines []line, longest, mark float64) string {
	const width, left, right, row, top = 960, 190, 220, 22, 44
	// Room for one line, even without any figure.
	height := top + row*max(len(lines), 1) + 16
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img" aria-label="%s">`+"\n",
		width, height, html.EscapeString(title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="12" y="24" font-size="15" fill="#1f2328">%s</text>`+"\n", html.EscapeString(title))
	if len(lines) == 0 {
		fmt.Fprintf(&b, `<text x="12" y="%d" fill="#1f2328">nothing was measured</text>`+"\n", top+14)
	}
	// Without figures longest is 0, and a division would give NaN in the file.
	scale := 0.0
	if longest > 0 {
		scale = (width - left - right) / longest
	}
	for i, l := range lines {
		y := top + row*i
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="#1f2328">%s</text>`+"\n", left-8, y+14, html.EscapeString(l.label))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", left, y+3, max(l.length*scale, 1), row-7, l.colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#1f2328">%s</text>`+"\n", left+max(l.length*scale, 1)+6, y+14, html.EscapeString(l.text))
	}
	if mark > 0 {
		x := left + mark*scale
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#1f2328" stroke-dasharray="4 3"/>`+"\n", x, top-6, x, height-8)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
