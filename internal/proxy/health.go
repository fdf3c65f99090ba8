package proxy

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Ready returns nil if the proxy can serve commands, and otherwise the reason. Without controllers it can: it
// goes on at the last known place.
func (p *Proxy) Ready() error {
	switch {
	case p.closing.Err() != nil || p.departure.at() != serving:
		return errors.New("the proxy closes")
	case len(p.home.Known()) == 0:
		return errors.New("no server of the cluster of upstream answers")
	}
	for _, d := range p.deployed {
		if version := d.app.Version(); version != "" && d.cfg.URIs[version] == "" {
			return fmt.Errorf("the configuration of %s has no uri for version %s, which is served", d.cfg.Application, version)
		}
	}
	return nil
}

func gauge(name, help string, labels prometheus.Labels, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dbcontroller_proxy_" + name, Help: help, ConstLabels: labels}, value)
}

// Metrics returns the metrics of the proxy.
func (p *Proxy) Metrics() []prometheus.Collector {
	out := []prometheus.Collector{
		gauge("connections", "Connections of clients.", nil, func() float64 { return float64(p.open.Load()) }),
	}
	out = append(out, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "dbcontroller_proxy_faults_total", Help: "Panics of the proxy. Each one ended a connection, a cursor or a question. The log has the first one at each place.",
	}, func() float64 { return float64(p.faults.count()) }))
	if p.users != nil {
		out = append(out, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "dbcontroller_proxy_logins_failed_total", Help: "Logins of clients that failed.",
		}, func() float64 { return float64(p.users.failed.Load()) }))
	}
	for i, d := range p.deployed {
		labels := prometheus.Labels{"application": d.cfg.Application, "deployment": fmt.Sprint(i)}
		out = append(out,
			gauge("epoch", "Epoch of the place that reads use. It grows with each switch.", labels, func() float64 { return float64(d.app.Epoch()) }),
			gauge("holds", "1 while a switch holds writes.", labels, func() float64 {
				if held, _ := d.app.Holding(); held {
					return 1
				}
				return 0
			}),
			gauge("controllers_silent_seconds", "Time since a controller answered; -1: none has answered yet. While it grows, the proxy goes on at the last known place.", labels, func() float64 {
				if heard := d.app.Heard(); !heard.IsZero() {
					return time.Since(heard).Seconds()
				}
				return -1
			}),
		)
	}
	return out
}
