package mongostore

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// status is a reply of replSetGetStatus, in which an operation is the second of its time.
func status(t *testing.T, now float64, term int64, applied, committed uint32) bson.Raw {
	t.Helper()
	op := func(s uint32) bson.D {
		return bson.D{{Key: "ts", Value: bson.Timestamp{T: s, I: 1}}, {Key: "t", Value: term}}
	}
	raw, err := bson.Marshal(bson.D{
		{Key: "date", Value: time.UnixMilli(int64(now * 1000))},
		{Key: "optimes", Value: bson.D{
			{Key: "lastCommittedOpTime", Value: op(committed)}, {Key: "lastCommittedWallTime", Value: time.Unix(int64(committed), 0)},
			{Key: "appliedOpTime", Value: op(applied)}, {Key: "lastAppliedWallTime", Value: time.Unix(int64(applied), 0)},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// look is a look at a moment, in seconds, and the lag that it must show.
type look struct {
	now                float64
	applied, committed uint32
	want               time.Duration
}

func TestLag(t *testing.T) {
	t.Parallel()
	for name, looks := range map[string][]look{
		"idle, all are where the primary is": {{1000, 990, 990, 0}, {1009, 990, 990, 0}, {1_000_000, 990, 990, 0}},
		"idle, on its way to a majority":     {{1000.05, 1000, 990, 50 * time.Millisecond}, {1001, 1000, 1000, 0}},
		"a write a day":                      {{100_000.02, 100_000, 13_600, 20 * time.Millisecond}, {100_001, 100_000, 100_000, 0}},
		"stopped, without another write":     {{1000, 1000, 990, 0}, {1003, 1000, 990, 3 * time.Second}, {1012, 1010, 990, 12 * time.Second}},
		"stopped, with writes": {
			{1000, 1000, 1000, 0}, {1001, 1001, 1000, 0}, {1002, 1002, 1000, time.Second}, {1012, 1012, 1000, 11 * time.Second},
			{1013, 1013, 1012, 0}, {1014, 1014, 1014, 0},
		},
		"a constant distance":       {{1000, 1000, 995, 0}, {1003, 1003, 998, 3 * time.Second}, {1005, 1005, 1000, 2 * time.Second}, {1008, 1008, 1003, 3 * time.Second}},
		"a clock that was set back": {{1000, 1003, 990, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var l lag
			for _, k := range looks {
				if got := l.look(status(t, k.now, 1, k.applied, k.committed)); got != k.want {
					t.Errorf("at %g: %s, want %s", k.now, got, k.want)
				}
			}
		})
	}
}

// TestLagOfHours is remembered in few places, and told as exactly as it has to be.
func TestLagOfHours(t *testing.T) {
	t.Parallel()
	var l lag
	for now := uint32(1000); now < 11_000; now++ {
		l.look(status(t, float64(now), 1, now, 999))
	}
	if n := len(l.lacked); n > 200 {
		t.Errorf("%d looks are remembered", n)
	}
	if got := l.look(status(t, 11_000, 1, 11_000, 999)); got != 10_000*time.Second {
		t.Errorf("the lag is %s", got)
	}
	if got := l.look(status(t, 11_001, 1, 11_001, 6000)); got < 4500*time.Second || got > 5001*time.Second {
		t.Errorf("halfway, the lag is %s", got)
	}
}

// TestLagAfterFailover: what the earlier primary alone had is no longer waited for.
func TestLagAfterFailover(t *testing.T) {
	t.Parallel()
	var l lag
	l.look(status(t, 1000, 1, 1000, 990))
	if got := l.look(status(t, 1020, 2, 999, 999)); got != 0 {
		t.Errorf("the lag is %s", got)
	}
	if got := l.look(bson.Raw{5, 0, 0, 0, 0}); got != 0 || len(l.lacked) > 0 {
		t.Errorf("of a reply that does not tell: %s", got)
	}
}
