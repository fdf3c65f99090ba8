package simulation_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/internal/engine/rollout"
	serverapp "dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/upgradestate"
)

// exported is what was seen of metrics: by name and label, the values of the label.
type exported map[string]map[string][]string

// scrape returns the values of metrics now by their names, with those labels of which there
// are several behind them; the deployment's is left out. What it saw is added to seen.
func scrape(t *testing.T, seen exported, cs ...prometheus.Collector) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	for _, c := range cs {
		reg.MustRegister(c)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	now := map[string]float64{}
	for _, f := range families {
		labels := seen[f.GetName()]
		if labels == nil {
			labels = map[string][]string{}
			seen[f.GetName()] = labels
		}
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if !slices.Contains(labels[l.GetName()], l.GetValue()) {
					labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
				}
				if l.GetName() != "deployment" {
					name += " " + l.GetValue()
				}
			}
			now[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return now
}

// watched is a system whose metrics are looked at through a whole upgrade and beyond.
func watched(t *testing.T, seen exported) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.shardMetrics = true
	s.hooks = []hooks.Hook{(&endpoint{}).hook("pager")}
	r, server := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, r)
	stop := drive(ctx, tr, 1, 3, 20, 15*time.Millisecond)
	pass(time.Second)
	c1 := s.controller(ctx, "controller-1", nil)
	pass(5 * time.Second)
	c2 := s.controller(ctx, "controller-2", nil)
	pass(10 * time.Second)

	of := map[*process]prometheus.Collector{c1: c1.app.Metrics(), c2: c2.app.Metrics()}
	at := func(p *process) map[string]float64 {
		pass(2 * time.Second) // a reading stands for a while
		return scrape(t, seen, of[p])
	}
	want := func(what string, got map[string]float64, values map[string]float64) {
		t.Helper()
		for name, v := range values {
			now, there := got["dbcontroller_"+name]
			if there == math.IsNaN(v) || there && now != v {
				t.Errorf("%s: %s is %v (there: %t), want %v", what, name, now, there, v)
			}
		}
	}
	absent := math.NaN()
	want("steady", at(c1), map[string]float64{
		"deployment_known": 1, "deployment_version v1": 1, "deployment_phase STEADY": 1, "deployment_phase SWITCHING": 0,
		"deployment_shards": ring, "deployment_reporting_shards": ring, "deployment_controllers": 2, "controller_leads": 1,
		"deployment_processes server serving": 1, "deployment_lag_known": 1, "deployment_parked_groups": 0,
		"rollback_possible": 0, "rollback_safe": absent, "upgrade_ready_shards": absent, "switch_pause_seconds": absent, "upgrade_proof proved": absent,
	})
	want("not leading", at(c2), map[string]float64{"controller_leads": 0, "deployment_version v1": 1, "deployment_reporting_shards": ring})

	s.beginHeld(ctx)
	s.await(ctx, "ready", ready)
	pass(20 * time.Second)
	got := at(c2)
	want("held", got, map[string]float64{
		"deployment_phase INITIAL_SYNCING": 1, "upgrade_target v2": 1, "upgrade_ready_shards": ring, "upgrade_switch_blockers": 1,
		"upgrade_proof proved": 1, "upgrade_proof failed": 0, "upgrade_hold_seconds": 0,
	})
	if _, there := got["dbcontroller_upgrade_predicted_pause_seconds"]; !there { // renames take no time here
		t.Errorf("no pause is predicted: %v", got)
	}
	if n := got["dbcontroller_shards ready"]; n != ring/2 {
		t.Errorf("%v shards are ready at one of two controllers", n)
	}
	applied := got["dbcontroller_applied_total"]

	// A server that does not acknowledge keeps the switch at its hold for a while.
	server.conn.Cut()
	_, err := s.admin.Apply(ctx, upgradestate.AskSwitch{ID: "upgrade-1"})
	s.check(err)
	s.await(ctx, "the hold", func(d upgradestate.Deployment) bool {
		return d.Upgrade != nil && d.Upgrade.Step == upgradestate.StepHold
	})
	pass(20 * time.Millisecond)
	got = scrape(t, seen, of[c1])
	want("holding", got, map[string]float64{"deployment_phase SWITCHING": 1, "upgrade_step HOLD": 1, "upgrade_step FENCE": 0})
	if held := got["dbcontroller_upgrade_hold_seconds"]; held < 0.02 || held > 1 {
		t.Errorf("writes are held for %v s", held)
	}
	server.kill()
	s.await(ctx, "the flip", active("v2"))
	r, server = s.server(ctx, "server-b", nil)
	stop()
	pass(20 * time.Second)
	got = at(c1)
	want("switched", got, map[string]float64{
		"deployment_version v2": 1, "deployment_version v1": absent, "deployment_phase STEADY": 1, "deployment_epoch": 2, "upgrade_step HOLD": 0,
		"rollback_possible": 1, "rollback_safe": 1, "rollback_parked_groups": 0, "rollback_reverse_sync": 1, "deployment_lag_known": 1,
		"fence_breaches": 0, "upgrade_target v2": absent,
	})
	if got["dbcontroller_switch_pause_seconds"] <= 0 || got["dbcontroller_switch_step_seconds hold"] <= 0 {
		t.Errorf("the pause was not measured: %v", got)
	}
	if now := at(c2)["dbcontroller_applied_total"]; now < applied {
		t.Errorf("a total fell from %v to %v", applied, now)
	}
	scrape(t, seen, serverapp.Metrics(r))

	// Rollouts that somebody has to look at, and one that is over.
	for rolloutName, state := range map[string]rollout.State{"a": rollout.Stopped, "b": rollout.Paused, "c": rollout.Done} {
		ro := rollout.New(rolloutName, "r-"+rolloutName, "v2", [][]string{{name}}, rollout.Policy{GateLimitMillis: 1, OnFailure: rollout.StopOnly}, "a test", time.Now())
		ro.State = state
		_, err := s.admin.Rollouts().Store(ctx, ro, 0)
		s.check(err)
	}
	pass(2 * time.Second)
	want("rollouts", at(c2), map[string]float64{"rollout_state a STOPPED UPGRADE 1": 1, "rollout_state b PAUSED UPGRADE 1": 1, "rollout_state c DONE UPGRADE 1": absent})

	// Nothing is shown that is not known.
	c2.conn.Cut()
	start := time.Now()
	got = at(c2)
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("a scrape took %s without etcd", took)
	}
	want("cut off", got, map[string]float64{"deployment_known": 0, "deployment_version v2": absent, "deployment_lag_seconds": absent, "rollback_safe": absent, "fence_breaches": absent})
	c2.kill()
	c1.kill()
	server.kill()
}

// TestMetricsOfAnUpgrade: what is shown is true, or says that it is not known.
func TestMetricsOfAnUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { watched(t, exported{}) })
}

// TestMetricsOfManyShards: their number does not grow with that of the shards.
func TestMetricsOfManyShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		c := s.controller(ctx, "controller-1", nil)
		pass(20 * time.Second)
		for _, asked := range []bool{false, true} {
			if asked {
				c.kill()
				s.shardMetrics = true
				c = s.controller(ctx, "controller-2", nil)
				pass(20 * time.Second)
			}
			byShard := map[string]bool{}
			for name := range scrape(t, exported{}, c.app.Metrics()) {
				if strings.HasPrefix(name, "dbcontroller_shard_") {
					byShard[name[strings.LastIndexByte(name, ' ')+1:]] = true
				}
			}
			if (len(byShard) > 0) != asked {
				t.Errorf("asked %t: series of shards %s", asked, fmt.Sprint(byShard))
			}
		}
		c.kill()
	})
}
