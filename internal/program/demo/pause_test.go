package app

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, tc := range []struct {
		name string
		list []time.Duration
		p    int
		want time.Duration
	}{
		{"nothing", nil, 50, 0},
		{"one", []time.Duration{7}, 50, 7},
		{"median of two is the lower", []time.Duration{1, 2}, 50, 1},
		{"median", hundred, 50, 50},
		{"p99", hundred, 99, 99},
		{"max", hundred, 100, 100},
		{"p99 of few is the max", []time.Duration{1, 2, 3}, 99, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := percentile(tc.list, tc.p); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}

func TestPauseCountsWhatWasUnderWay(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	writes := []write{
		{due: at(0), acked: at(90), on: oldVersion},    // over before
		{due: at(95), acked: at(105), on: oldVersion},  // in flight at the start
		{due: at(120), acked: at(420), on: newVersion}, // held
		{due: at(200), acked: at(400), on: newVersion}, // the first on the new version
		{due: at(390), acked: at(500), on: newVersion}, // due within, late behind others
		{due: at(401), acked: at(410), on: newVersion}, // due afterwards
	}
	want := Pause{N: 4, P50: 110, P99: 300, Max: 300}
	if diff := cmp.Diff(want, pauseOf(underWay(writes, at(100), newVersion))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	slices.Reverse(writes)
	if diff := cmp.Diff(want, pauseOf(underWay(writes, at(100), newVersion))); diff != "" {
		t.Errorf("in another order (-want +got):\n%s", diff)
	}
	if got := pauseOf(underWay(writes[5:], at(100), newVersion)); got != (Pause{}) {
		t.Errorf("without a write on the new version: %+v", got)
	}
	if got := pauseOf(underWay(writes, time.Time{}, newVersion)); got != (Pause{}) {
		t.Errorf("without a switch: %+v", got)
	}
}

func TestScheduleIsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		stop := make(chan struct{})
		var due, sent []int64
		s := schedule{start: start, every: 10 * time.Millisecond, offset: 5 * time.Millisecond}
		s.run(t.Context(), stop, func(d time.Time) {
			due = append(due, d.Sub(start).Milliseconds())
			sent = append(sent, time.Since(start).Milliseconds())
			switch len(due) {
			case 2: // held up: what is due meanwhile is sent late, and counts from when it was due
				if err := sleep(context.Background(), 25*time.Millisecond); err != nil {
					t.Error(err)
				}
			case 6:
				close(stop)
			}
		})
		if diff := cmp.Diff([]int64{5, 15, 25, 35, 45, 55}, due); diff != "" {
			t.Errorf("due (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]int64{5, 15, 40, 40, 45, 55}, sent); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}
