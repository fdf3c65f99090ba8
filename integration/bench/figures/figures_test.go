package figures

import (
	"encoding/xml"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files, and the committed page, anew")

// sample has a row of each sort.
func sample() File {
	f := File{
		Note: "Made up, for a test.", Date: "2026-01-02T03:04:05Z", Took: 12.34,
		Machine:  Machine{System: "linux/amd64", Processor: "Some <processor>", Cores: 2, MemoryGB: 23, Load: 0.5},
		Versions: map[string]string{"mongodb": "8.2.0", "go": "go1.26.8"}, Commands: []string{"make bench"},
		Rows: []Row{
			{Name: "copy.fixed", Title: "copy", Group: Copy, Unit: "records/s", Bar: leastRatio(0.8), Runs: []float64{90_000, 80_000, 100_000}, Limits: []float64{100_000, 110_000, 120_000}, Command: "c", Measured: "Over there."},
			{Name: "cpu.record", Title: "CPU", Group: Copy, Unit: "µs/record", Bar: most(5), Runs: []float64{6.4, 5.5}, Command: "c"},
			{Name: "copy.fixed.peers", Title: "peers", Group: Copy, Unit: "x", Bar: least(1.2), Missing: "none is here.", Command: "c"},
			{Name: "backlog.single", Title: "lag", Group: Following, Unit: "ms", Bar: most(300), Runs: []float64{20}, Short: "The clients reached 1,000/s.", Command: "c"},
			{Name: "store.read.p99", Title: "p99", Group: Resources, Unit: "%", Runs: []float64{7}, Note: "Noisy.", Command: "c"},
			{Name: "peer.dsync", Title: "copy by dsync", Group: Peers, Unit: "records/s", Missing: "dsync is not here.", Command: "c"},
		},
		Peers: []Peer{{Name: "dsync", Less: "no lens", Absent: "not on the PATH"}, {Name: "other", Less: "nothing"}},
	}
	for i := range f.Rows {
		f.Rows[i].Close()
	}
	return f
}

func TestClose(t *testing.T) {
	t.Parallel()
	f := sample()
	verdict := func(name string) string {
		r, _ := f.Row(name)
		if r.Met == nil {
			return "open"
		}
		return map[bool]string{true: "met", false: "missed"}[*r.Met]
	}
	for name, want := range map[string]string{
		"copy.fixed":       "met",    // 0.9, 0.73 and 0.83 of their own limits
		"cpu.record":       "missed", // 5.95 is above
		"copy.fixed.peers": "open",
		"backlog.single":   "missed", // although the value is below: it falls short
		"store.read.p99":   "open",   // no bar
	} {
		if got := verdict(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	r, _ := f.Row("copy.fixed")
	if *r.Value != 90_000 || r.Min != 80_000 || r.Max != 100_000 || *r.RatioToLimit < 0.83 || *r.RatioToLimit > 0.84 {
		t.Errorf("value %v, %v to %v, ratio %v", *r.Value, r.Min, r.Max, *r.RatioToLimit)
	}
	// A copy cannot be faster than its limit.
	fast := Row{Bar: leastRatio(0.8), Runs: []float64{130}, Limits: []float64{100}}
	if fast.Close(); fast.Met == nil || *fast.Met || fast.Short == "" {
		t.Errorf("a limit that was disturbed counts: %+v", fast)
	}
	// A ratio is not judged by runs of another number, and a figure is gone with its runs.
	r.Limits = r.Limits[1:]
	r.Close()
	if r.Met != nil || r.RatioToLimit != nil {
		t.Error("judged with a limit that is missing")
	}
	r.Runs = nil
	r.Close()
	if r.Value != nil || r.Missing == "" {
		t.Error("a row without runs has a value, or does not say that it was not measured")
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	f := sample()
	text, err := f.JSON()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"sample.json": string(text), "sample.md": f.Page(), "sample.bench.txt": f.GoBench()}
	for name, chart := range f.Charts() {
		files[name] = chart
		for d := xml.NewDecoder(strings.NewReader(chart)); ; { // names have characters that XML reserves
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	for name, got := range files {
		golden(t, filepath.Join("testdata", name), got)
	}
}

// TestTrend: the constants of the model, and what it says of larger sizes.
func TestTrend(t *testing.T) {
	t.Parallel()
	const fixed, each = 2.0, 10e-6
	straight := growth{records: [Steps]float64{1e5, 1e6, 1e7}}
	for i, n := range straight.records {
		straight.took[i] = fixed + n*each
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6*math.Abs(b) }
	if least, most := straight.at(2); !near(straight.first(), each) || !near(least, fixed+1e9*each) || !near(most, least) {
		t.Errorf("first %v, 10^9 takes %v to %v", straight.first(), least, most)
	}
	dearer := straight
	dearer.took[2] = dearer.took[1] + 9e6*1.2*each
	// The next tenfolds cost 1.4 and 1.6 at most.
	if least, most := dearer.at(2); !near(least, dearer.took[2]+99e7*1.2*each) || !near(most, dearer.took[2]+9e7*1.4*each+9e8*1.6*each) {
		t.Errorf("10^9 takes %v to %v", least, most)
	}
	cheaper := straight
	cheaper.took[2] = cheaper.took[1] + 9e6*0.5*each
	if least, most := cheaper.at(1); !near(least, most) {
		t.Errorf("what became cheaper goes on to: %v, %v", least, most)
	}
}

// TestScalePage: a page of three sizes, of which one figure is missing.
func TestScalePage(t *testing.T) {
	t.Parallel()
	f := File{Name: Scale, Machine: sample().Machine, Date: sample().Date, Rows: ScaleRows(1000)}
	for i := range f.Rows {
		r := &f.Rows[i]
		r.Runs = []float64{float64(i + 1)}
		if strings.HasSuffix(r.Name, ".copy") {
			r.Runs, r.Limits = []float64{100}, []float64{150}
		}
		if r.Name == "cost.1e3.cpu" {
			r.Runs = nil
		}
		r.Close()
	}
	_, page, _ := strings.Cut(f.Page(), "\n## Model") // what comes before says what never changes
	golden(t, filepath.Join("testdata", "scale.md"), page)
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s; run go test -update here if that is meant (-want +got):\n%s", path, diff)
	}
}

const docs = "../../../docs"

// TestCommitted: the pages and the charts are what is made of the committed figures, so that
// nobody edits one without the other, and every row that there should be is there.
func TestCommitted(t *testing.T) {
	t.Parallel()
	for page, rows := range map[string][]Row{Benchmarks: Rows(), Scale: ScaleRows(10_000_000)} {
		committed(t, page, rows)
	}
}

func committed(t *testing.T, page string, rows []Row) {
	f, err := Read(filepath.Join(docs, page+".json"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join(docs, page+".md"), f.Page())
	for name, chart := range f.Charts() {
		golden(t, filepath.Join(docs, page, name), chart)
	}
	for _, want := range rows {
		got, ok := f.Row(want.Name)
		if !ok {
			t.Errorf("no row %s", want.Name)
			continue
		}
		if diff := cmp.Diff(want.Bar, got.Bar); diff != "" {
			t.Errorf("%s has another bar than rows.go (-want +got):\n%s", want.Name, diff)
		}
		if got.Command == "" || got.Value == nil && got.Missing == "" {
			t.Errorf("%s says neither a value nor why there is none, or not how: %+v", want.Name, got)
		}
		stored := got
		if got.Close(); cmp.Diff(stored, got) != "" {
			t.Errorf("%s is not what follows from its runs: %s", want.Name, cmp.Diff(stored, got))
		}
	}
}

// TestBars: the bars of the list that this project has set itself, in its own numbers, so that
// none is lowered where nobody looks.
func TestBars(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"copy.fixed": "at least 0.8 of the limit", "copy.fixed.peers": "at least 1.2", "copy.managed": "at least 0.8 of the limit",
		"copy.lens": "at least 0.6 of the limit", "cpu.record": "at most 5", "ready.multiple": "at most 1.7", "ready.peers": "at most 1.5",
		"controllers.two": "at least 1.7", "copy.updates": "at least 0.75", "application.peers": "at most 1",
		"adapt.list.first": "at most 1.5", "adapt.list.all": "at most 1.5",
		"adapt.list.several.first": "at most 1.5", "adapt.list.several.all": "at most 1.5",
		"adapt.list.otherwise.first": "at most 1.5", "adapt.list.otherwise.all": "at most 1.5",
		"lag.majority.p50": "at most 25", "lag.majority.p99": "at most 120", "lag.w1.p50": "at most 90", "lag.w1.p99": "at most 160",
		"backlog.single": "at most 300", "backlog.bulk": "at most 300", "catchup.distinct": "at least 6,000", "catchup.hot": "at least 15,000",
		"pause.p50": "at most 100", "pause.p99": "at most 250", "pause.data": "at most 1.2", "kinds.switch": "at most 5", "kinds.held": "at most 400",
		"far.lag.100": "at most 500", "far.lag.200": "at most 1,000", "far.split.100": "at most 500", "far.split.200": "at most 1,000",
		"far.ready": "at most 1.3", "far.pause.100": "at most 1.5", "far.pause.200": "at most 3",
		"proxy.read.p50": "at most 15", "proxy.write.p50": "at most 15", "proxy.clients.read": "at least 0.8", "proxy.clients.write": "at least 0.8",
		"proxy.clients.mongos": "at least 1", "proxy.scan": "at least 0.9", "proxy.idle": "at most 150", "proxy.pause.p50": "at most 120", "proxy.pause.p99": "at most 300",
		"memory.small": "at most 200", "memory.large": "at most 200", "store.read.p50": "at most 5", "store.write.p50": "at most 5",
		"etcd.rest": "at most 10", "etcd.copying": "at most 50", "update.rate": "at least 20,000",
	}
	got := map[string]string{}
	for _, r := range Rows() {
		if r.Bar != nil {
			got[r.Name] = r.Bar.String()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.414: "0.41", 5: "5", 9.5: "9.5", 12.34: "12.3", 999: "999", 1234.5: "1,234", 1234567: "1,234,567"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) is %s, want %s", v, got, want)
		}
	}
}

// TestGoBench: benchstat reads lines of a name that begins with Benchmark, a count, and pairs of
// a number and a unit without blanks.
func TestGoBench(t *testing.T) {
	t.Parallel()
	f := sample()
	runs := 0
	for line := range strings.Lines(f.GoBench()) {
		if !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		runs++
		if n := len(strings.Fields(line)); n != 4 && n != 6 {
			t.Errorf("%q has %d fields", line, n)
		}
	}
	if runs != 7 {
		t.Errorf("%d lines, want one for each run", runs)
	}
}
