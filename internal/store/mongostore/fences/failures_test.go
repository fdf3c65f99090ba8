package fences

import "testing"

// TestFailuresOf: a server that names an operation that we did not send is no proof of anything.
func TestFailuresOf(t *testing.T) {
	t.Parallel()
	sent := []identified{{Name: "a"}, {Name: "b"}}
	got, err := failuresOf(sent, []failedOp{{At: 1, Message: "x"}})
	if err != nil || len(got) != 1 || got["b"] == nil {
		t.Errorf("%v, %v", got, err)
	}
	for _, at := range []int{-1, 2} {
		if got, err := failuresOf(sent, []failedOp{{At: at}}); err == nil {
			t.Errorf("operation %d: %v", at, got)
		}
	}
}
