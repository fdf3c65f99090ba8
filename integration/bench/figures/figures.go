// Package figures is what the benchmark has measured: a file of rows (docs/benchmarks.json, or
// docs/scale.json of copies that grow), and the page, the charts and the Go benchmark format that
// are made of it.
//
// A row is one figure, with the bar that it is held against, if there is one. Whether the bar is
// met is computed from the runs, here and nowhere else: a bar that is missed stays visible, and a
// figure that was not measured says why. What is made of a file depends on it alone, so that the
// page that is committed can be compared with the file next to it.
//
// It measures nothing and knows no command but those that it is told.
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

// Names of files, and of the pages that are made of them.
const (
	Benchmarks = "benchmarks"
	Scale      = "scale"
)

// File is one run of the benchmark.
type File struct {
	Name     string            `json:"name,omitempty"` // Scale; empty: Benchmarks
	Note     string            `json:"note,omitempty"` // what a reader must know before any figure
	Date     string            `json:"date"`           // of its beginning, UTC, RFC 3339
	Took     float64           `json:"took_minutes"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of programs, by name
	Commands []string          `json:"commands"`
	Rows     []Row             `json:"rows"`
	Peers    []Peer            `json:"peers,omitempty"`
}

// Machine is where it ran. Empty and 0 are not known.
type Machine struct {
	System    string  `json:"system"` // and architecture
	Processor string  `json:"processor,omitempty"`
	Cores     int     `json:"cores"`
	MemoryGB  float64 `json:"memory_gb,omitempty"`
	Load      float64 `json:"load_before,omitempty"` // average of a minute before the first run
}

// Peer is another tool that copies, and whether it ran.
type Peer struct {
	Name   string `json:"name"`
	Less   string `json:"does_less"` // than this project, for the same figure
	Absent string `json:"absent,omitempty"`
}

// Row is one figure. Value, RatioToLimit and Met are nil where nothing was measured.
type Row struct {
	Name  string   `json:"name"` // stable; rows of two files with one name are compared
	Title string   `json:"title"`
	Group string   `json:"group"`
	Unit  string   `json:"unit"`
	Value *float64 `json:"value"` // median of Runs
	// RatioToLimit is the median of each run's ratio to the limit of the same run.
	RatioToLimit *float64  `json:"ratio_to_limit"`
	Bar          *Bar      `json:"bar"`
	Met          *bool     `json:"met"`
	Runs         []float64 `json:"runs,omitempty"`
	Limits       []float64 `json:"limit_runs,omitempty"` // one for each of Runs, in the same unit
	Min          float64   `json:"min,omitempty"`
	Max          float64   `json:"max,omitempty"`
	Command      string    `json:"command"` // that measures this row alone
	Measured     string    `json:"measured"`
	Note         string    `json:"note,omitempty"`
	// Short is why the figure does not count for its bar, whatever its value: it was taken with
	// less than the bar asks for.
	Short string `json:"falls_short,omitempty"`
	// Missing is why there is no figure.
	Missing string `json:"not_measured,omitempty"`
}

// Bar is what a row is held against: the value, or the ratio to the limit.
type Bar struct {
	Least float64 `json:"at_least,omitempty"`
	Most  float64 `json:"at_most,omitempty"`
	Ratio bool    `json:"of_ratio,omitempty"`
}

// disturbed is what a row falls short of whose copy was faster than its limit, which cannot be.
const disturbed = "It does not count: the limit was slower than the copy, so something else used the machine meanwhile."

// Close computes what follows from the runs.
func (r *Row) Close() {
	r.Value, r.RatioToLimit, r.Met, r.Min, r.Max = nil, nil, nil, 0, 0
	if len(r.Runs) == 0 {
		if r.Missing == "" {
			r.Missing = "no run was made"
		}
		return
	}
	value := Median(r.Runs)
	r.Value, r.Min, r.Max = &value, slices.Min(r.Runs), slices.Max(r.Runs)
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
		met := r.Short == "" && (r.Bar.Least == 0 || got >= r.Bar.Least) && (r.Bar.Most == 0 || got <= r.Bar.Most)
		r.Met = &met
	}
}

// judged is the figure that the bar is about.
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

// Row returns the row of a name.
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

// JSON is the file as it is kept.
func (f *File) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode figures: %w", err)
	}
	return append(text, '\n'), nil
}

// Median of any number of values; of an even number the mean of the two in the middle. 0 of none.
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

// Write writes the file, the page and the charts into a folder.
func (f *File) Write(folder string) error {
	text, err := f.JSON()
	if err != nil {
		return err
	}
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

// String is the row on one line, for people.
func (r *Row) String() string {
	s := r.Name + ": "
	if r.Value == nil {
		return s + "not measured: " + r.Missing
	}
	s += number(*r.Value) + " " + r.Unit
	if r.RatioToLimit != nil {
		s += fmt.Sprintf(", %.2f of the limit", *r.RatioToLimit)
	}
	s += fmt.Sprintf(" (%d runs, %s to %s)", len(r.Runs), number(r.Min), number(r.Max))
	if r.Met != nil {
		s += fmt.Sprintf("; %s: %s", r.Bar, map[bool]string{true: "met", false: "missed"}[*r.Met])
	}
	return s
}
