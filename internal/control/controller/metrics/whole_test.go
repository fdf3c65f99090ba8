package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/syncer"
	us "dbcontroller.dev/upgradestate"
)

// TestMetricOfReplaced: the metric counts replaced collections until they are copied anew, and is
// 0 when there are none.
func TestMetricOfReplaced(t *testing.T) {
	t.Parallel()
	d := us.New("services/a/deployments/b", "v1", 1)
	d.Upgrade = &us.Upgrade{ID: "u", TargetVersion: "v2", State: us.InitialSyncing, ReadyShards: []int{}}
	for want, anew := range map[float64]*us.Anew{
		0: nil,
		2: {Version: "v1", To: "v2", Epoch: d.Epoch, Kinds: []us.AnewKind{{Kind: "a"}, {Kind: "b"}}},
	} {
		d.Anew = anew
		w := &whole{Source: quiet}
		w.show(deployment.State{Record: d}, time.Now())
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(shown(w.shown))
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := -1.0
		for _, f := range families {
			if f.GetName() == "dbcontroller_deployment_replaced_collections" {
				got = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		if got != want {
			t.Errorf("the metric is %v, want %v", got, want)
		}
	}
}

// TestMetricOfEveryCode: each reason counts under its code, and no other does.
func TestMetricOfEveryCode(t *testing.T) {
	t.Parallel()
	for code := range us.BlockCodes {
		d := us.New("services/a/deployments/b", "v1", 1)
		d.Upgrade = &us.Upgrade{ID: "u", TargetVersion: "v2", State: us.InitialSyncing, ReadyShards: []int{0}}
		s := deployment.State{Record: d, Controllers: []string{"c"}, Progress: []syncer.Progress{{Owner: "c"}}, Readiness: &switchover.Readiness{ID: "u", Blockers: []us.Blocker{{Code: code, Text: "because"}}}}
		w := &whole{Source: quiet}
		w.show(s, time.Now())
		got := map[string]float64{}
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(shown(w.shown))
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "dbcontroller_switch_blocked" {
					got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
		if len(got) != len(us.BlockCodes) || got[string(code)] != 1 {
			t.Errorf("%s: %v", code, got)
		}
	}
}

// shown are metrics as they are collected.
type shown []prometheus.Metric

func (s shown) Describe(ch chan<- *prometheus.Desc) { (&whole{}).Describe(ch) }

func (s shown) Collect(ch chan<- prometheus.Metric) {
	for _, m := range s {
		ch <- m
	}
}

// quiet is a controller that waits for nothing.
var quiet = Source{
	Waits:    func() []us.Blocker { return nil },
	BackAway: func(us.Deployment) string { return "" },
}
