package shards_test

import (
	"testing"

	"dbcontroller.dev/shards"
)

func TestRanges(t *testing.T) {
	t.Parallel()
	for want, list := range map[string][]int{
		"": nil, "3": {3}, "3, 4": {4, 3}, "3-5": {5, 3, 4}, "0-2, 7, 9, 10, 12-15": {15, 0, 1, 2, 7, 9, 10, 12, 13, 14, 14},
	} {
		if got := shards.Ranges(list); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
}
