package view

import (
	"fmt"
	"io"
	"strings"
	"time"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

// Lines prints a line for each change, and skips updates that differ only in time.
type Lines struct {
	w    io.Writer
	now  func() time.Time
	last string
}

// NewLines returns a log of changes on w.
func NewLines(w io.Writer) *Lines { return &Lines{w: w, now: time.Now} }

// Draw prints the line of a change.
func (l *Lines) Draw(d *dbv1.Deployment) error {
	line := changeLine(d)
	if line == l.last {
		return nil
	}
	l.last = line
	return terminal.Write(l.w, []byte(l.now().Format("15:04:05 ")+line+"\n"))
}

func changeLine(d *dbv1.Deployment) string {
	parts := []string{d.GetCurrentVersion()}
	if u := d.GetUpgradeState(); u != nil {
		parts[0] += "->" + u.GetTargetVersion()
		parts = append(parts, phaseOf(u), fmt.Sprintf("ready %d/%d", len(u.GetReadyShards()), d.GetRingSize()))
	}
	if d.GetPace().GetPaused() {
		parts = append(parts, "paused")
	}
	if u := d.GetUpdate(); u != nil {
		parts = append(parts, fmt.Sprintf("data update %s %d/%d", u.GetName(), u.GetDoneShards(), d.GetRingSize()))
	}
	if d.GetRetiring() != "" {
		parts = append(parts, "retiring "+d.GetRetiring())
	}
	if r := d.GetRollbackSafe(); r.GetBlocking() > 0 {
		parts = append(parts, "rollback "+rollbackOf(r))
	}
	if p := d.GetProgress(); p != nil {
		if p.GetTotal() > 0 {
			parts = append(parts, "copied "+copiedOf(d))
		}
		parts = append(parts, "lag "+lagOf(p.MaxLagMillis))
		if p.GetParked() > 0 {
			parts = append(parts, "parked "+terminal.Count(p.GetParked()))
		}
		waits := blockersOf(d.GetReadiness())
		if len(p.GetWaitsFor()) > 0 && len(waits) == 0 { // the switch's reasons include the shards'
			parts = append(parts, "waits for "+strings.Join(p.GetWaitsFor(), "; "))
		}
		if len(waits) > 0 {
			parts = append(parts, "switch waits for "+strings.Join(waits, "; "))
		}
		if p.GetLastError() != "" {
			parts = append(parts, "last error: "+p.GetLastError())
		}
	}
	return strings.Join(parts, " | ")
}
