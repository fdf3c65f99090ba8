// Package figures holds the results of the benchmark. A file of rows (docs/benchmarks.json, or
// docs/scale.json for copies of growing size) is the source of the page, the charts and the output
// in Go's benchmark format.
//
// A row is one figure, possibly with a bar, the target that it must meet. Only this package decides
// whether a bar is met, from the runs. A missed bar stays visible, and a missing figure states its
// reason. The page depends on the file alone, so a test can compare the committed page with the
// file next to it.
//
// The package measures nothing. Begin to read at File.
//
// It is not for users and may change with any version.
package figures

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Names of files, and of the pages made from them.
const (
	Benchmarks = "benchmarks"
	Scale      = "scale"
)

// File is one run of the benchmark.
type File struct {
	Name     string            `json:"name,omitempty"` // Scale, or empty for Benchmarks
	Note     string            `json:"note,omitempty"` // shown before any figure
	Date     string            `json:"date"`           // of the start, in UTC, RFC 3339
	Took     float64           `json:"took_minutes"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of programs, by name
	Commands []string          `json:"commands"`
	Rows     []Row             `json:"rows"`
	Peers    []Peer            `json:"peers,omitempty"`
}

// Machine describes the machine of the run. Empty and 0 mean unknown.
type Machine struct {
	System    string  `json:"system"` // operating system and architecture
	Processor string  `json:"processor,omitempty"`
	Cores     int     `json:"cores"`
	MemoryGB  float64 `json:"memory_gb,omitempty"`
	Load      float64 `json:"load_before,omitempty"` // load average of one minute, before the first run
}

// Peer is another copy tool. Absent gives the reason why it did not run; empty if it ran.
type Peer struct {
	Name   string `json:"name"`
	Less   string `json:"does_less"` // features of this project that it lacks
	Absent string `json:"absent,omitempty"`
}

// Row is one figure. Value, RatioToLimit and Met are nil if there is no measurement.
type Row struct {
	Name  string   `json:"name"` // stable: a comparison of two files matches rows by it
	Title string   `json:"title"`
	Group string   `json:"group"`
	Unit  string   `json:"unit"`
	Value *float64 `json:"value"` // median of Runs
	// RatioToLimit is the median over runs of the figure divided by the limit of the same run.
	RatioToLimit *float64  `json:"ratio_to_limit"`
	Bar          *Bar      `json:"bar"`
	Met          *bool     `json:"met"`
	Runs         []float64 `json:"runs,omitempty"`
	Limits       []float64 `json:"limit_runs,omitempty"` // one for each of Runs, in the same unit
	Min          float64   `json:"min,omitempty"`
	Max          float64   `json:"max,omitempty"`
	Command      string    `json:"command"` // measures this row alone
	Measured     string    `json:"measured"`
	Note         string    `json:"note,omitempty"`
	// Short is the reason why the figure does not count for its bar, whatever its value. The
	// conditions of the run were weaker than the bar demands.
	Short string `json:"falls_short,omitempty"`
	// Missing is the reason why there is no figure.
	Missing string `json:"not_measured,omitempty"`
}

// Bar is the target of a row: for its value, or with Ratio for its ratio to the limit.
type Bar struct {
	Least float64 `json:"at_least,omitempty"`
	Most  float64 `json:"at_most,omitempty"`
	Ratio bool    `json:"of_ratio,omitempty"`
}

// disturbed is the reason for a copy faster than its limit, which is impossible on a quiet machine.
const disturbed = "It does not count: the limit was slower than the copy, so something else used the machine meanwhile."

// Close computes all derived fields from the runs.
func (r *Row) Close() {
	// Close runs after each round, so nothing of an earlier call may stay.
	r.Value, r.RatioToLimit, r.Met, r.Min, r.Max = nil, nil, nil, 0, 0
	if len(r.Runs) == 0 {
		// A scenario may have given a better reason.
		if r.Missing == "" {
			r.Missing = "no run was made"
		}
		return
	}
	value := Median(r.Runs)
	r.Value, r.Min, r.Max = &value, slices.Min(r.Runs), slices.Max(r.Runs)
	// A ratio of medians would mix runs; each run has its own limit.
	if len(r.Limits) == len(r.Runs) {
		ratios := make([]float64, len(r.Runs))
		for i, l := range r.Limits {
			if l > 0 {
				ratios[i] = r.Runs[i] / l
			}
		}
		ratio := Median(ratios)
		r.RatioToLimit = &ratio
		if ratio > 1 && r.Short == "" {
			r.Short = disturbed
		}
	}
	if got, ok := r.judged(); ok {
		// A figure taken under weaker conditions never meets its bar.
		met := r.Short == "" && (r.Bar.Least == 0 || got >= r.Bar.Least) && (r.Bar.Most == 0 || got <= r.Bar.Most)
		r.Met = &met
	}
}

// judged returns the figure that the bar applies to, if there is one.
func (r *Row) judged() (got float64, ok bool) {
	switch {
	case r.Bar == nil || r.Value == nil || r.Bar.Ratio && r.RatioToLimit == nil:
		return 0, false
	case r.Bar.Ratio:
		return *r.RatioToLimit, true
	default:
		return *r.Value, true
	}
}

// Row returns the row with a name. ok is false if there is none.
func (f *File) Row(name string) (Row, bool) {
	i := slices.IndexFunc(f.Rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return Row{}, false
	}
	return f.Rows[i], true
}

// Read reads a file.
func Read(path string) (File, error) {
	var f File
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return f, fmt.Errorf("read figures %s: %w", path, err)
	}
	return f, nil
}

// JSON returns the stored form of the file.
func (f *File) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode figures: %w", err)
	}
	return append(text, '\n'), nil
}

// Median returns the median; for an even number of values, the mean of the middle two. It returns 0
// without values.
func Median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	switch n := len(xs); {
	case n == 0:
		return 0
	case n%2 == 0:
		return (xs[n/2-1] + xs[n/2]) / 2
	default:
		return xs[n/2]
	}
}

// Write writes the file, the page and the charts to a folder.
func (f *File) Write(folder string) error {
	text, err := f.JSON()
	if err != nil {
		return err
	}
	// The empty name means Benchmarks.
	name := cmp.Or(f.Name, Benchmarks)
	files := map[string]string{name + ".json": string(text), name + ".md": f.Page()}
	for chart, svg := range f.Charts() {
		files[filepath.Join(name, chart)] = svg
	}
	if err := os.MkdirAll(filepath.Join(folder, name), 0o755); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write figures: %w", err)
		}
	}
	return nil
}

// String formats the row on one line.
func (r *Row) String() string {
	s := r.Name + ": "
	if r.Value == nil {
		return s + "not measured: " + r.Missing
	}
	s += number(*r.Value) + " " + r.Unit
	if r.RatioToLimit != nil {
		s += fmt.Sprintf(", %.2f of the limit", *r.RatioToLimit)
	}
	// The range shows how far the median can be trusted.
	s += fmt.Sprintf(" (%d runs, %s to %s)", len(r.Runs), number(r.Min), number(r.Max))
	if r.Met != nil {
		s += fmt.Sprintf("; %s: %s", r.Bar, map[bool]string{true: "met", false: "missed"}[*r.Met])
	}
	return s
}
