package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
)

// pause is what clients felt at switches, each of a fresh demo, in milliseconds: the
// median, and the worst, of the switches' own figures.
type pause struct {
	Switches int     `json:"switches"`
	P50      float64 `json:"p50_ms"`        // median over the switches of their p50
	P99      float64 `json:"p99_ms"`        // median over the switches of their p99
	Worst    float64 `json:"max_ms"`        // of all writes of all switches
	Typical  float64 `json:"max_median_ms"` // median over the switches of their max
	Failed   int     `json:"failed"`        // reads and writes
	Lost     int     `json:"lost"`          // lost, duplicated and resurrected
}

func (p *pause) String() string {
	return fmt.Sprintf("write pause over %d switches: p50 %.0f ms, p99 %.0f ms, max %.0f ms (median of the maxima %.0f ms); failed %d, lost %d",
		p.Switches, p.P50, p.P99, p.Worst, p.Typical, p.Failed, p.Lost)
}

func measurePause(ctx context.Context, o settings) (*pause, error) {
	out := &pause{Switches: o.switches}
	var p50s, p99s, maxs []float64
	for i := range o.switches {
		cmd := exec.CommandContext(ctx, o.demo, "--json", "--records", "5000", "--seed", fmt.Sprint(i+1))
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("demo %d: %w", i+1, err)
		}
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		var d struct {
			Failed      int `json:"writes_failed"`
			ReadsFailed int `json:"reads_failed"`
			Lost        int `json:"lost"`
			Duplicated  int `json:"duplicated"`
			Resurrected int `json:"resurrected"`
			Pause       struct {
				P50 float64 `json:"p50"`
				P99 float64 `json:"p99"`
				Max float64 `json:"max"`
			} `json:"write_pause_ms"`
		}
		if err := json.Unmarshal(lines[len(lines)-1], &d); err != nil {
			return nil, fmt.Errorf("demo %d: %w", i+1, err)
		}
		p50s, p99s, maxs = append(p50s, d.Pause.P50), append(p99s, d.Pause.P99), append(maxs, d.Pause.Max)
		out.Failed += d.Failed + d.ReadsFailed
		out.Lost += d.Lost + d.Duplicated + d.Resurrected
	}
	out.P50, out.P99, out.Typical = median(p50s), median(p99s), median(maxs)
	if len(maxs) > 0 {
		out.Worst = slices.Max(maxs)
	}
	return out, nil
}
