package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dbcontroller.dev/internal/base/tracestest"
	"dbcontroller.dev/upgradestate"
)

// TestOperatorPort looks at a running system from outside: operator ports, get and watch.
func TestOperatorPort(t *testing.T) {
	t.Parallel()
	raceProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// Four pages a second: the copy takes some seconds, and can be watched.
	collector := tracestest.Start(t)
	s := newSystem(ctx, t, settings{
		copy:    "{auto: false, workers: 2, maxRate: 8000}",
		further: fmt.Sprintf("operator: {pprof: true, shardMetrics: true, traces: {endpoint: %q, ratio: 1}}\n", "http://"+collector.Address),
	})
	s.fill(ctx, newLedger("package"), documents)

	server := s.server("server", 0).listening(ctx)
	expect(ctx, t, server, "/healthz", http.StatusOK, "^ok$")
	expect(ctx, t, server, "/readyz", http.StatusServiceUnavailable, "waiting for the Deployment in etcd")
	controller := s.run("controller").ready(ctx)
	server.ready(ctx)
	expect(ctx, t, server, "/readyz", http.StatusOK, "^ready$")
	expect(ctx, t, controller, "/healthz", http.StatusOK, "^ok$")
	expect(ctx, t, controller, "/readyz", http.StatusOK, "^ready$")
	for _, c := range []*child{controller, server} {
		expect(ctx, t, c, "/debug/pprof/goroutine?debug=1", http.StatusOK, "goroutine profile: total")
		expect(ctx, t, c, "/metrics", http.StatusOK, "go_goroutines")
	}

	api, _ := controller.addresses()
	watch := command(t, roleCommand, []string{"watch", "deployment", "--server", api, "--json", "--until-version", "v2"}, nil)
	var watched bytes.Buffer
	watch.Stdout = &watched
	watcher := spawn(t, "watch", watch)
	watcher.ended = true // by itself, when the version is reached
	s.begin(ctx)
	eventually(ctx, t, "metrics of every shard", func() error { return missing(ctx, controller, shardSeries()) })
	d := s.await(ctx, "the flip", flipped("v2"))
	eventually(ctx, t, "metrics of the server after the switch", func() error {
		return missing(ctx, server, []string{`active_version\{version="v2"\} 1`, `held_writes 0`, `gate_open 1`, `restart_milliseconds [1-9]`})
	})
	select {
	case <-watcher.Done():
		if err := watcher.err(); err != nil {
			t.Errorf("watch: %v", err)
		}
	case <-ctx.Done():
		t.Fatal("watch does not end with the switch")
	}
	checkWatched(t, &watched, s.name)

	got := execute(ctx, t, nil, "get", "deployment", "--server", api, "--json").json(t)
	eventually(ctx, t, "traces of the upgrade", func() error {
		spans := collector.Spans()
		for _, name := range []string{"copy page", "read", "write", "compare page", "switch", "HOLD", "FENCE", "DRAIN"} {
			if spans[name] == 0 {
				return fmt.Errorf("no span %s in %v", name, spans)
			}
		}
		return nil
	})
	if got["name"] != s.name || got["currentVersion"] != "v2" || got["upgradeState"] != nil || got["epoch"] != fmt.Sprint(d.Epoch) {
		t.Errorf("get deployment: %v", got)
	}
	s.await(ctx, "the rollback", func(d upgradestate.Deployment) bool { return len(d.Available) > 0 })
	if _, _, err := newBBSClient(s.http, server).list(ctx, 0); err != nil {
		t.Fatal(err)
	}
	expect(ctx, t, server, "/usage", http.StatusOK, `"version":"v1","method":"bbs.v1.DesiredLRPService/ListDesiredLRPs","caller":"connect-go"`)
	if text := execute(ctx, t, nil, "get", "deployment", "--server", api); text.code != 0 ||
		!strings.Contains(text.stdout, s.name) || !regexp.MustCompile(`reverse sync\s+on`).MatchString(text.stdout) {
		t.Errorf("get deployment prints %+v", text)
	}
}

// expect asks an operator port.
func expect(ctx context.Context, t *testing.T, c *child, path string, code int, body string) {
	t.Helper()
	_, operator := c.addresses()
	has, text, err := get(ctx, "http://"+operator+path)
	if err != nil || has != code || !regexp.MustCompile(body).MatchString(strings.TrimSpace(text)) {
		t.Errorf("%s of %s: %d %.200q, %v; want %d %q", path, c.name, has, text, err, code, body)
	}
}

// checkWatched reads what watch --json printed: a deployment on each line, in the shape
// that operators expect.
func checkWatched(t *testing.T, out *bytes.Buffer, name string) {
	t.Helper()
	type state struct {
		TargetVersion string `json:"targetVersion"`
		ReadyShards   []int  `json:"readyShards"`
		PendingShards []int  `json:"pendingShards"`
		State         string `json:"state"`
	}
	var line struct {
		Name           string `json:"name"`
		CurrentVersion string `json:"currentVersion"`
		UpgradeState   *state `json:"upgradeState"`
	}
	all := make([]int, ring)
	for i := range all {
		all[i] = i
	}
	lines, syncing := 0, 0
	for text := range strings.Lines(out.String()) {
		line.UpgradeState = nil
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Name != name {
			t.Errorf("line %q: %v", text, err)
		}
		lines++
		u := line.UpgradeState
		if u == nil {
			continue
		}
		if u.State == "INITIAL_SYNCING" {
			syncing++
		}
		shards := append(slices.Clone(u.ReadyShards), u.PendingShards...)
		slices.Sort(shards)
		if u.TargetVersion != "v2" || u.State != "INITIAL_SYNCING" && u.State != "SWITCHING" || !slices.Equal(shards, all) {
			t.Errorf("upgradeState is %+v", *u)
		}
	}
	if lines < 3 || syncing < 2 || line.CurrentVersion != "v2" || line.UpgradeState != nil {
		t.Errorf("%d lines, %d of them in INITIAL_SYNCING; the last is %+v", lines, syncing, line)
	}
}

// shardSeries are patterns of the series that each shard has.
func shardSeries() []string {
	var all []string
	for shard := range ring {
		for _, name := range []string{"copied_records", "total_records", "lag_seconds", "applied_total", "parked_groups", "retries_total"} {
			all = append(all, fmt.Sprintf(`shard_%s\{deployment="[^"]+",shard="%d"\} \d`, name, shard))
		}
		all = append(all, fmt.Sprintf(`shard_state\{deployment="[^"]+",shard="%d",state="[a-z]+"\} 1$`, shard))
	}
	return all
}

// missing tells which of the series a process does not have.
func missing(ctx context.Context, c *child, series []string) error {
	_, operator := c.addresses()
	_, text, err := get(ctx, "http://"+operator+"/metrics")
	if err != nil {
		return err
	}
	for _, pattern := range series {
		if !regexp.MustCompile(`(?m)^dbcontroller_(server_)?` + pattern).MatchString(text) {
			return fmt.Errorf("there is no %s", pattern)
		}
	}
	return nil
}

// TestReadyWhileWaitingForMongoDB: the operator port answers before the databases do.
func TestReadyWhileWaitingForMongoDB(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := newSystem(ctx, t, settings{})
	c := spawn(t, "waiting", command(t, roleCommand, []string{
		"run", "--config", s.config, "--api-listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0",
	}, append(s.env, "MONGO_V1=mongodb://"+silent.Addr().String()))).listening(ctx)
	expect(ctx, t, c, "/healthz", http.StatusOK, "^ok$")
	expect(ctx, t, c, "/readyz", http.StatusServiceUnavailable, "waiting for the databases")
	c.kill()
}
