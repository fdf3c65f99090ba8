package controller

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dbcontroller.dev/internal/control/deployment"
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
		w := &whole{app: &App{connections: &connections{}, successors: &successors{}, adoption: &adoption{}, wayBack: &wayBack{connections: &connections{}}}}
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
