package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Result is the result of a demo. All figures are measured. The JSON names are stable.
type Result struct {
	Backend           string            `json:"backend"` // with its version
	Active            string            `json:"active"`  // version after the last switch
	Shards            int               `json:"shards"`
	Controllers       int               `json:"controllers"` // of each deployment
	Servers           int               `json:"servers"`
	Records           int               `json:"records"`              // moved, of all kinds
	CopyDocsPerSecond int               `json:"copy_docs_per_second"` // from the start of the copy until all shards were copied
	WritesAcked       int               `json:"writes_acked"`
	WritesFailed      int               `json:"writes_failed"`
	Reads             int               `json:"reads"`
	ReadsFailed       int               `json:"reads_failed"`
	Lost              int               `json:"lost"`           // keys without their last acknowledged state
	Duplicated        int               `json:"duplicated"`     // keys that exist twice, or that no client created
	Resurrected       int               `json:"resurrected"`    // keys that exist after an acknowledged delete
	WritePause        Pause             `json:"write_pause_ms"` // of the switch with the longest pause
	Fence             map[string]string `json:"fence"`
	Phases            Phases            `json:"phases_ms"` // of the same switch
	Verified          Verified          `json:"verified"`
	Switches          []Switch          `json:"switches"` // in order
	Late              int               `json:"late"`     // keys that the inactive version had a moment later, at the end
	LateMillis        int64             `json:"late_ms"`  // until the last of these was there
	// Engines are the backends of the old and the new version, by service or kind.
	Engines map[string][]string `json:"engines"`
	// CellCrashes is the number of switches during which a cell of the BBS crashed.
	CellCrashes int `json:"cell_crashes"`
	Proxies     int `json:"proxies"` // of the application
}

// Switch is one switch of a demo.
type Switch struct {
	From       string `json:"from"`
	To         string `json:"to"`
	WritePause Pause  `json:"write_pause_ms"`
	Phases     Phases `json:"phases_ms"`
}

// Pause is the latency, from their due time, of writes under way between the start of SWITCHING and
// the first write on the new version. All values but N are in milliseconds.
type Pause struct {
	N   int   `json:"n"`
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// Phases are the steps of a switch in milliseconds, as the driver and the servers measured them.
type Phases struct {
	Hold    int64 `json:"hold"`
	Fence   int64 `json:"fence"`
	Drain   int64 `json:"drain"`
	Flip    int64 `json:"flip"`
	Restart int64 `json:"restart"` // of the slowest server, from seeing the flip
}

// longer returns the longer duration of each phase.
func (p Phases) longer(o Phases) Phases {
	return Phases{
		Hold: max(p.Hold, o.Hold), Fence: max(p.Fence, o.Fence), Drain: max(p.Drain, o.Drain), Flip: max(p.Flip, o.Flip), Restart: max(p.Restart, o.Restart),
	}
}

func (p Phases) String() string {
	return fmt.Sprintf("hold %d ms, fence %d ms, drain %d ms, flip %d ms, restart %d ms", p.Hold, p.Fence, p.Drain, p.Flip, p.Restart)
}

// Verified is the comparison of the two namespaces in both directions, after clients have stopped.
type Verified struct {
	Compared   int `json:"compared"`
	Mismatched int `json:"mismatched"`
	Parked     int `json:"parked"`
}

// Err returns an error that names every count that should be 0 and is not.
func (r Result) Err() error {
	var bad []string
	for _, c := range []struct {
		name string
		n    int
	}{
		{"lost", r.Lost}, {"duplicated", r.Duplicated}, {"resurrected", r.Resurrected},
		{"writes_failed", r.WritesFailed}, {"reads_failed", r.ReadsFailed},
		{"mismatched", r.Verified.Mismatched}, {"parked", r.Verified.Parked},
	} {
		if c.n != 0 {
			bad = append(bad, fmt.Sprintf("%s %d", c.name, c.n))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("demo: what must be 0 is not: %s", strings.Join(bad, ", "))
	}
	return nil
}

// print writes the result for people, or as one JSON object on one line.
func (r Result) print(w io.Writer, asJSON bool) error {
	if !asJSON {
		return r.report(w)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

func (r Result) report(w io.Writer) error {
	var b bytes.Buffer
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "  %-14s%s\n", label, fmt.Sprintf(format, args...))
	}
	b.WriteString("\nResult\n")
	line("backend", "%s", r.Backend)
	line("active", "%s, %d shards, %d controllers, %d servers, %d proxies", r.Active, r.Shards, r.Controllers, r.Servers, r.Proxies)
	line("moved", "%d records, copied at %d a second", r.Records, r.CopyDocsPerSecond)
	line("writes", "%d acknowledged, %d failed", r.WritesAcked, r.WritesFailed)
	line("reads", "%d, %d failed", r.Reads, r.ReadsFailed)
	line("checked", "%d lost, %d duplicated, %d resurrected", r.Lost, r.Duplicated, r.Resurrected)
	if r.Late > 0 {
		line("late", "%d keys were there %d ms later in the version that follows", r.Late, r.LateMillis)
	}
	line("compared", "%d groups through the transform: %d different, %d parked", r.Verified.Compared, r.Verified.Mismatched, r.Verified.Parked)
	line("write pause", "p50 %d ms, p99 %d ms, max %d ms over the %d writes under way", r.WritePause.P50, r.WritePause.P99, r.WritePause.Max, r.WritePause.N)
	line("of which", "%s", r.Phases)
	// With one switch, the lines above describe it.
	if len(r.Switches) > 1 {
		for i, s := range r.Switches {
			line(fmt.Sprintf("switch %d", i+1), "%s -> %s: max %d ms over %d writes; %s", s.From, s.To, s.WritePause.Max, s.WritePause.N, s.Phases)
		}
	}
	line("fences", "bbs by %s, secrets by %s, packages by %s", r.Fence["bbs"], r.Fence["secrets"], r.Fence["packages"])
	for _, moved := range slices.Sorted(maps.Keys(r.Engines)) {
		line("engines", "%s from %s", moved, strings.Join(r.Engines[moved], " to "))
	}
	line("crashes", "of a cell in %d of %d switches", r.CellCrashes, len(r.Switches))
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}
