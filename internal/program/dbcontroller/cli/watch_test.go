package cli

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

// quietly is a controller whose stream shows what there is and then nothing more, as one does
// that has frozen.
type quietly struct {
	fake
	asked atomic.Int64
	shows []*dbv1.Deployment // to the first who watches, the second ...
}

func (q *quietly) WatchDeployment(ctx context.Context, _ *connect.Request[dbv1.WatchDeploymentRequest], s *connect.ServerStream[dbv1.Deployment]) error {
	n := int(q.asked.Add(1)) - 1
	if n < len(q.shows) {
		if err := s.Send(q.shows[n]); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestWatchAsksAgainWhereNothingComes: somebody who froze is not waited for without end.
func TestWatchAsksAgainWhereNothingComes(t *testing.T) {
	t.Parallel()
	inTime(t, func(timeout string) error {
		q := &quietly{shows: []*dbv1.Deployment{clitest.Sample(), clitest.Sample(), clitest.Switched()}}
		out, diag, err := run(t, "watch", "deployment", "--until-version", "v2", "--timeout", timeout, "--server", serveAPI(t, q))
		if err != nil || q.asked.Load() != 3 || strings.Count(out, "\n") != 2 || diag != "" {
			return fmt.Errorf("with %s: %w, asked %d times, printed %q, diagnostics %q", timeout, err, q.asked.Load(), out, diag)
		}
		return nil
	})
	_, _, err := run(t, "watch", "deployment", "--timeout", "200ms", "--server", serveAPI(t, &quietly{}))
	if exit.Of(err) != exit.Timeout {
		t.Errorf("one that never answers: %v", err)
	}
}

// TestWatchEndsWithTheUpgrade: a version that is not reached any longer is not waited for.
func TestWatchEndsWithTheUpgrade(t *testing.T) {
	t.Parallel()
	aborted := clitest.Sample()
	aborted.UpgradeState = nil
	inTime(t, func(timeout string) error {
		q := &quietly{shows: []*dbv1.Deployment{aborted, clitest.Sample(), aborted}}
		out, _, err := run(t, "watch", "deployment", "--until-version", "v2", "--timeout", timeout, "--server", serveAPI(t, q))
		if exit.Of(err) != exit.Refused || q.asked.Load() != 3 || !strings.Contains(err.Error(), "the upgrade to v2 has ended, and v1 is the current version: 'dbcontroller history' shows why") {
			return fmt.Errorf("with %s: %w, asked %d times, printed %q", timeout, err, q.asked.Load(), out)
		}
		return nil
	})
}
