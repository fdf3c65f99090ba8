package view

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

// Screen redraws a view in place. No frame is higher or wider than the terminal, so that moving up
// by the frame's lines reaches its first line.
type Screen struct {
	w             io.Writer
	size          func() (width, height int)
	last          *dbv1.Deployment
	drawn         int // lines of the present frame
	width, height int // of the terminal at that time
}

// NewScreen returns a view on the terminal w.
func NewScreen(w io.Writer) *Screen {
	return &Screen{w: terminal.Bare(w), size: func() (int, int) { return terminal.Size(w) }}
}

// Draw shows a change.
func (s *Screen) Draw(d *dbv1.Deployment) error { return s.show(d, "") }

// Note shows a text below the view until the next change.
func (s *Screen) Note(text string) { _ = s.show(s.last, text) }

func (s *Screen) show(d *dbv1.Deployment, note string) error {
	s.last = d
	width, height := s.size()
	var b bytes.Buffer
	switch {
	case s.drawn > 0 && (width != s.width || height != s.height):
		b.WriteString("\x1b[H\x1b[2J") // the terminal reflowed the frame in an unknown way
	case s.drawn > 0:
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", s.drawn)
	}
	if note != "" {
		height--
	}
	text := frame(d, width, height)
	if note != "" && height > 0 {
		text += terminal.Shorten(note, width) + "\n"
	}
	// Without automatic wrapping, a line that is too wide stays one line.
	b.WriteString("\x1b[?7l")
	// Return to column 1 explicitly: not every terminal setting does so on a newline.
	b.WriteString(strings.ReplaceAll(text, "\n", "\r\n"))
	b.WriteString("\x1b[?7h")
	s.drawn, s.width = strings.Count(text, "\n"), width
	_, s.height = s.size()
	return terminal.Write(s.w, b.Bytes())
}

// mostShards is the maximum number of shards shown, whatever the height of the terminal.
const mostShards = 16

// leastShards is the number of shards kept before less urgent parts are left out.
const leastShards = 4

// urgent orders the parts of the summary, least urgent first. A low terminal leaves out the least
// urgent ones.
var urgent = []string{"kept", "encryption", "retired", "controllers", "reverse sync", "last switch", "former names", "STILL USED", "views", "late deletes", "policy", "compared", "pace",
	"retiring", "data update", "rollback", "lag", "given up", "parked", "version", "INSECURE", "shards", "replaced", "copied", "last error", "UNREADABLE", "BREACH", "DIFFERENT", "RESTORED", "aborting", "waits for", "readiness", "upgrade"}

// frame renders the view for a terminal size: the summary and the busiest shards.
func frame(d *dbv1.Deployment, width, height int) string {
	rows := height - 1 // the cursor stands below the frame
	if rows < 1 {
		return ""
	}
	out := []string{d.GetName()}
	parts, shards := summary(d), d.GetProgress().GetShards()
	keep := 0
	if len(shards) > 0 {
		keep = min(leastShards, len(shards)) + 2
	}
	if rows < 2*keep {
		keep = min(1, keep) // one line for all shards
	}
	for len(parts) > max(1, rows-1-keep) {
		parts = slices.Delete(parts, leastUrgent(parts), leastUrgent(parts)+1)
	}
	out = append(out, layout(parts, width, rows-1-keep)...)
	if left := rows - len(out); len(shards) > 0 && left > 0 {
		out = append(out, shardRows(shards, left)...)
	}
	for i := range out {
		out[i] = terminal.Shorten(out[i], width)
	}
	return strings.Join(out[:min(rows, len(out))], "\n") + "\n"
}

func leastUrgent(parts []labelled) int {
	least := 0
	for i, p := range parts {
		if slices.Index(urgent, p.label) < slices.Index(urgent, parts[least].label) {
			least = i
		}
	}
	return least
}

