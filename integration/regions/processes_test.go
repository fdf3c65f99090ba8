package regions_test

import (
	"context"
	"os"
	"testing"
	"time"
)

// load is the size of a run.
type load struct {
	clients, rate int           // of each region; the rate is calls a second
	shared        time.Duration // between two calls of a client of a shared secret
	some          int64         // writes in a region between two events
	cut           time.Duration // how long a region is cut off, at least
	least         float64       // acknowledged writes a second; 0: any
}

// TestRegionsUnderLoad: while clients write in all regions, one is upgraded, one is upgraded and rolled
// back, one is cut off from the others, and servers and controllers are killed. All regions end with the
// same secrets, those that the clients know; none is lost, owned twice or overwritten by a copy.
//
// make soak cuts the region off for a minute, with 300 writes a second.
func TestRegionsUnderLoad(t *testing.T) {
	size := load{clients: 4, rate: 20, shared: 200 * time.Millisecond, some: 20}
	if os.Getenv("DBCONTROLLER_SOAK") != "" {
		size = load{clients: 20, rate: 130, shared: 100 * time.Millisecond, some: 500, cut: time.Minute, least: 300}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute+5*size.cut) // a hang fails here, and not a slow machine
	defer cancel()
	w := startWith(ctx, t, 2, "  forward: true\n")
	us, eu, asia := w.regions["us"], w.regions["eu"], w.regions["asia"]
	c := w.gather(size.clients, size.rate, size.shared)
	c.goOn("all write", size.some, names...)
	begun, before := time.Now(), c.writes()

	us.begin("v2")
	us.controller.Kill()
	us.controller.start()
	us.servedBy("v2")
	c.goOn("all write while us is in v2", size.some, names...)

	for _, n := range w.lines["asia"] {
		n.sever()
	}
	cut := time.NewTimer(size.cut)
	defer cut.Stop()
	eu.begin("v2")
	eu.servers[0].Kill()
	c.goOn("others write without a server and without asia", size.some, names...)
	eu.servers[0].start()
	eu.servedBy("v2")
	asia.servers[1].Kill()
	asia.servers[1].start()
	eu.begin("v1")
	eu.controller.Kill()
	eu.controller.start()
	eu.servedBy("v1")
	select {
	case <-cut.C:
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	us.away("asia", "v1", "v2")
	c.goOn("all write after the rollback", size.some, names...)
	for _, n := range w.lines["asia"] {
		n.heal()
	}
	c.goOn("all write with asia again", size.some, names...)

	n, took := c.writes()-before, time.Since(begun)
	rate := float64(n) / took.Seconds()
	c.finish()
	t.Logf("%d writes in %s, %.0f/s", n, took.Round(time.Millisecond), rate)
	if rate < size.least {
		t.Errorf("%.0f writes a second, want %.0f", rate, size.least)
	}
	c.settle()
	c.shared.linearizable(t)
	w.ownedOnce(t, map[string]string{"us": "v2", "eu": "v1", "asia": "v1"})
}
