package view

import (
	"bytes"
	"cmp"
	"fmt"
	"io"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

// RolloutLine returns the state of a rollout on one line.
func RolloutLine(r *dbv1.Rollout) string {
	line := fmt.Sprintf("%s to %s: %s, wave %d of %d", r.GetName(), r.GetTargetVersion(), r.GetState(), r.GetWave(), len(r.GetWaves()))
	if r.GetState() == dbv1.Rollout_RUNNING {
		line += ", " + r.GetStep()
	}
	if r.GetReason() != "" {
		line += " (" + r.GetReason() + ")"
	}
	return line
}

// Rollouts prints rollouts as a table.
func Rollouts(w io.Writer, rs []*dbv1.Rollout) error {
	var b bytes.Buffer
	t := terminal.Table(&b, "NAME\tTARGET\tSTATE\tWAVE\tSTEP\tUPGRADED")
	for _, r := range rs {
		done, all := 0, 0
		for _, wave := range r.GetWaves() {
			for _, d := range wave.GetDeployments() {
				all++
				if d.GetResult() == "upgraded" || d.GetResult() == "was there" {
					done++
				}
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d/%d\t%s\t%d/%d\n", r.GetName(), r.GetTargetVersion(), r.GetState(), r.GetWave(), len(r.GetWaves()), r.GetStep(), done, all)
	}
	terminal.Flush(t)
	return terminal.Write(w, b.Bytes())
}

// Rollout prints a rollout with its deployments and its history.
func Rollout(w io.Writer, r *dbv1.Rollout) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, RolloutLine(r))
	if r.GetWaitsFor() != "" {
		fmt.Fprintf(&b, "waits for: %s\n", r.GetWaitsFor())
	}
	t := terminal.Table(&b, "WAVE\tDEPLOYMENT\tORDER\tRESULT\tUPGRADE\tDETAIL")
	for i, wave := range r.GetWaves() {
		for _, d := range wave.GetDeployments() {
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", i+1, d.GetName(), cmp.Or(d.GetOrder(), "-"), cmp.Or(d.GetResult(), "-"), cmp.Or(d.GetUpgradeId(), "-"), cmp.Or(d.GetDetail(), "-"))
		}
	}
	terminal.Flush(t)
	for _, e := range r.GetHistory() {
		fmt.Fprintf(&b, "%s  %s  %s\n", e.GetAt(), cmp.Or(e.GetBy(), "controller"), e.GetWhat())
	}
	return terminal.Write(w, b.Bytes())
}
