package identity_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
)

// unmarked is a database whose marks somebody has removed.
type unmarked struct{ record.Marker }

func (unmarked) Marks(context.Context) ([]record.Mark, error) { return nil, nil }

// TestMarkIsGone: a login that removes the mark of a version stops the processes that start, and the
// streams of controllers. Without the mark nothing shows that the database is older than etcd.
func TestMarkIsGone(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		w := newWorld(t, record.FenceView)
		w.ok(w.check())
		markers := w.markers()
		markers[version] = unmarked{markers[version]}
		for what, check := range map[string]func() error{
			"a stream": func() error { return identity.Check(t.Context(), w, markers) },
			"a start": func() error {
				return identity.Belongs(t.Context(), w, errNone, deploymentName, version, markers[version])
			},
		} {
			err := check()
			var mismatch *identity.MismatchError
			if !errors.As(err, &mismatch) || mismatch.Lost || !strings.Contains(err.Error(), "it no longer has a mark of "+version) {
				t.Errorf("%s of %s: %v", what, version, err)
			}
		}
	}
}
