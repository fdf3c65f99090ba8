package cell

import (
	"net/http"

	"dbcontroller.dev/examples/bbs/outbound"
)

// Handler returns the cell's stop endpoint. A call stops an instance or a task at once, and makes
// the cell report it. What the cell does not run is no error: it has stopped already.
func (c *Cell) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(outbound.StopPattern, func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		for key, run := range c.runs {
			if run.GUID == r.PathValue("instance_guid") {
				delete(c.runs, key)
			}
		}
		c.mu.Unlock()
		c.accept(w)
	})
	mux.HandleFunc(outbound.CancelPattern, func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		// An outcome that waits for its report stays: the service decides what it is worth.
		if t := c.tasks[r.PathValue("task_guid")]; t != nil && !t.done {
			t.done, t.failed, t.reason = true, true, "stopped"
		}
		c.mu.Unlock()
		c.accept(w)
	})
	return mux
}

func (c *Cell) accept(w http.ResponseWriter) {
	select {
	case c.wake <- struct{}{}:
	default: // it is about to poll anyway
	}
	w.WriteHeader(http.StatusAccepted)
}
