package terminal

import (
	"testing"
)

func TestNumbersForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := Count(n); got != want {
			t.Errorf("count(%d) is %s, want %s", n, got, want)
		}
	}
	for ms, want := range map[int64]string{0: "0 ms", 999: "999 ms", 1520: "1.5s", 61_000: "1m1s"} {
		if got := Millis(ms); got != want {
			t.Errorf("millis(%d) is %s, want %s", ms, got, want)
		}
	}
}
