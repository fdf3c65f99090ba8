package task

import (
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/record"
)

// TestCallback: a callback gets the task until it answers 2xx or 4xx, and never again. Redirects are not
// followed, and an answer without an end does no harm.
func TestCallback(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		elsewhere := receive(t, answering(200))
		r := receive(t, answering(500), answering(503),
			func(w http.ResponseWriter, req *http.Request) {
				http.Redirect(w, req, elsewhere.url, http.StatusTemporaryRedirect)
			},
			func(w http.ResponseWriter, req *http.Request) { panic(http.ErrAbortHandler) },
			func(w http.ResponseWriter, req *http.Request) {
				chunk := make([]byte, 1<<20)
				for req.Context().Err() == nil {
					if _, err := w.Write(chunk); err != nil {
						return
					}
				}
			},
		)
		w.run(quick)
		w.completed("g", r.url)
		w.await("posted", "g", gone)
		posts := r.posts()
		want := regexp.MustCompile(`^POST application/json \{"task_guid":"g","domain":"cf","failed":false,"failure_reason":"","result":"42","annotation":"note","created_at_ms":\d+\}$`)
		if len(posts) != 5 || !want.MatchString(posts[0]) || posts[4] != posts[0] {
			t.Errorf("posts are %q", posts)
		}
		if n := len(elsewhere.posts()); n != 0 {
			t.Errorf("a redirect was followed %d times", n)
		}
		// Another task goes through the same states, and more checks of all tasks. The first one stays gone.
		w.completed("h", r.url)
		w.await("posted", "h", gone)
		if n := len(r.posts()); n != 6 {
			t.Errorf("%d posts in the end", n)
		}
	})
}

// TestCallbackRefuses: a callback that refuses a task has got it.
func TestCallbackRefuses(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		for _, status := range []int{400, 404, 499} {
			r := receive(t, answering(502), answering(status), answering(200))
			guid := fmt.Sprint("g", status)
			stop := w.run(quick)
			w.completed(guid, r.url)
			w.await("refused", guid, gone)
			stop()
			if n := len(r.posts()); n != 2 {
				t.Errorf("%d posts to a callback that answers %d", n, status)
			}
		}
	})
}

// TestCallbackTimesOut: an answer that never comes is no answer. Here and below, a busy machine may
// time out further posts.
func TestCallbackTimesOut(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		cfg := quick
		cfg.CallbackTimeout = 50 * time.Millisecond
		r := receive(t, func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }, answering(204))
		w.run(cfg)
		w.completed("g", r.url)
		w.await("posted", "g", gone)
		if n := len(r.posts()); n < 2 {
			t.Errorf("%d posts", n)
		}
	})
}

// TestCallbackAfterACrash: the controller ends in the middle of a post, after it has stored the
// attempt. The next one posts again.
func TestCallbackAfterACrash(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		cfg := quick
		cfg.CallbackTimeout, cfg.ResolveTimeout = 100*time.Millisecond, 300*time.Millisecond
		begun := make(chan struct{}, 1)
		r := receive(t, func(_ http.ResponseWriter, req *http.Request) { begun <- struct{}{}; <-req.Context().Done() }, answering(200))
		long := cfg
		long.CallbackTimeout = time.Hour
		stop := w.run(long)
		w.completed("g", r.url)
		<-begun
		if got := w.get("g"); got.GetState() != string(Resolving) || got.GetCallbackAttempts() != 1 {
			t.Errorf("during the post it is %v", got)
		}
		w.store.BeforeWrite(func([]record.Mutation) error { return record.ErrUnavailable }) // a dead process writes nothing
		stop()
		w.store.BeforeWrite(nil)
		if got := w.get("g"); got.GetState() != string(Resolving) {
			t.Errorf("after the crash it is %v", got)
		}
		w.run(cfg)
		w.await("posted again", "g", gone)
		if n := len(r.posts()); n < 2 {
			t.Errorf("%d posts", n)
		}
	})
}

// TestCallbackExpires: a task whose callback never succeeds is deleted in the end.
func TestCallbackExpires(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		cfg := quick
		cfg.ExpireCompleted = 3 * time.Second
		r := receive(t, answering(503))
		w.run(cfg)
		w.completed("g", r.url)
		w.completed("none", "")
		w.await("expired", "g", gone)
		w.await("expired without a callback", "none", gone)
		if n := len(r.posts()); n < 2 {
			t.Errorf("%d posts", n)
		}
	})
}

// TestFencedPostsNothing: a server that cannot store the attempt does not post.
func TestFencedPostsNothing(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		r := receive(t, answering(200))
		w.completed("g", r.url)
		var refused atomic.Int64
		w.store.BeforeWrite(func([]record.Mutation) error { refused.Add(1); return record.ErrFenced })
		stop := w.run(quick)
		for until := time.Now().Add(patience); refused.Load() < 3; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("nothing was tried")
			}
		}
		stop()
		if n := len(r.posts()); n != 0 {
			t.Errorf("%d posts of a fenced server", n)
		}
		w.store.BeforeWrite(nil)
		w.run(quick)
		w.await("posted by the next one", "g", gone)
	})
}

// TestSuccessThatIsNotStored: a post whose success could not be stored is repeated.
func TestSuccessThatIsNotStored(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		cfg := quick
		cfg.CallbackTimeout, cfg.ResolveTimeout = 100*time.Millisecond, 200*time.Millisecond
		r := receive(t, answering(200))
		var lost atomic.Bool
		w.store.BeforeWrite(func(ms []record.Mutation) error {
			if ms[0].Doc == nil && !lost.Swap(true) {
				return record.ErrUnavailable
			}
			return nil
		})
		w.run(cfg)
		w.completed("g", r.url)
		w.await("posted again", "g", gone)
		if n := len(r.posts()); n < 2 {
			t.Errorf("%d posts", n)
		}
	})
}

// TestTwoLeaders: leaders may overlap, and still each task is posted once.
func TestTwoLeaders(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		r := receive(t, answering(200))
		w.run(quick)
		w.run(quick)
		const many = 60
		for i := range many {
			w.completed(fmt.Sprint("g", i), r.url)
		}
		for i := range many {
			w.await("posted", fmt.Sprint("g", i), gone)
		}
		once := map[string]int{}
		for _, p := range r.posts() {
			once[p]++
		}
		if n := len(r.posts()); n != many || len(once) != many {
			t.Errorf("%d posts of %d tasks", n, many)
		}
	})
}

// TestCallbacksAreBounded: callbacks that hang take no more than their share, and hold up nothing
// else.
func TestCallbacksAreBounded(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		var now, most atomic.Int64
		hanging := make(chan struct{})
		release := sync.OnceFunc(func() { close(hanging) })
		r := receive(t, func(http.ResponseWriter, *http.Request) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-hanging
		})
		cfg := quick
		cfg.ExpirePending = 300 * time.Millisecond
		t.Cleanup(release) // the receiver closes after its handlers have ended
		for i := range 3 * maxCalls {
			w.completed(fmt.Sprint("g", i), r.url)
		}
		w.run(cfg)
		w.desire("pending", "")
		w.await("given up meanwhile", "pending", func(t *bbsv1.Task) bool {
			return t.GetState() == string(Completed) && t.GetFailed() && t.GetFailureReason() == notStarted
		})
		release()
		for i := range 3 * maxCalls {
			w.await("posted", fmt.Sprint("g", i), gone)
		}
		if most.Load() > maxCalls {
			t.Errorf("%d posts at a time", most.Load())
		}
	})
}
