package main

import (
	"strings"
	"testing"

	"dbcontroller.dev/integration/bench/figures"
	"dbcontroller.dev/integration/localmongo/mongotest"
)

// TestStoreLatency: the store is measured next to the driver, which finds what both are to read.
func TestStoreLatency(t *testing.T) {
	t.Parallel()
	b := &bench{settings: settings{size: 500, calls: 60}, from: &cluster{mongotest.Server(t), mongotest.Client(t)}}
	b.rows = figures.Rows()
	if err := storeLatency(t.Context(), b, 0); err != nil {
		t.Fatal(err)
	}
	f := b.file()
	for _, sc := range scenarios() {
		if sc.name != "store in a server" {
			continue
		}
		for _, row := range sc.rows {
			if r, _ := f.Row(row); len(r.Runs) != 1 || !strings.Contains(r.Measured, "ms") {
				t.Errorf("%s: %v, %q", row, r.Runs, r.Measured)
			}
		}
	}
}
