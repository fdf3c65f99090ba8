package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"dbcontroller.dev/apiversion"
)

// UsageMetrics returns the counts of calls as Prometheus metrics.
func UsageMetrics(u *apiversion.Usage) prometheus.Collector { return usageMetrics{u} }

type usageMetrics struct{ usage *apiversion.Usage }

var (
	callsDesc = prometheus.NewDesc("dbcontroller_api_calls_total", "Calls by version of the API, method and caller.", []string{"version", "method", "caller"}, nil)
	lastDesc  = prometheus.NewDesc("dbcontroller_api_last_call_timestamp_seconds", "When a version of the API was last called.", []string{"version", "method", "caller"}, nil)
)

func (usageMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- callsDesc
	ch <- lastDesc
}

func (m usageMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.usage.Snapshot() {
		ch <- prometheus.MustNewConstMetric(callsDesc, prometheus.CounterValue, float64(c.Calls), c.Version, c.Method, c.Caller)
		ch <- prometheus.MustNewConstMetric(lastDesc, prometheus.GaugeValue, float64(c.LastUsed.UnixMilli())/1000, c.Version, c.Method, c.Caller)
	}
}
