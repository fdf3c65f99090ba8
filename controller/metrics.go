package controller

import (
	"math"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"dbcontroller.dev/syncer"
)

// metrics shows the engine's progress, by shard.
type metrics struct{ app *App }

var (
	shardLabels = []string{"shard"}
	shardState  = prometheus.NewDesc("dbcontroller_shard_state", "1 for the state that an owned shard is in.", []string{"shard", "state"}, nil)
	breaches    = prometheus.NewDesc("dbcontroller_fence_breaches", "Fences that were found not in force, and that nobody has accepted; by the controller that leads.", nil, nil)
	copyStages  = prometheus.NewDesc("dbcontroller_copy_seconds_total", "What the copy has spent its time on, all workers added up: wait, read, transform, write, and again, for what was there already and is applied in transactions. It begins anew with each direction.", []string{"stage"}, nil)
	shardValues = []struct {
		desc  *prometheus.Desc
		kind  prometheus.ValueType
		value func(syncer.Progress) float64
	}{
		{prometheus.NewDesc("dbcontroller_shard_copied_records", "Records copied.", shardLabels, nil), prometheus.GaugeValue, func(p syncer.Progress) float64 { return float64(p.Copied) }},
		{prometheus.NewDesc("dbcontroller_shard_total_records", "Records to copy, estimated.", shardLabels, nil), prometheus.GaugeValue, func(p syncer.Progress) float64 { return float64(p.Total) }},
		{prometheus.NewDesc("dbcontroller_shard_lag_seconds", "Age of the newest change when it was applied; NaN while it is not known.", shardLabels, nil), prometheus.GaugeValue, lagSeconds},
		{prometheus.NewDesc("dbcontroller_shard_applied_total", "Changed groups applied.", shardLabels, nil), prometheus.CounterValue, func(p syncer.Progress) float64 { return float64(p.Applied) }},
		{prometheus.NewDesc("dbcontroller_shard_parked_groups", "Groups that are parked and not waived.", shardLabels, nil), prometheus.GaugeValue, func(p syncer.Progress) float64 { return float64(p.Parked) }},
		{prometheus.NewDesc("dbcontroller_shard_retries_total", "Attempts that failed and were tried again.", shardLabels, nil), prometheus.CounterValue, func(p syncer.Progress) float64 { return float64(p.Retries) }},
		{prometheus.NewDesc("dbcontroller_shard_compared_total", "Groups compared between source and target.", shardLabels, nil), prometheus.CounterValue, func(p syncer.Progress) float64 { return float64(p.Verified) }},
		{prometheus.NewDesc("dbcontroller_shard_mismatched_groups", "Groups that differ now, and not because they just changed.", shardLabels, nil), prometheus.GaugeValue, func(p syncer.Progress) float64 { return float64(p.Mismatched) }},
		{prometheus.NewDesc("dbcontroller_shard_late_deletes_total", "Deletes that passed a validator fence; reported, not applied.", shardLabels, nil), prometheus.CounterValue, func(p syncer.Progress) float64 { return float64(p.LateDeletes) }},
	}
)

func lagSeconds(p syncer.Progress) float64 {
	if p.LagMillis == nil {
		return math.NaN()
	}
	return float64(*p.LagMillis) / 1000
}

func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- shardState
	ch <- breaches
	ch <- copyStages
	for _, v := range shardValues {
		ch <- v.desc
	}
}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(breaches, prometheus.GaugeValue, float64(m.app.breaches.Load()))
	for stage, took := range m.app.engines.stages() {
		ch <- prometheus.MustNewConstMetric(copyStages, prometheus.CounterValue, took.Seconds(), stage.String())
	}
	for _, p := range m.app.engines.progress() {
		shard := strconv.Itoa(p.Shard)
		ch <- prometheus.MustNewConstMetric(shardState, prometheus.GaugeValue, 1, shard, p.State)
		for _, v := range shardValues {
			ch <- prometheus.MustNewConstMetric(v.desc, v.kind, v.value(p), shard)
		}
	}
}
