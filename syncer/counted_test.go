package syncer

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	us "dbcontroller.dev/upgradestate"
)

// TestCounted: an application that deletes all the time costs a line a minute, and each delete is in
// the count of a line.
func TestCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{tallies: map[string]tally{}}
		lines, sum := 0, 0
		for range 601 {
			if n := e.counted("late deletes", 3); n > 0 {
				lines++
				sum += n
			}
			time.Sleep(time.Second) // of the bubble
		}
		if lines != 11 || sum != 1803 {
			t.Errorf("%d lines about %d deletes, want 11 about 1803", lines, sum)
		}
		if n := e.counted("foreign writes", 2); n != 2 {
			t.Errorf("the first of another sort is logged as %d, want 2", n)
		}
	})
}

// TestForeignWritesNameTheRemedy: the way back may wait for ever for an application that goes on
// deleting in the ended version, so its reason says how to end that.
func TestForeignWritesNameTheRemedy(t *testing.T) {
	t.Parallel()
	e := &Engine{Parts: Parts{Direction: fromV1ToV2{}}, record: us.Deployment{CurrentVersion: "v1"}}
	if said := e.keepOut(); said != "" {
		t.Errorf("without a switch it says %q", said)
	}
	e.record.LastSwitch = &us.Switch{From: "v2", To: "v1"}
	for _, want := range []string{"stop what still writes or deletes in v2", "take away its right"} {
		if said := e.keepOut(); !strings.Contains(said, want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
}
