package app

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/transform"
)

// TestLinesNameTheirDeployment: each line of a process of several deployments names the controller and
// the deployment once.
func TestLinesNameTheirDeployment(t *testing.T) {
	t.Parallel()
	const a, b = "services/shop.example.com/deployments/a", "services/shop.example.com/deployments/b"
	var all []Deployment
	for _, name := range []string{a, b} {
		all = append(all, Deployment{Registry: transform.NewRegistry("shop"), Config: config.Config{
			Deployment: name, RingSize: 1, InitialVersion: "v1", API: "127.0.0.1:0", Operator: "127.0.0.1:0",
			// The driver refuses this endpoint, so the controller fails at once.
			DBs: []config.DB{{Version: "v1", APIVersion: "v1", Backend: "mongo", Database: "shop", Endpoint: config.NewSecret("mongodb://127.0.0.1:1/?tls=no")}},
		}})
	}
	core, logs := observer.New(zap.DebugLevel)
	f, err := NewFleet(all, memcoord.New(), Options{Options: controller.Options{ID: "c1"}}, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	for message, level := range map[string]zapcore.Level{
		"controller listens":        zap.InfoLevel,
		"database cannot be opened": zap.WarnLevel,
		"the controller of a deployment has failed and is started again": zap.ErrorLevel,
	} {
		for _, name := range []string{a, b} {
			for logs.FilterMessage(message).FilterLevelExact(level).FilterField(zap.String("deployment", name)).Len() == 0 {
				select {
				case err := <-ended:
					t.Fatalf("no line %q names %s: %v; %v", message, name, err, logs.All())
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, m := range f.members {
		m.backend.log.Info("a scratch database")
	}
	for _, e := range logs.All() {
		count := map[string]int{}
		for _, field := range e.Context {
			count[field.Key]++
		}
		if count["controller"] != 1 || count["deployment"] != 1 {
			t.Errorf("%q has fields %v", e.Message, e.Context)
		}
	}
}
