package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v4"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// watchPatience is how long a view waits for a controller to come back.
const watchPatience = time.Minute

func watchCommand() *cobra.Command {
	c := &connection{}
	var until string
	cmd := &cobra.Command{
		Use:   "deployment",
		Short: "Follow a deployment: shards, copied of total, rate, time left, lag, what it waits for",
		Long: "Follow a deployment. On a terminal the view is redrawn in place; elsewhere there is a line for\n" +
			"each change, with --json a JSON object a line. It ends when interrupted, or, with\n" +
			"--until-version, when that version is the current one.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.open()
			if err != nil {
				return err
			}
			return c.explain(follow(cmd.Context(), api, c.name, until, c.view(cmd.OutOrStdout()), cmd.ErrOrStderr()))
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&until, "until-version", "", "end when this version is the current one")
	return cmd
}

// view is how changes are shown: to a program, a person at a terminal, or a log.
func (c *connection) view(w io.Writer) func(*dbv1.Deployment) error {
	switch {
	case c.json:
		return func(d *dbv1.Deployment) error { return printJSON(w, d) }
	case isTerminal(w):
		return (&screen{w: w}).draw
	default:
		return (&lines{w: w, now: time.Now}).draw
	}
}

// follow shows each change until the version asked for is reached or ctx ends, which is
// no error. A controller that goes away may be restarting: it is asked again for a while.
func follow(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, name, until string, show func(*dbv1.Deployment) error, diagnostics io.Writer) error {
	seen := false
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(watchPatience))
	for {
		err := followOnce(ctx, api, name, until, func(d *dbv1.Deployment) error {
			seen = true
			retry.Reset()
			return show(d)
		})
		var ce *connect.Error
		switch {
		case ctx.Err() != nil:
			if until == "" {
				return nil
			}
			return fmt.Errorf("interrupted before version %s", until)
		case err == nil:
			return nil
		case !seen || !errors.As(err, &ce) || connect.IsWireError(err) && ce.Code() != connect.CodeUnavailable:
			return err
		}
		wait := retry.NextBackOff()
		if wait == backoff.Stop {
			return err
		}
		fmt.Fprintln(diagnostics, "the controller does not answer; asking again")
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// followOnce returns nil when the version was reached. A stream that just ends is an
// error that trying again cures.
func followOnce(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, name, until string, show func(*dbv1.Deployment) error) error {
	stream, err := api.WatchDeployment(ctx, connect.NewRequest(&dbv1.WatchDeploymentRequest{Name: name}))
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // nothing more is wanted of it
	for stream.Receive() {
		d := stream.Msg()
		if err := show(d); err != nil {
			return err
		}
		if until != "" && d.GetCurrentVersion() == until && d.GetUpgradeState() == nil {
			return nil
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return connect.NewError(connect.CodeUnavailable, errors.New("the controller ended the stream"))
}

// lines shows a line for each change that is not only one of time.
type lines struct {
	w    io.Writer
	now  func() time.Time
	last string
}

func (l *lines) draw(d *dbv1.Deployment) error {
	line := changeLine(d)
	if line == l.last {
		return nil
	}
	l.last = line
	return write(l.w, []byte(l.now().Format("15:04:05 ")+line+"\n"))
}

func changeLine(d *dbv1.Deployment) string {
	parts := []string{d.GetCurrentVersion()}
	if u := d.GetUpgradeState(); u != nil {
		parts[0] += "->" + u.GetTargetVersion()
		parts = append(parts, phaseOf(u), fmt.Sprintf("ready %d/%d", len(u.GetReadyShards()), d.GetRingSize()))
	}
	if d.GetPace().GetPaused() {
		parts = append(parts, "paused")
	}
	if u := d.GetUpdate(); u != nil {
		parts = append(parts, fmt.Sprintf("data update %s %d/%d", u.GetName(), u.GetDoneShards(), d.GetRingSize()))
	}
	if d.GetRetiring() != "" {
		parts = append(parts, "retiring "+d.GetRetiring())
	}
	if r := d.GetRollbackSafe(); r.GetBlocking() > 0 {
		parts = append(parts, "rollback "+rollbackOf(r))
	}
	if p := d.GetProgress(); p != nil {
		if p.GetTotal() > 0 {
			parts = append(parts, "copied "+copiedOf(d))
		}
		parts = append(parts, "lag "+lagOf(p.MaxLagMillis))
		if p.GetParked() > 0 {
			parts = append(parts, "parked "+count(p.GetParked()))
		}
		if len(p.GetWaitsFor()) > 0 {
			parts = append(parts, "waits for "+strings.Join(p.GetWaitsFor(), "; "))
		}
		if waits := d.GetReadiness().GetWaitsFor(); len(waits) > 0 && strings.Join(waits, "; ") != strings.Join(p.GetWaitsFor(), "; ") {
			parts = append(parts, "switch waits for "+strings.Join(waits, "; "))
		}
		if p.GetLastError() != "" {
			parts = append(parts, "last error: "+p.GetLastError())
		}
	}
	return strings.Join(parts, " | ")
}

// screen redraws in place. Lines are not wrapped, so that their number is known.
type screen struct {
	w     io.Writer
	drawn int
}

func (s *screen) draw(d *dbv1.Deployment) error {
	text := live(d)
	var b bytes.Buffer
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	b.WriteString("\x1b[J\x1b[?7l")
	b.WriteString(text)
	b.WriteString("\x1b[?7h")
	s.drawn = strings.Count(text, "\n")
	return write(s.w, b.Bytes())
}

// mostShards is how many lines of shards fit on a screen.
const mostShards = 16

// live is the view of a terminal: the summary, and the shards that have most to do.
func live(d *dbv1.Deployment) string {
	var b bytes.Buffer
	fmt.Fprintln(&b, d.GetName())
	writeSummary(&b, d)
	shards := d.GetProgress().GetShards()
	if len(shards) == 0 {
		return b.String()
	}
	if len(shards) > mostShards {
		shards = busiest(shards)
	}
	b.WriteByte('\n')
	t := newTable(&b, "  SHARD\tDONE\tSTATE\tCOPIED\tTOTAL\tRATE\tLAG\tAPPLIED\tWAITS FOR")
	for _, s := range shards {
		fmt.Fprintf(t, "  %d\t%s\t%s\t%s\t%s\t%s/s\t%s\t%s\t%s\n", s.GetShard(), bar(s), s.GetState(), count(s.GetCopied()), count(s.GetTotal()),
			count(int64(s.GetRate())), lagOf(s.LagMillis), count(s.GetApplied()), or(s.GetWaitsFor(), "-"))
	}
	flush(t)
	if more := len(d.GetProgress().GetShards()) - len(shards); more > 0 {
		fmt.Fprintf(&b, "  and %d more shards\n", more)
	}
	return b.String()
}

// busiest picks the shards that wait for something, in their order.
func busiest(shards []*dbv1.ShardProgress) []*dbv1.ShardProgress {
	var first, rest []*dbv1.ShardProgress
	for _, s := range shards {
		if s.GetWaitsFor() != "" {
			first = append(first, s)
		} else {
			rest = append(rest, s)
		}
	}
	return append(first, rest...)[:mostShards]
}

func bar(s *dbv1.ShardProgress) string {
	const width = 10
	if s.GetOwner() == "" {
		return strings.Repeat("?", width)
	}
	full := width
	if s.GetTotal() > 0 {
		full = int(min(s.GetCopied(), s.GetTotal()) * width / s.GetTotal())
	}
	return strings.Repeat("#", full) + strings.Repeat(".", width-full)
}
