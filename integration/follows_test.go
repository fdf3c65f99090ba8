package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/upgradestate"
)

// followingUpdates is booksUpdates with updates that begin by themselves.
var followingUpdates = strings.NewReplacer("references: new}", "references: new, follow: true}", "references: old}", "references: old, follow: true}").Replace(booksUpdates)

// TestReferencesFollow: one service gives its records other keys and switches under traffic, there
// and back. The references of the other service follow each time, although no controller of it runs
// at the switch, and each one that runs is killed in the middle. Nothing begins twice.
func TestReferencesFollow(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := newShelves(ctx, t, followingUpdates)
	w.run(ctx)
	w.waitsFor(ctx, "places-new", "a switch of "+w.places.name+" to v2")
	w.waitsFor(ctx, "places-old", "a switch of "+w.places.name+" to v1")
	// Slow enough for a kill in the middle of a pass: it has no more than some seconds of work.
	var rate int32 = 400
	if _, err := w.books.apis()[0].SetPace(ctx, connect.NewRequest(&dbv1.SetPaceRequest{MaxRate: &rate})); err != nil {
		t.Fatal(err)
	}
	w.killAll()
	w.places.beginTo(ctx, "v2")
	w.places.await(ctx, "the flip", flipped("v2"))
	first := w.books.controller("books-3", breakPoint{})
	began := w.books.await(ctx, "a pass that runs", func(d upgradestate.Deployment) bool { return d.Update != nil })
	w.books.kill(first)
	w.books.controller("books-4", breakPoint{}).ready(ctx)
	w.books.controller("books-5", breakPoint{}).ready(ctx)
	if began.Update.Name != "places-new" {
		t.Fatalf("%+v runs", began.Update)
	}
	w.ended(ctx, "places-new", began.Update.ID)
	w.followed(ctx, "places-new")
	w.stop()

	// A restart begins nothing: a controller has looked once it shows a condition.
	w.killAll()
	w.books.controller("books-6", breakPoint{}).ready(ctx)
	passes := w.passes(ctx)
	w.waitsFor(ctx, "places-old", "a switch of "+w.places.name+" to v1")
	if now := w.passes(ctx); !slices.Equal(now, passes) {
		t.Errorf("after a restart: passes %v, were %v", now, passes)
	}
	w.settled(ctx, "places-new", "v2")

	w.run(ctx)
	w.books.controller("books-7", breakPoint{}).ready(ctx)
	w.places.beginTo(ctx, "v1")
	w.places.await(ctx, "the flip back", flipped("v1"))
	w.followed(ctx, "places-old")
	w.stop()
	w.settled(ctx, "places-old", "v1")
	t.Logf("passes %v", w.passes(ctx))
}

// killAll kills all controllers of books.
func (w *shelves) killAll() {
	w.t.Helper()
	for _, c := range slices.Clone(w.books.controllers) {
		w.books.kill(c)
	}
}

// waitsFor waits until a controller shows this condition of a task.
func (w *shelves) waitsFor(ctx context.Context, task, what string) {
	w.t.Helper()
	eventually(ctx, w.t, task+" waits for "+what, func() error {
		err := errors.New("no controller listens")
		for _, api := range w.books.apis() {
			var res *connect.Response[dbv1.Deployment]
			if res, err = api.GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{})); err != nil {
				continue
			}
			for _, f := range res.Msg.GetFollowing() {
				if f.GetTask() == task && f.GetWaitsFor() == what {
					return nil
				}
			}
			err = fmt.Errorf("it shows %v", res.Msg.GetFollowing())
		}
		return err
	})
}

// ended waits for the end of a pass, without failures.
func (w *shelves) ended(ctx context.Context, task, id string) {
	w.t.Helper()
	_, outcome := w.books.ended(ctx, id)
	w.t.Logf("%s: %s", task, outcome)
	if !strings.HasPrefix(outcome, "done; ") {
		w.t.Errorf("the pass of %s ended as %q", task, outcome)
	}
}

// followed waits until a task has followed the latest switch of places.
func (w *shelves) followed(ctx context.Context, task string) {
	w.t.Helper()
	to, err := w.places.record.Get(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	d := w.books.await(ctx, task+" has followed", func(d upgradestate.Deployment) bool {
		f, _ := upgradestate.FollowingOf(d, task)
		return d.Update == nil && f.Switch == to.LastSwitch.ID && f.Outcome != "" && !f.Again
	})
	f, _ := upgradestate.FollowingOf(d, task)
	if w.t.Logf("%+v", f); f.Outcome != "done" || f.Changed == 0 || f.Failed != 0 {
		w.t.Errorf("%s followed as %+v", task, f)
	}
}

// passes are the passes that have begun so far, each with its number. No number of a switch may
// occur twice.
func (w *shelves) passes(ctx context.Context) []string {
	w.t.Helper()
	d, err := w.books.record.Get(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, e := range d.History {
		if _, follows, ok := strings.Cut(e.Detail, ", follows "); e.What == "update" && ok {
			if slices.Contains(all, follows) {
				w.t.Errorf("%s began twice: %v", follows, d.History)
			}
			all = append(all, follows)
		}
	}
	return all
}
