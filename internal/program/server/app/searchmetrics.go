package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// searchMetrics collects the state of the search indexes.
type searchMetrics struct {
	search func() *search // returns nil before the server runs, and without indexes
}

var (
	searchLag       = prometheus.NewDesc("dbcontroller_server_search_lag_seconds", "How far the search index is behind; -1: not known yet, or records are missing.", []string{"version"}, nil)
	searchDocuments = prometheus.NewDesc("dbcontroller_server_search_documents", "Documents in the search index, with tombstones.", []string{"version"}, nil)
	searchFailed    = prometheus.NewDesc("dbcontroller_server_search_failed_records", "Records whose document cannot be made. A search finds them by their names only.", []string{"version"}, nil)
	searchScanning  = prometheus.NewDesc("dbcontroller_server_search_scanning", "1 while the search index reads all records.", []string{"version"}, nil)
)

func (m searchMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{searchLag, searchDocuments, searchFailed, searchScanning} {
		ch <- d
	}
}

func (m searchMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.search()
	if s == nil {
		return
	}
	for version, x := range s.indexes {
		gauge := func(d *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, version)
		}
		index, f, _ := x.now()
		if f == nil {
			gauge(searchLag, -1)
			continue
		}
		st := f.Status()
		if lag, known := st.Lag(time.Now()); known {
			gauge(searchLag, lag.Seconds())
		} else {
			gauge(searchLag, -1)
		}
		gauge(searchFailed, float64(st.Failed))
		scanning := 0.0
		if st.Scan != nil {
			scanning = 1
		}
		gauge(searchScanning, scanning)
		// An index that closes meanwhile has no count.
		if n, err := index.Documents(); err == nil {
			gauge(searchDocuments, float64(n))
		}
	}
}
