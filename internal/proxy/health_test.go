package proxy

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/proxy/upstream"
)

// values gathers the metrics of a proxy.
func values(t *testing.T, p *Proxy) map[string]float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	for _, m := range p.Metrics() {
		if err := reg.Register(m); err != nil {
			t.Fatal(err)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		out[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return out
}

// TestHealth: a proxy is ready as long as it can serve commands. Its metrics show a hold, and since when no
// controller answers.
func TestHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	p := w.proxies[0]
	if err := p.Ready(); err != nil {
		t.Error(err)
	}
	w.hold("v1", 1)
	w.await(p)
	got := values(t, p)
	if silent := got["dbcontroller_proxy_controllers_silent_seconds"]; silent < 0 || silent > 60 {
		t.Errorf("silent for %v s", silent)
	}
	delete(got, "dbcontroller_proxy_controllers_silent_seconds")
	if want := map[string]float64{"dbcontroller_proxy_faults_total": 0, "dbcontroller_proxy_connections": 0, "dbcontroller_proxy_epoch": 1, "dbcontroller_proxy_holds": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	w.open("v3", 2) // a version without a connection string
	w.await(p)
	if err := p.Ready(); err == nil {
		t.Error("ready without a connection string for the served version")
	}
	w.controllers.set(w.place("v2", 3, pb.Location_OPEN))
	w.await(p)
	if err := p.Ready(); err != nil {
		t.Error(err)
	}
	away, err := upstream.Open("mongodb://127.0.0.1:1/")
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Proxy{home: away, closing: t.Context()}).Ready(); err == nil {
		t.Error("ready without a server of home")
	}
	if err := away.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
