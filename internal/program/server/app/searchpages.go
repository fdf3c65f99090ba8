package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/internal/program/adminport"
)

// searchPages returns the pages of the operator port for the search indexes. load returns nil before
// the server runs, and without indexes.
func searchPages(load func() *search) []adminport.Page {
	of := func(serve func(s *search, w http.ResponseWriter, r *http.Request)) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s := load()
			if s == nil {
				s = &search{} // without any index
			}
			serve(s, w, r)
		})
	}
	return []adminport.Page{
		{Path: "/search", Least: access.Viewer, Handler: of((*search).show)},
		{Path: "/search/verify", Least: access.Operator, Changes: true, Handler: of((*search).verify)},
		{Path: "/search/rebuild", Least: access.Operator, Changes: true, Handler: of((*search).rebuild)},
	}
}

// indexStatus is the state of one index, for people.
type indexStatus struct {
	Version    string   `json:"version"`
	LagSeconds *float64 `json:"lagSeconds"` // null: not known yet, or records are missing
	Documents  uint64   `json:"documents"`
	Generation uint64   `json:"generation"`
	Scanning   bool     `json:"scanning"`
	Failed     int      `json:"failed"`
	Problem    string   `json:"problem,omitempty"`
}

// show answers with the state of all indexes.
func (s *search) show(w http.ResponseWriter, _ *http.Request) {
	all := []indexStatus{}
	for _, version := range slices.Sorted(maps.Keys(s.indexes)) {
		out := indexStatus{Version: version, Problem: "it is not open: the version has no data yet, or see the log"}
		if index, f, _ := s.indexes[version].now(); f != nil {
			st := f.Status()
			out.Generation, out.Scanning, out.Failed, out.Problem = st.Generation, st.Scan != nil, st.Failed, ""
			if lag, known := st.Lag(time.Now()); known {
				seconds := lag.Seconds()
				out.LagSeconds = &seconds
			}
			if st.Problem != nil {
				out.Problem = st.Problem.Error()
			}
			if n, err := index.Documents(); err == nil { // otherwise it closes now
				out.Documents = n
			}
		}
		all = append(all, out)
	}
	answer(w, map[string]any{"indexes": all})
}

// open returns the index that a request names with its Follower, or answers why there is none. closed
// is closed when the use of the index ends.
func (s *search) open(w http.ResponseWriter, r *http.Request) (version string, index sink.Index, f *sink.Follower, closed <-chan struct{}) {
	version = r.URL.Query().Get("version")
	x := s.indexes[version]
	if x == nil {
		http.Error(w, fmt.Sprintf("version=%q has no search index here, want one of %v", version, slices.Sorted(maps.Keys(s.indexes))), http.StatusBadRequest)
		return version, nil, nil, nil
	}
	if index, f, closed = x.now(); f == nil {
		http.Error(w, "the search index of "+version+" is not open: the version has no data yet, or see the log", http.StatusConflict)
	}
	return version, index, f, closed
}

// errClosed ends a comparison when the use of its index ends.
var errClosed = errors.New("the index was closed meanwhile: see the log")

// verify compares an index with all records, and answers with the result.
func (s *search) verify(w http.ResponseWriter, r *http.Request) {
	version, index, f, closed := s.open(w, r)
	if f == nil {
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-closed:
			cancel(errClosed)
		case <-ctx.Done():
		}
	}()
	report, err := f.Verify(ctx)
	if err != nil {
		s.indexes[version].doubt(index, err)
		http.Error(w, "the comparison has failed: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	different := []string{}
	for _, d := range report.Differences {
		different = append(different, fmt.Sprintf("%s %s: %s", d.Kind, d.Name, d.What))
	}
	answer(w, map[string]any{"version": version, "records": report.Records, "entries": report.Entries, "different": report.Found, "first": different})
}

// rebuild makes an index read all records again.
func (s *search) rebuild(w http.ResponseWriter, r *http.Request) {
	version, _, f, _ := s.open(w, r)
	if f == nil {
		return
	}
	s.indexes[version].rebuild()
	answer(w, map[string]any{"version": version, "rebuilding": true})
}

func answer(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(content) // an error means that the client has left
}
