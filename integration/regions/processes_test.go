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
	moves         int64         // moves of secrets of clients between two events
	keep          bool          // no secret is deleted after a move
	cut           time.Duration // how long a region is cut off, at least
	least         float64       // acknowledged writes a second; 0: any
}

// TestRegionsUnderLoad: while clients write in all regions and move secrets between them, one is upgraded,
// one is upgraded and rolled back, one is cut off from the others, and servers and controllers are killed.
// All regions end with the same secrets, those that the clients know; none is lost, owned twice or
// overwritten by a copy.
//
// make soak cuts the region off for a minute, with 300 writes a second.
func TestRegionsUnderLoad(t *testing.T) {
	size := load{clients: 4, rate: 20, shared: 200 * time.Millisecond, some: 20, moves: 4, keep: true}
	if os.Getenv("DBCONTROLLER_SOAK") != "" {
		size = load{clients: 20, rate: 130, shared: 100 * time.Millisecond, some: 500, moves: 30, cut: time.Minute, least: 300}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute+5*size.cut) // a hang fails here, and not a slow machine
	defer cancel()
	w := startWith(ctx, t, 2, "  forward: true\n")
	us, eu, asia := w.regions["us"], w.regions["eu"], w.regions["asia"]
	c := w.gather(size)
	c.goOn("all write", size.some, names...)
	begun, before := time.Now(), c.writes()

	// The servers that drive the moves are killed among them.
	for n := range 2 {
		for _, name := range names {
			w.regions[name].servers[n].Kill()
		}
		c.movesGoOn("secrets move while a server of each region is down", size.moves)
		for _, name := range names {
			w.regions[name].servers[n].start()
			w.regions[name].serves()
		}
	}
	c.older("us", false)
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
	c.older("eu", false)
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
	c.older("eu", true)
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
	for _, r := range []*region{eu, asia} {
		for _, server := range r.servers {
			server.Kill()
		}
		r.controller.Kill()
		for _, server := range r.servers {
			server.start()
		}
		r.controller.start()
		r.serves()
	}
	c.movesGoOn("secrets move between two versions", size.moves)

	n, took := c.writes()-before, time.Since(begun)
	rate := float64(n) / took.Seconds()
	c.finish()
	t.Logf("%d writes in %s, %.0f/s; %d secrets have moved", n, took.Round(time.Millisecond), rate, c.moved.Load())
	if rate < size.least {
		t.Errorf("%.0f writes a second, want %.0f", rate, size.least)
	}
	active := map[string]string{"us": "v2", "eu": "v1", "asia": "v1"}
	end := time.Now()
	c.endMoves(active)
	c.settle()
	c.shared.linearizable(t)
	w.ownedOnce(active)
	t.Logf("all is checked after %s", time.Since(end).Round(time.Millisecond))
}