// layout writes the parts of a summary, one a row. Long texts continue on spare rows, the most
// urgent part first.
func layout(parts []labelled, width, rows int) []string {
	indent := 0
	for _, p := range parts {
		indent = max(indent, utf8.RuneCountInString(p.label))
	}
	indent += 4
	// Give the spare rows to the most urgent texts first, and keep the parts in their order.
	texts, spare := make([][]string, len(parts)), rows-len(parts)
	order := make([]int, len(parts))
	for i := range parts {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return -cmp.Compare(slices.Index(urgent, parts[a].label), slices.Index(urgent, parts[b].label))
	})
	for _, i := range order {
		texts[i] = wrap(parts[i].text, width-indent, 1+max(0, spare))
		spare -= len(texts[i]) - 1
	}
	var out []string
	for i, p := range parts {
		for j, text := range texts[i] {
			label := p.label
			if j > 0 {
				label = ""
			}
			out = append(out, fmt.Sprintf("  %-*s%s", indent-2, label, text))
		}
	}
	return out
}

// wrap breaks a text at blanks into at most most rows. The last row may be too long.
func wrap(text string, width, most int) []string {
	var rows []string
	if width > 10 {
		for len(rows) < most-1 && utf8.RuneCountInString(text) > width {
			head := string([]rune(text)[:width+1])
			at := strings.LastIndexByte(head, ' ')
			if at <= 0 {
				break
			}
			rows, text = append(rows, text[:at]), text[at+1:]
		}
	}
	return append(rows, text)
}

// shardRows shows shards in the given number of rows: all of them, or the waiting ones and a
// summary of the others.
func shardRows(shards []*dbv1.ShardProgress, rows int) []string {
	most := min(mostShards, rows-2) // less a blank row and the head
	if len(shards) > most {
		most = min(mostShards, rows-3) // less the row for the others
	}
	if most < 1 {
		return []string{"  shards: " + states(shards)}
	}
	shown, others := shards, []*dbv1.ShardProgress(nil)
	if len(shards) > most {
		shown, others = busiest(shards, most)
	}
	var b bytes.Buffer
	t := terminal.Table(&b, "  SHARD\tDONE\tSTATE\tCOPIED\tTOTAL\tRATE\tLAG\tAPPLIED\tWAITS FOR")
	for _, s := range shown {
		fmt.Fprintf(t, "  %d\t%s\t%s\t%s\t%s\t%s/s\t%s\t%s\t%s\n", s.GetShard(), bar(s), s.GetState(), terminal.Count(s.GetCopied()), terminal.Count(s.GetTotal()),
			terminal.Count(int64(s.GetRate())), lagOf(s.LagMillis), terminal.Count(s.GetApplied()), cmp.Or(s.GetWaitsFor(), "-"))
	}
	terminal.Flush(t)
	out := append([]string{""}, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")...)
	if len(others) > 0 {
		out = append(out, fmt.Sprintf("  and %s more shards: %s", terminal.Count(int64(len(others))), states(others)))
	}
	return out
}

// states counts shards by state, the most frequent state first.
func states(shards []*dbv1.ShardProgress) string {
	by := map[string]int{}
	for _, s := range shards {
		by[s.GetState()]++
	}
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(-cmp.Compare(by[a], by[b]), strings.Compare(a, b)) })
	for i, name := range names {
		names[i] = terminal.Count(int64(by[name])) + " " + cmp.Or(name, "unknown")
	}
	return strings.Join(names, ", ")
}

// busiest selects shards, waiting ones first, and returns the others separately.
func busiest(shards []*dbv1.ShardProgress, most int) (shown, others []*dbv1.ShardProgress) {
	var rest []*dbv1.ShardProgress
	for _, s := range shards {
		if s.GetWaitsFor() != "" {
			shown = append(shown, s)
		} else {
			rest = append(rest, s)
		}
	}
	// Both lists keep their order, so that rows do not jump between frames.
	all := append(shown, rest...)
	return all[:most], all[most:]
}

func bar(s *dbv1.ShardProgress) string {
	const width = 10
	if s.GetOwner() == "" {
		return strings.Repeat("?", width)
	}
	full := width
	if s.GetTotal() > 0 {
		full = int(min(s.GetCopied(), s.GetTotal()) * width / s.GetTotal())
	}
	return strings.Repeat("#", full) + strings.Repeat(".", width-full)
}
