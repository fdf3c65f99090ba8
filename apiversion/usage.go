package apiversion

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/upgradestate"
)

// other stands for callers and methods beyond what Usage counts one by one.
const other = "other"

// maxCaller bounds the name of a caller, which a client chooses.
const maxCaller = 64

// ProductOf names the caller of a request by the product token of its User-Agent:
// "curl" of "curl/8.5.0". Versions would make a caller of every release.
func ProductOf(req *http.Request) string {
	product, _, _ := strings.Cut(req.UserAgent(), " ")
	product, _, _ = strings.Cut(product, "/")
	if product == "" {
		return "unknown"
	}
	return product
}

// UsageConfig is that of a Usage.
type UsageConfig struct {
	// Services are those whose methods are counted. The version of a service is the last
	// part of its package: v1 of bbs.v1.
	Services []protoreflect.ServiceDescriptor
	// Caller names who makes a request. Nil: ProductOf.
	Caller func(*http.Request) string
	// MaxCallers bounds the callers that are counted by name; those that come later are
	// "other". 0: 1000.
	MaxCallers int
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// Usage counts calls by version, method and caller, to know when a version is no longer
// used. It counts what arrives, whether it succeeds or not. It starts empty with the
// process: what must be known for longer is collected as metrics.
type Usage struct {
	cfg     UsageConfig
	methods map[string]method // by procedure
	began   time.Time

	mu      sync.Mutex
	callers map[string]bool
	counts  map[usageKey]*Count
}

type method struct{ version, name string }

type usageKey struct {
	method
	caller string
}

// Count is how often one caller called one method.
type Count struct {
	Version  string    `json:"version"`
	Method   string    `json:"method"` // package.Service/Method
	Caller   string    `json:"caller"`
	Calls    uint64    `json:"calls"`
	LastUsed time.Time `json:"lastUsed"`
}

// NewUsage returns an empty count.
func NewUsage(cfg UsageConfig) *Usage {
	if cfg.Caller == nil {
		cfg.Caller = ProductOf
	}
	if cfg.MaxCallers == 0 {
		cfg.MaxCallers = 1000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	u := &Usage{cfg: cfg, methods: map[string]method{}, callers: map[string]bool{}, counts: map[usageKey]*Count{}, began: cfg.Now()}
	for _, s := range cfg.Services {
		pkg := string(s.ParentFile().Package())
		for i := range s.Methods().Len() {
			p := Procedure(s.Methods().Get(i))
			u.methods[p] = method{pkg[strings.LastIndexByte(pkg, '.')+1:], strings.TrimPrefix(p, "/")}
		}
	}
	return u
}

// Handler counts what next is called for. Paths that are no method of the services are
// not counted. It stands outside of NewHandler, whose own calls are not clients'.
func (u *Usage) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if m, ok := u.methods[req.URL.Path]; ok {
			u.count(m, u.cfg.Caller(req))
		}
		next.ServeHTTP(w, req)
	})
}

func (u *Usage) count(m method, caller string) {
	caller = strings.ToValidUTF8(caller[:min(len(caller), maxCaller)], "")
	now := u.cfg.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.callers[caller] {
		if len(u.callers) >= u.cfg.MaxCallers {
			caller = other
		} else {
			u.callers[caller] = true
		}
	}
	key := usageKey{m, caller}
	c := u.counts[key]
	if c == nil {
		c = &Count{Version: m.version, Method: m.name, Caller: caller}
		u.counts[key] = c
	}
	c.Calls++
	c.LastUsed = now
}

// Snapshot returns all counts, by version, method and caller.
func (u *Usage) Snapshot() []Count {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]Count, 0, len(u.counts))
	for _, c := range u.counts {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(strings.Compare(a.Version, b.Version), strings.Compare(a.Method, b.Method), strings.Compare(a.Caller, b.Caller))
	})
	return out
}

// LastUsed returns when a version was last called; ok is false if it was not, since since.
func (u *Usage) LastUsed(version string) (last time.Time, ok bool, since time.Time) {
	for _, c := range u.Snapshot() {
		if c.Version == version && c.LastUsed.After(last) {
			last, ok = c.LastUsed, true
		}
	}
	return last, ok, u.began
}

// Totals sums the counts up by version, those that nobody has called included, as
// vrunner.Config.Usage wants them: the last call to the minute.
func (u *Usage) Totals() (since time.Time, used map[string]upgradestate.Usage) {
	used = map[string]upgradestate.Usage{}
	last := map[string]time.Time{}
	for _, m := range u.methods {
		used[m.version] = upgradestate.Usage{}
	}
	for _, c := range u.Snapshot() {
		sum := used[c.Version]
		sum.Calls += int64(c.Calls)
		if c.LastUsed.After(last[c.Version]) {
			last[c.Version] = c.LastUsed
			sum.Last = c.LastUsed.UTC().Truncate(time.Minute).Format(time.RFC3339)
		}
		used[c.Version] = sum
	}
	return u.began, used
}

// ServeHTTP answers with the counts in JSON: {"since": ..., "counts": [...]}.
func (u *Usage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// A client that is gone cannot be answered.
	_ = json.NewEncoder(w).Encode(u)
}

// MarshalJSON returns what ServeHTTP answers.
func (u *Usage) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Since  time.Time `json:"since"`
		Counts []Count   `json:"counts"`
	}{u.began, u.Snapshot()})
}

var _ prometheus.Collector = (*Usage)(nil)

var (
	callsDesc = prometheus.NewDesc("dbcontroller_api_calls_total", "Calls by version of the API, method and caller.", []string{"version", "method", "caller"}, nil)
	lastDesc  = prometheus.NewDesc("dbcontroller_api_last_call_timestamp_seconds", "When a version of the API was last called.", []string{"version", "method", "caller"}, nil)
)

func (u *Usage) Describe(ch chan<- *prometheus.Desc) {
	ch <- callsDesc
	ch <- lastDesc
}

func (u *Usage) Collect(ch chan<- prometheus.Metric) {
	for _, c := range u.Snapshot() {
		ch <- prometheus.MustNewConstMetric(callsDesc, prometheus.CounterValue, float64(c.Calls), c.Version, c.Method, c.Caller)
		ch <- prometheus.MustNewConstMetric(lastDesc, prometheus.GaugeValue, float64(c.LastUsed.UnixMilli())/1000, c.Version, c.Method, c.Caller)
	}
}
