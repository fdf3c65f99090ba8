package lint

import (
	"strconv"
	"strings"
)

// Unified returns the difference of two texts line by line, like diff -u without its header. It
// returns "" for equal texts.
func Unified(was, is string) string {
	a, b := strings.Split(strings.TrimSuffix(was, "\n"), "\n"), strings.Split(strings.TrimSuffix(is, "\n"), "\n")
	// Strip equal lines at both ends first; the table of middle is quadratic.
	begin := 0
	for begin < len(a) && begin < len(b) && a[begin] == b[begin] {
		begin++
	}
	end := 0
	for end < len(a)-begin && end < len(b)-begin && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	if begin == len(a) && begin == len(b) {
		return ""
	}
	var lines []string
	for _, l := range a[:begin] {
		lines = append(lines, " "+l)
	}
	lines = append(lines, middle(a[begin:len(a)-end], b[begin:len(b)-end])...)
	for _, l := range a[len(a)-end:] {
		lines = append(lines, " "+l)
	}
	return hunks(lines)
}

// mostCells limits the table of middle. Larger texts are replaced as a whole.
const mostCells = 4 << 20

// middle compares lines that differ at both ends, by their longest common subsequence.
func middle(a, b []string) []string {
	var out []string
	if len(a)*len(b) > mostCells {
		for _, l := range a {
			out = append(out, "-"+l)
		}
		for _, l := range b {
			out = append(out, "+"+l)
		}
		return out
	}
	width := len(b) + 1
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([]int32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, " "+a[i])
			i, j = i+1, j+1
		// Prefer removals, so that they come before additions, like in diff.
		case i < len(a) && (j == len(b) || common[(i+1)*width+j] >= common[i*width+j+1]):
			out = append(out, "-"+a[i])
			i++
		default:
			out = append(out, "+"+b[j])
			j++
		}
	}
	return out
}

// around is the number of equal lines before and after a change.
const around = 3

// hunks drops equal lines far from any change, and numbers the others.
func hunks(lines []string) string {
	near := make([]bool, len(lines))
	for i, l := range lines {
		if l[0] != ' ' {
			// Changes close to each other share one hunk.
			for k := max(0, i-around); k <= min(len(lines)-1, i+around); k++ {
				near[k] = true
			}
		}
	}
	var b strings.Builder
	old, now := 1, 1
	for i := 0; i < len(lines); {
		if !near[i] {
			i, old, now = i+1, old+1, now+1
			continue
		}
		end, oldN, newN := i, 0, 0
		for ; end < len(lines) && near[end]; end++ {
			if lines[end][0] != '+' {
				oldN++
			}
			if lines[end][0] != '-' {
				newN++
			}
		}
		b.WriteString("@@ -" + span(old, oldN) + " +" + span(now, newN) + " @@\n")
		b.WriteString(strings.Join(lines[i:end], "\n") + "\n")
		i, old, now = end, old+oldN, now+newN
	}
	return b.String()
}

func span(at, n int) string {
	if n == 0 {
		at-- // like diff
	}
	return strconv.Itoa(at) + "," + strconv.Itoa(n)
}
