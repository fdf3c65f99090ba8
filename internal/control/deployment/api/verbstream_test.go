package api_test

import (
	"context"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"errors"
	"io"
	"testing"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/upgradestate"
)

// TestWatchSeesRollbackSafe: what is parked on the rollback, and a waiver, are news.
func TestWatchSeesRollbackSafe(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Flip(t)
	w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h2"}})
	a := serve(t, w)
	next, end, err := a.stream(t.Context(), "WatchDeployment", "{}")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	until := func(what string, ok func(safe bool, blocking string) bool) {
		t.Helper()
		for {
			var got struct {
				RollbackSafe struct {
					Safe     bool
					Blocking string
				}
			}
			if err := next(&got); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if ok(got.RollbackSafe.Safe, got.RollbackSafe.Blocking) {
				return
			}
		}
	}
	until("safe", func(safe bool, _ string) bool { return safe })
	if err := w.Store.Park(t.Context(), deploymenttest.Parked("2-v2-v1-h2", 0, 1)); err != nil {
		t.Fatal(err)
	}
	until("blocked", func(safe bool, blocking string) bool { return !safe && blocking == "1" })
	if _, err := w.Store.WaiveKind(t.Context(), "packages"); err != nil {
		t.Fatal(err)
	}
	until("safe again", func(safe bool, blocking string) bool { return safe && blocking == "0" })
}

// ask reads a stream whose messages are ignored to its end.
func (a served) ask(t *testing.T, method, body string) error {
	t.Helper()
	next, end, err := a.stream(t.Context(), method, body)
	if err != nil {
		return err
	}
	defer end()
	for {
		var message any
		if err := next(&message); err != nil {
			return err
		}
	}
}

func TestEstimateLoss(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serveWith(t, w, api.Config{Loss: lossOf{report: &pb.LossReport{Compared: 7, Changed: 2}}})
	if err := a.ask(t, "EstimateLoss", "{}"); err == nil || err.Error() != "failed_precondition: estimate loss: no switch was made yet, so there is no snapshot to return to" {
		t.Error(err)
	}
	w.Flip(t)
	next, end, err := a.stream(t.Context(), "EstimateLoss", "{}")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	var got struct {
		Compared string
		Report   *struct{ Compared, Changed, Confirm string }
	}
	for got.Report == nil {
		if err := next(&got); err != nil {
			t.Fatal(err)
		}
	}
	if got.Report.Changed != "2" || got.Report.Confirm != name+"/replicaSet/c2/mongo:dbc_v2" {
		t.Errorf("report %+v", got)
	}
	w.Apply(t, upgradestate.Complete{Version: "v1"})
	if err := a.ask(t, "EstimateLoss", "{}"); err == nil || err.Error() != "failed_precondition: estimate loss: v1 was retired, so no upgrade can return to it" {
		t.Error(err)
	}
}

// rehearser is a served.Rehearser that waits.
type rehearser struct {
	started, finish chan struct{}
	err             error
}

func (r *rehearser) Rehearse(ctx context.Context, req *pb.RehearseRequest, progress func(api.Work)) (*pb.RehearseReport, error) {
	progress(api.Work{Doing: "copies " + req.TargetVersion, Done: 3, Total: 10})
	r.started <- struct{}{}
	select {
	case <-r.finish:
		return &pb.RehearseReport{Ok: true}, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestOneRehearsalAtATime, and each ends with its report or what was wrong.
func TestOneRehearsalAtATime(t *testing.T) {
	t.Parallel()
	r := &rehearser{started: make(chan struct{}, 1), finish: make(chan struct{}, 1)}
	a := serveWith(t, deploymenttest.New(t).WithVersions(t), api.Config{Rehearser: r})
	next, end, err := a.stream(t.Context(), "Rehearse", `{"targetVersion": "v2"}`)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	<-r.started
	if err := a.ask(t, "Rehearse", "{}"); err == nil || err.Error() != "failed_precondition: rehearse: a rehearsal runs already: wait until it ends" {
		t.Error(err)
	}
	if err := a.ask(t, "Rehearse", `{"sample": -1}`); err == nil || err.Error() != `invalid_argument: sample "-1": want a number of records, or 0 for 1000` {
		t.Error(err)
	}
	if err := a.ask(t, "Rehearse", `{"limit_seconds": -1}`); err == nil || err.Error() != `invalid_argument: limit_seconds "-1": want a number of seconds up to a year, or 0 for a day` {
		t.Error(err)
	}
	r.finish <- struct{}{}
	var got struct {
		Report *struct{ Ok bool }
	}
	for got.Report == nil {
		if err := next(&got); err != nil {
			t.Fatal(err)
		}
	}
	if !got.Report.Ok {
		t.Errorf("%+v", got.Report)
	}
	if err := next(&got); !errors.Is(err, io.EOF) { // only then it is over
		t.Errorf("after the report: %v", err)
	}
	r.err = errors.New("no space is left")
	r.finish <- struct{}{}
	if err := a.ask(t, "Rehearse", "{}"); err == nil || err.Error() != "failed_precondition: rehearse: no space is left" {
		t.Error(err)
	}
}
