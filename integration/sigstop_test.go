package integration_test

import (
	"bytes"
	"context"
	"syscall"
	"testing"
)

// TestStoppedServer stops a server process with three writes in its hand, past the gate
// and about to be sent to MongoDB, for the whole of a switch. When it goes on, MongoDB
// refuses all of them; each is then made exactly once on the new version, or its client
// is told that it failed.
func TestStoppedServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}", oneWay: true})
	tr := newTraffic(ctx, s, 2*appClients*ownDocuments)
	s.controller("controller", breakPoint{}).ready(ctx)
	stopped := s.server("stopped", 3)
	stopped.ready(ctx)
	client := newBBSClient(s.http, stopped)
	late := lateWrites(ctx, t, client)
	s.awaitSync(ctx)
	tr.start(ctx, s.server("running", 0).ready(ctx))
	tr.awaitWrites(ctx, "v1", 20)

	raw := holdRaw(ctx, s)
	raw.try(ctx, t, 0)
	events := s.watchData(ctx, "v1")
	stopped.arm(ctx)
	for _, w := range late {
		w.send(ctx, client)
	}
	for range late {
		t.Logf("held: %s", stopped.awaitReached(ctx))
	}
	stopped.signal(ctx, syscall.SIGSTOP)
	s.begin(ctx)
	d := s.await(ctx, "the flip", flipped("v2"))
	tr.awaitWrites(ctx, "v2", 10)

	old := s.oldCollection(ctx, d)
	before := old.content(ctx, t)
	stopped.order(orderRelease)
	stopped.signal(ctx, syscall.SIGCONT)
	for _, w := range late {
		w.await(ctx, t)
	}
	raw.try(ctx, t, wrongUUID)
	s.refusesLate(ctx, d, "v1")
	if after := old.content(ctx, t); !bytes.Equal(before, after) {
		t.Errorf("%s holds other documents than before the stopped server went on", old.Name())
	}
	events.nothingAfterTheFence(ctx, t, raw.uuid)
	for _, w := range late {
		w.check(ctx, t, client)
		tr.processes.Put(w.guid, w.state)
	}
	stopped.ready(ctx)
	tr.servers, tr.client = append(tr.servers, stopped), newBBSClient(s.http, append(tr.servers, stopped)...)
	tr.settle(ctx, d)
}

// TestStoppedController stops a controller that has changes in its hand, read from v1 and
// about to be written to v2, for the whole of a switch that another one makes. When it
// goes on, MongoDB refuses them: v2 is written by clients by then.
func TestStoppedController(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}"})
	tr := newTraffic(ctx, s, 2*appClients*ownDocuments)
	stopped := s.controller("stopped", breakPoint{At: atApply, N: 1}).ready(ctx)
	s.controller("running", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "stopped", "running")
	s.awaitSync(ctx)
	tr.start(ctx, s.server("server", 0).ready(ctx))
	tr.awaitWrites(ctx, "v1", 20)
	stopped.arm(ctx)
	stopped.awaitReached(ctx)
	stopped.signal(ctx, syscall.SIGSTOP)
	s.forget(stopped)
	s.begin(ctx)
	d := s.await(ctx, "the flip", flipped("v2"))
	tr.awaitWrites(ctx, "v2", 50)
	stopped.order(orderRelease)
	stopped.signal(ctx, syscall.SIGCONT)
	select {
	case late := <-stopped.late:
		if !late.Fenced {
			t.Errorf("the late apply: %s, want it to be fenced", late.Late)
		}
		t.Logf("the late apply is told: %s", late.Late)
	case <-ctx.Done():
		t.Fatal("the late apply was not sent")
	}
	s.awaitShards(ctx, "stopped", "running")
	tr.awaitWrites(ctx, "v2", 80)
	tr.settle(ctx, d)
}
