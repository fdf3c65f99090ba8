package adapt

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestFillLooksAgain checks that a list that waited for another one does not read all names again, if
// that one found too many.
func TestFillLooksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newIndex("names", nil, &atomic.Int64{})
		if err := x.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		filled := make(chan error)
		go func() { filled <- x.fill(t.Context(), nil) }() // without an adapter it can read nothing
		synctest.Wait()
		x.large = true
		x.leave()
		if err := <-filled; !errors.Is(err, errNoIndex) {
			t.Errorf("%v, want that there is no index", err)
		}
		x.idle.Stop()
	})
}
