// Package metrics exports the metrics of one controller and of the whole deployment.
//
// It is not for users and may change with any version.
package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// There are two groups of metrics. Those in this file describe this process and are summed over the
// controllers. Those in whole.go describe the deployment and are equal at every controller.
// Their number does not grow with shards or kinds, except for the optional metrics of each shard.

// Source is the controller that the metrics describe.
type Source struct {
	Deployments *deployment.Store
	Ready       func() error                           // nil while the controller works
	Leads       func() bool                            // it drives upgrades
	Stages      func() map[syncer.Stage]time.Duration  // time that the running engine has spent copying
	Progress    func() []syncer.Progress               // of the shards that it owns
	Hooks       func() []hooks.Stats                   // its hooks
	Waits       func() []upgradestate.Blocker          // its reasons to wait
	BackAway    func(d upgradestate.Deployment) string // why the database that a rollback needs is away
	Rollouts    func() []rollout.Rollout               // that this process knows of
	Shards      bool                                   // adds metrics of each shard
}

// Of returns the metrics of a controller and of its deployment.
func Of(s Source) prometheus.Collector { return together{&own{Source: s}, &whole{Source: s}} }

// Down returns the metrics of a deployment whose controller does not run in this process now.
func Down(deployment string) prometheus.Collector {
	return prometheus.WrapCollectorWith(prometheus.Labels{"deployment": deployment}, down{})
}

type down struct{}

func (down) Describe(ch chan<- *prometheus.Desc) { ch <- ready }

func (down) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, 0)
}

// together combines several collectors into one.
type together []prometheus.Collector

func (t together) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range t {
		c.Describe(ch)
	}
}

func (t together) Collect(ch chan<- prometheus.Metric) {
	for _, c := range t {
		c.Collect(ch)
	}
}

// own collects the metrics of this controller.
type own struct {
	Source

	mu     sync.Mutex
	counts map[int]syncer.Progress // last seen progress of each shard
	totals []float64               // values of ownCounters, in order
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("dbcontroller_"+name, help, labels, nil)
}

// valueOf is a metric that exists for one shard, and as the sum over the shards of this controller.
type valueOf struct {
	own, shard *prometheus.Desc
	value      func(syncer.Progress) float64
}

func both(name, shardName, help string, value func(syncer.Progress) float64) valueOf {
	return valueOf{desc(name, help+" Of the shards that this controller owns."), desc(shardName, help, "shard"), value}
}

var (
	ready      = desc("controller_ready", "1 while this controller works, or stands by because others own all shards. 0: it waits; /readyz shows the reason.")
	leads      = desc("controller_leads", "1 at the controller that drives upgrades.")
	shardsIn   = desc("shards", "Shards that this controller owns, by their state.", "state")
	copyStages = desc("copy_seconds_total", "Time that all copy workers spent in each activity: wait, read, transform, write, and again (records that exist already and are applied in transactions). It starts at 0 with each direction.", "stage")

	hookUndelivered = desc("hook_undelivered_events", "Events that are not delivered to a hook yet. Only the leader has this series.", "hook")
	hookDelivered   = desc("hook_delivered_total", "Events that this controller delivered to a hook.", "hook")
	hookFailures    = desc("hook_failures_total", "Failed attempts of this controller to deliver an event to a hook.", "hook")
	hookGivenUp     = desc("hook_given_up_total", "Events that this controller dropped because the hook did not accept them for too long.", "hook")

	ownGauges = []valueOf{
		both("copied_records", "shard_copied_records", "Records copied.", func(p syncer.Progress) float64 { return float64(p.Copied) }),
		both("total_records", "shard_total_records", "Records to copy, estimated.", func(p syncer.Progress) float64 { return float64(p.Total) }),
		both("parked_groups", "shard_parked_groups", "Groups that are parked and not waived.", func(p syncer.Progress) float64 { return float64(p.Parked) }),
		both("mismatched_groups", "shard_mismatched_groups", "Groups that differ now, without those that just changed.", func(p syncer.Progress) float64 { return float64(p.Mismatched) }),
	}
	ownCounters = []valueOf{
		both("applied_total", "shard_applied_total", "Changed groups applied.", func(p syncer.Progress) float64 { return float64(p.Applied) }),
		both("retries_total", "shard_retries_total", "Failed attempts that were retried.", func(p syncer.Progress) float64 { return float64(p.Retries) }),
		both("compared_total", "shard_compared_total", "Groups compared between source and target.", func(p syncer.Progress) float64 { return float64(p.Verified) }),
		both("late_deletes_total", "shard_late_deletes_total", "Deletes that passed a validator fence; the reverse sync undoes them.", func(p syncer.Progress) float64 { return float64(p.LateDeletes) }),
	}
	shardState = desc("shard_state", "1 for the current state of an owned shard.", "shard", "state")
	shardLag   = desc("shard_lag_seconds", "Age of the newest change when it was applied; no series while unknown.", "shard")
)

