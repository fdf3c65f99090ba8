package distance_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/engine/distance"
	"dbcontroller.dev/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database answers each question after the next of its times.
type database struct {
	times []time.Duration
	asked int
}

func (d *database) Position(context.Context) (record.Position, error) {
	d.asked++
	if d.asked > len(d.times) {
		return record.Position{}, errors.New("it is asked no further")
	}
	time.Sleep(d.times[d.asked-1]) // of the bubble
	return record.Position{}, nil
}

// TestDistance: a near database is asked until it answers soon, and a slow answer alone does not make
// it far.
func TestDistance(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		times []time.Duration
		want  time.Duration
		asked int
	}{
		"near":                     {[]time.Duration{ms}, ms, 1},
		"near with one late reply": {[]time.Duration{300 * ms, ms}, ms, 2},
		"far":                      {[]time.Duration{300 * ms, 100 * ms, 110 * ms, 120 * ms, 130 * ms}, 100 * ms, 5},
		"away":                     {nil, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &database{times: tc.times}
				got, err := distance.Of(t.Context(), db)
				if got != tc.want || db.asked != tc.asked || (err != nil) != (len(tc.times) == 0) {
					t.Errorf("%v after %d questions, %v; want %v after %d", got, db.asked, err, tc.want, tc.asked)
				}
				near := &database{times: []time.Duration{ms / 2}}
				db.asked = 0
				if got, err := distance.Farther(t.Context(), near, db); len(tc.times) > 0 && (got != tc.want || err != nil) {
					t.Errorf("the farther one of two: %v, %v", got, err)
				}
			})
		})
	}
}
