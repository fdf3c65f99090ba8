package config

import (
	"path/filepath"
	"time"
)

// Defaults of the search indexes.
const (
	DefaultSearchLag  = 5 * time.Second
	DefaultSearchWait = time.Minute
)

// Search configures the indexes for full-text search of servers. The service declares what is in
// them. The zero value means that servers have none.
type Search struct {
	On bool // the file has the section
	// Folder holds one index for each version, of one server. Empty: a temporary one, which each
	// start of the server fills again.
	Folder string
	Lag    time.Duration // no search is answered from an index that is further behind
	// Wait is the longest time for which a switch waits for the index of the target, once everything
	// else is ready. 0: it does not wait.
	Wait time.Duration
}

func (r *reader) search(n node) Search {
	if n.value == nil {
		return Search{}
	}
	m := r.mapping(n, "folder", "lag", "wait")
	s := Search{On: true, Lag: r.duration(m["lag"], DefaultSearchLag, 3*time.Second, 10*time.Minute),
		Wait: r.duration(m["wait"], DefaultSearchWait, 0, 24*time.Hour)}
	s.Folder, _ = r.text(m["folder"])
	if s.Folder != "" && !filepath.IsAbs(s.Folder) {
		s.Folder = filepath.Join(r.folder, s.Folder)
	}
	return s
}