// Describe implements prometheus.Collector. Some described series exist only at times.
func (m *own) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ready, leads, shardsIn, copyStages, hookUndelivered, hookDelivered, hookFailures, hookGivenUp} {
		ch <- d
	}
	for _, v := range append(ownGauges, ownCounters...) {
		ch <- v.own
		ch <- v.shard
	}
	ch <- shardState
	ch <- shardLag
}

func (m *own) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(ready, truth(m.Ready() == nil))
	gauge(leads, truth(m.Leads()))
	for stage, took := range m.Stages() {
		ch <- prometheus.MustNewConstMetric(copyStages, prometheus.CounterValue, took.Seconds(), stage.String())
	}
	ps := m.Progress()
	in := map[string]int{}
	for _, p := range ps {
		in[p.State]++
	}
	// Every state gets a series, so that a 0 is distinct from no data.
	for _, state := range syncer.States {
		gauge(shardsIn, float64(in[state]), state)
	}
	for _, v := range ownGauges {
		sum := 0.0
		for _, p := range ps {
			sum += v.value(p)
		}
		gauge(v.own, sum)
	}
	for i, total := range m.count(ps) {
		ch <- prometheus.MustNewConstMetric(ownCounters[i].own, prometheus.CounterValue, total)
	}
	for _, h := range m.Hooks() {
		if h.Undelivered >= 0 {
			gauge(hookUndelivered, float64(h.Undelivered), h.Name)
		}
		for d, n := range map[*prometheus.Desc]int64{hookDelivered: h.Delivered, hookFailures: h.Failures, hookGivenUp: h.GivenUp} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), h.Name)
		}
	}
	if m.Source.Shards {
		collectShards(ch, ps)
	}
}

// count adds the increase of each shard's counters to the totals. A shard that moved to another
// controller, or started anew in another direction, subtracts nothing: a total never falls.
func (m *own) count(ps []syncer.Progress) []float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.totals == nil {
		m.totals = make([]float64, len(ownCounters))
	}
	counts := make(map[int]syncer.Progress, len(ps))
	for _, p := range ps {
		for i, v := range ownCounters {
			now, before := v.value(p), v.value(m.counts[p.Shard])
			if now < before {
				// The shard's counters restarted at 0.
				before = 0
			}
			m.totals[i] += now - before
		}
		counts[p.Shard] = p
	}
	m.counts = counts
	return append([]float64{}, m.totals...)
}

// collectShards emits one series for each shard.
func collectShards(ch chan<- prometheus.Metric, ps []syncer.Progress) {
	for _, p := range ps {
		shard := strconv.Itoa(p.Shard)
		ch <- prometheus.MustNewConstMetric(shardState, prometheus.GaugeValue, 1, shard, p.State)
		if p.LagMillis != nil {
			ch <- prometheus.MustNewConstMetric(shardLag, prometheus.GaugeValue, seconds(*p.LagMillis), shard)
		}
		for _, v := range ownGauges {
			ch <- prometheus.MustNewConstMetric(v.shard, prometheus.GaugeValue, v.value(p), shard)
		}
		for _, v := range ownCounters {
			ch <- prometheus.MustNewConstMetric(v.shard, prometheus.CounterValue, v.value(p), shard)
		}
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func seconds(millis int64) float64 { return float64(millis) / 1000 }
