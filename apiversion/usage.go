package apiversion

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/upgradestate"
)

// other is the name of all callers beyond UsageConfig.MaxCallers.
const other = "other"

// maxCaller limits the length of a caller's name in bytes, since clients choose it.
const maxCaller = 64

// ProductOf returns the product token of the User-Agent, such as "curl" in "curl/8.5.0". It drops
// the version, since each release would count as another caller. Without a User-Agent it returns
// "unknown".
func ProductOf(req *http.Request) string {
	product, _, _ := strings.Cut(req.UserAgent(), " ")
	product, _, _ = strings.Cut(product, "/")
	if product == "" {
		return "unknown"
	}
	return product
}

// UsageConfig configures a Usage.
type UsageConfig struct {
	// Services are the services to count. A service's version is the last part of its package, such
	// as v1 in bbs.v1.
	Services []protoreflect.ServiceDescriptor
	// Caller names the client of a request. Nil means ProductOf.
	Caller func(*http.Request) string
	// MaxCallers limits the number of callers that are counted by name. Later ones count as
	// "other". 0 means 1000.
	MaxCallers int
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Usage counts calls by version, method and caller, so that operators see when a version is no
// longer used. It counts every call that arrives, successful or not. The counts start at zero with
// the process. For longer periods, collect them as metrics. It is safe for concurrent use.
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

// Count holds the calls of one caller to one method.
type Count struct {
	Version  string    `json:"version"`
	Method   string    `json:"method"` // package.Service/Method
	Caller   string    `json:"caller"`
	Calls    uint64    `json:"calls"`
	LastUsed time.Time `json:"lastUsed"`
}

// NewUsage returns a Usage with no calls counted.
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

// Handler counts calls and passes them to next. It does not count paths that are no method of the
// services. Put it outside of NewHandler, or it counts the inner calls of that handler too.
func (u *Usage) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if m, ok := u.methods[req.URL.Path]; ok {
			u.count(m, u.cfg.Caller(req))
		}
		next.ServeHTTP(w, req)
	})
}

func (u *Usage) count(m method, caller string) {
	// The cut can split a character, and Prometheus refuses invalid UTF-8.
	caller = strings.ToValidUTF8(caller[:min(len(caller), maxCaller)], "")
	now := u.cfg.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.callers[caller] {
		// Clients choose their names. Without a limit they could fill the memory.
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

// Snapshot returns a copy of all counts, sorted by version, method and caller.
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

// LastUsed returns the time of a version's last call. since is the start of counting. ok is false
// if there was no call after it.
func (u *Usage) LastUsed(version string) (last time.Time, ok bool, since time.Time) {
	for _, c := range u.Snapshot() {
		if c.Version == version && c.LastUsed.After(last) {
			last, ok = c.LastUsed, true
		}
	}
	return last, ok, u.began
}

// Totals returns the sums by version, in the form of vrunner.Config.Usage. Versions without calls
// are included. The time of the last call is rounded down to the minute.
func (u *Usage) Totals() (since time.Time, used map[string]upgradestate.Usage) {
	used = map[string]upgradestate.Usage{}
	last := map[string]time.Time{}
	for _, m := range u.methods {
		// Versions without calls must appear too: a missing one would read as unknown.
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

// ServeHTTP responds with the counts as JSON: {"since": ..., "counts": [...]}.
func (u *Usage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// The only error is a client that went away.
	_ = json.NewEncoder(w).Encode(u)
}

// MarshalJSON returns the body of ServeHTTP.
func (u *Usage) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Since  time.Time `json:"since"`
		Counts []Count   `json:"counts"`
	}{u.began, u.Snapshot()})
}
