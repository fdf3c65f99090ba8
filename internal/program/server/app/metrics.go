package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"dbcontroller.dev/vrunner"
)

// Metrics returns the server's Prometheus metrics.
func Metrics(r *vrunner.Runner) prometheus.Collector {
	return &metrics{runner: func() *vrunner.Runner { return r }}
}

// metrics collects the state of the runner.
type metrics struct {
	runner func() *vrunner.Runner // returns nil before the server runs
}

var (
	activeVersion = prometheus.NewDesc("dbcontroller_server_active_version", "1 for the version that serves requests.", []string{"version"}, nil)
	heldWrites    = prometheus.NewDesc("dbcontroller_server_held_writes", "Writes that the gate holds.", nil, nil)
	gateOpen      = prometheus.NewDesc("dbcontroller_server_gate_open", "1 while the gate lets writes pass.", nil, nil)
	controllers   = prometheus.NewDesc("dbcontroller_server_controllers", "Controllers of the service that run here.", nil, nil)
	overdue       = prometheus.NewDesc("dbcontroller_server_controllers_overdue", "Controllers that must stop after a switch and still run.", nil, nil)
	restarts      = prometheus.NewDesc("dbcontroller_server_controller_restarts_total", "Restarts of controllers that failed or panicked.", nil, nil)
	holdSeconds   = prometheus.NewDesc("dbcontroller_server_hold_seconds", "Time for which the latest switch or attempt held writes, or has held them until now; 0: none.", nil, nil)
	restartMillis = prometheus.NewDesc("dbcontroller_server_restart_milliseconds", "Time from the detection of the latest flip to the release of writes.", nil, nil)
)

func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	runner := m.runner()
	if runner == nil {
		return
	}
	s := runner.State()
	// Before the first deployment is read there is no active version to show.
	if s.Active != "" {
		ch <- prometheus.MustNewConstMetric(activeVersion, prometheus.GaugeValue, 1, s.Active)
	}
	open := 0.0
	if runner.GateOpen() {
		open = 1
	}
	ch <- prometheus.MustNewConstMetric(gateOpen, prometheus.GaugeValue, open)
	ch <- prometheus.MustNewConstMetric(heldWrites, prometheus.GaugeValue, float64(s.Held))
	ch <- prometheus.MustNewConstMetric(holdSeconds, prometheus.GaugeValue, runner.Hold().Seconds())
	c := runner.Controllers()
	ch <- prometheus.MustNewConstMetric(controllers, prometheus.GaugeValue, float64(c.Running))
	ch <- prometheus.MustNewConstMetric(overdue, prometheus.GaugeValue, float64(c.Overdue))
	ch <- prometheus.MustNewConstMetric(restarts, prometheus.CounterValue, float64(c.Restarts))
	ch <- prometheus.MustNewConstMetric(restartMillis, prometheus.GaugeValue, float64(s.RestartMillis))
}
