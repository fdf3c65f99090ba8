package moves_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/moves"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

// TestMover: movers of three regions bring records there, on and back, and hold what cannot move.
func TestMover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, world){
		"there, on and back": func(t *testing.T, w world) {
			from := "us"
			for i, to := range []string{"eu", "asia", "us", "eu", "us"} {
				title := fmt.Sprint("title ", i)
				if err := w[from].put("b", title, to); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if got := w.states("b"); got != to+" arrived "+title {
					t.Fatalf("after the move to %s: %s", to, got)
				}
				for _, p := range w {
					if rec, err := p.clients.Get(t.Context(), "books", "b"); err != nil || rec.Doc.Lookup("title").StringValue() != title {
						t.Errorf("%s shows %v, %v", p.name, rec, err)
					}
					if got := p.waits(); got != "" || p.asked != 0 {
						t.Errorf("%s still waits: %s, and asked %d times", p.name, got, p.asked)
					}
				}
				from = to
			}
		},
		"the name is taken": func(t *testing.T, w world) {
			w["eu"].data.Put(t, "books", bson.D{{Key: "_id", Value: "b"}, {Key: "title", Value: "mine"}})
			if err := w["us"].put("b", "old", "eu"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := w.states("b"); got != "eu  mine, us leaving old" {
				t.Errorf("it is %s", got)
			}
			if here, there := w["us"].waits(), w["eu"].waits(); here != "books eu in=false 1 b: waits for region eu" || there != "books us in=true 1 b: this region has a record of that name" {
				t.Errorf("us shows %s, eu shows %s", here, there)
			}
		},
		"it is refused": func(t *testing.T, w world) {
			w["eu"].accept = errors.New("too old")
			if err := w["us"].put("b", "old", "eu"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := w["eu"].waits(); got != "books us in=true 1 b: this region refuses it: too old" {
				t.Errorf("eu shows %s", got)
			}
			if err := w["us"].put("b", "kept", "us"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := w.states("b") + w["us"].waits() + w["eu"].waits(); got != "us  kept" {
				t.Errorf("after the cancel: %s", got)
			}
		},
		"a cancel after the reservation": func(t *testing.T, w world) {
			w["us"].cut("eu", true)
			if err := w["us"].put("b", "old", "eu"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if got := w.states("b"); got != "eu arriving old, us leaving old" {
				t.Fatalf("it is %s", got)
			}
			if err := w["us"].put("b", "kept", "us"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := w.states("b"); got != "us  kept" {
				t.Errorf("after the cancel: %s", got)
			}
		},
		"a delete before the old owner knows": func(t *testing.T, w world) {
			w["us"].cut("eu", true)
			if err := w["us"].put("b", "old", "eu"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // eu reserves it
			w["eu"].cut("us", true)
			w["us"].cut("eu", false)
			time.Sleep(time.Minute) // us gives it away
			w["us"].cut("eu", true)
			w["eu"].cut("us", false)
			time.Sleep(time.Minute)
			if got := w.states("b"); got != "eu arrived old, us left old" {
				t.Fatalf("it is %s", got)
			}
			gone := func() error {
				return w["eu"].clients.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b"), Exists: true}})
			}
			if err := gone(); reasonOf(err) != refusal.Moving {
				t.Errorf("the delete is answered with %v", err)
			}
			if err := w["eu"].put("b", "on", "asia"); reasonOf(err) != refusal.Moving {
				t.Errorf("the next move is answered with %v", err)
			}
			if err := w["eu"].put("b", "new", "eu"); err != nil {
				t.Errorf("a write: %v", err)
			}
			w["us"].cut("eu", false)
			time.Sleep(2 * time.Minute)
			if err := gone(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if got := w.states("b") + w["us"].waits(); got != "" {
				t.Errorf("after the delete: %s", got)
			}
		},
		"the new region loses its part, and it is taken back": func(t *testing.T, w world) {
			lose(t, w)
			if got, want := w["us"].waits(), "books eu in=false 1 b: region eu has no record of it: delete it, or set its region to us"; got != want {
				t.Errorf("us shows %s", got)
			}
			if err := w["us"].put("b", "frozen", "eu"); reasonOf(err) != refusal.Moving {
				t.Errorf("a write is answered with %v", err)
			}
			if rec, err := w["eu"].clients.Get(t.Context(), "books", "b"); err != nil || rec.Doc.Lookup("title").StringValue() != "old" {
				t.Errorf("eu shows %v, %v", rec, err)
			}
			if err := w["us"].put("b", "kept", "us"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := w.states("b") + w["us"].waits() + w["eu"].waits(); got != "us  kept" {
				t.Errorf("after it was taken back: %s", got)
			}
			if err := w["us"].put("b", "again", "eu"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := w.states("b"); got != "eu arrived again" {
				t.Errorf("after the next move: %s", got)
			}
		},
		"the new region loses its part, and it is deleted": func(t *testing.T, w world) {
			lose(t, w)
			if err := w["us"].clients.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b"), Exists: true}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := w.states("b") + w["us"].waits() + w["eu"].waits(); got != "" {
				t.Errorf("after the delete: %s", got)
			}
		},
		"the new region loses its part and gets it back": func(t *testing.T, w world) {
			lost := lose(t, w)
			w["eu"].data.Put(t, "books", lost)
			time.Sleep(time.Minute)
			if got := w.states("b") + w["us"].waits() + w["eu"].waits(); got != "eu arrived old" {
				t.Errorf("after it is back: %s", got)
			}
		},
		"the old region has an older state again": func(t *testing.T, w world) {
			for _, p := range []string{"eu", "asia"} {
				w["us"].cut(p, true)
			}
			if err := w["us"].put("b", "old", "eu"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			before, err := w["us"].data.Get(t.Context(), "books", "b")
			if err != nil {
				t.Fatal(err)
			}
			w["us"].cut("eu", false)
			time.Sleep(time.Second)
			if got := w.states("b"); got != "eu arrived old" {
				t.Fatalf("it is %s", got)
			}
			if err := w["us"].data.Write(t.Context(), []record.Mutation{{Kind: "books", Key: before.Key, Doc: before.Doc, Absent: true}}); err != nil {
				t.Fatal(err)
			}
			if err := w["us"].put("b", "mine", "us"); reasonOf(err) != refusal.Moving {
				t.Errorf("the cancel is answered with %v", err)
			}
			time.Sleep(time.Minute)
			if got := w.states("b") + w["us"].waits() + w["eu"].waits(); got != "eu arrived old" {
				t.Errorf("it is %s", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				stop := w.run(t.Context())
				defer stop()
				if err := w["us"].put("b", "first", "us"); err != nil && !strings.Contains(name, "taken") {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				test(t, w)
			})
		})
	}
}

// TestHangingRegion: a region that does not answer delays neither the moves between others, nor questions to
// them.
func TestHangingRegion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		us := w["us"]
		us.hangs["eu"] = true
		for i := range 40 {
			m := region.Move{Step: region.Left, Region: "eu", ID: region.NewID("v1", time.Now()), Nonce: "n"}
			us.data.Put(t, "books", bson.D{{Key: "_id", Value: fmt.Sprint("held ", i)}, {Key: "home", Value: "eu"}, {Key: "move", Value: m.String()}})
		}
		m := region.Move{Step: region.Left, Region: "asia", ID: region.NewID("v1", time.Now()), Nonce: "n"}
		us.data.Put(t, "books", bson.D{{Key: "_id", Value: "c"}, {Key: "home", Value: "asia"}, {Key: "move", Value: m.String()}})
		stop := w.run(t.Context())
		defer stop()
		if err := us.put("b", "first", "us"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if got := w.states("c"); got != "us missing " {
			t.Errorf("asia is not asked: %s", got)
		}
		for i, to := range []string{"asia", "us", "asia"} {
			from := us
			if i == 1 {
				from = w["asia"]
			}
			if err := from.put("b", fmt.Sprint(i), to); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if got, want := w.states("b"), fmt.Sprint(to, " arrived ", i); got != want {
				t.Errorf("a second after the move to %s: %s", to, got)
			}
		}
		if got := us.waits(); !strings.Contains(got, "books eu in=false 40") {
			t.Errorf("us shows %s", got)
		}
		us.mu.Lock()
		us.hangs["eu"] = false
		us.mu.Unlock()
	})
}

// TestLostAnswers: a mover that gets no answers finds out by reading.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, p := range w {
			p.lossy = true
		}
		stop := w.run(t.Context())
		defer stop()
		if err := errors.Join(w["us"].put("b", "first", "us"), w["us"].put("b", "there", "eu")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := w["eu"].put("b", "back", "us"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := w.states("b") + w["us"].waits() + w["eu"].waits(); got != "us arrived back" {
			t.Errorf("it is %s", got)
		}
	})
}

// TestOlderVersion: a record waits for a region of an older version, whose form could lack fields.
func TestOlderVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w["us"].version = "v2"
		stop := w.run(t.Context())
		defer stop()
		if err := errors.Join(w["us"].put("b", "first", "us"), w["us"].put("b", "new", "eu"), w["eu"].put("c", "first", "eu"), w["eu"].put("c", "old", "us")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := w.states("b") + ", " + w.states("c"); got != "us leaving new, us arrived old" {
			t.Errorf("it is %s", got)
		}
		if got := w["eu"].waits(); !strings.Contains(got, "waits until this region is on v2") {
			t.Errorf("eu shows %s", got)
		}
	})
}

// TestQuestions: a question in another version is answered by a look at all records; one that makes no
// sense is refused.
func TestQuestions(t *testing.T) {
	t.Parallel()
	data := newStore(t)
	const id = "v1.1.i"
	data.Put(t, "books", bson.D{{Key: "_id", Value: "a"}, {Key: "move", Value: region.Move{Step: region.Leaving, Region: "eu", ID: id}.String()}})
	h := moves.Handler(data, "us", "v2", map[string]moves.Kind{"books": {Kind: decl}}, http.NotFoundHandler())
	client := &http.Client{Transport: handled{h}}
	own := region.Move{Step: region.Arriving, Region: "us", ID: id, Nonce: "n"}
	for what, c := range map[string]struct {
		from string
		q    moves.Question
		want bool
	}{
		"by name":            {"eu", moves.Question{Kind: "books", Version: "v2", Name: "a", Own: own}, true},
		"another name":       {"eu", moves.Question{Kind: "books", Version: "v2", Name: "b", Own: own}, false},
		"another region":     {"asia", moves.Question{Kind: "books", Version: "v2", Name: "a", Own: own}, false},
		"in another version": {"eu", moves.Question{Kind: "volumes", Version: "v1", Name: "b", Own: own}, true},
		"another move":       {"eu", moves.Question{Kind: "volumes", Version: "v1", Name: "a", Own: region.Move{Step: region.Arriving, Region: "us", ID: "v1.2.i", Nonce: "n"}}, false},
	} {
		if stands, err := moves.Ask(t.Context(), client, "http://us", "us", c.from, c.q); err != nil || stands != c.want {
			t.Errorf("%s: %v, %v", what, stands, err)
		}
	}
	if _, err := moves.Ask(t.Context(), client, "http://us", "asia", "eu", moves.Question{Kind: "books", Version: "v2", Name: "b", Own: own}); err == nil || !strings.Contains(err.Error(), `region "us" answers at the endpoint of region asia`) {
		t.Errorf("another region answers: %v", err)
	}
	if _, err := moves.Ask(t.Context(), client, "http://us", "us", "eu", moves.Question{Kind: "books", Version: "v2", Name: "a"}); err == nil {
		t.Error("a question without a move is answered")
	}
	if _, err := moves.Ask(t.Context(), &http.Client{Transport: handled{http.NotFoundHandler()}}, "http://us", "us", "eu", moves.Question{Own: own}); err == nil {
		t.Error("a server that knows no moves answers")
	}
	res, err := client.Post("http://us"+moves.Path, "application/json", strings.NewReader("no JSON"))
	if err != nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("no JSON: %v, %v", res, err)
	}
	_ = res.Body.Close()
}

var _ moves.Data = (*vrunner.View)(nil)
