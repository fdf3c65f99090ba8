package app

import (
	"context"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// progress detects whether an upgrade advances.
type progress struct {
	mu   sync.Mutex
	now  string
	last string
}

func (p *progress) set(now string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
}

func (p *progress) copied(c copied) { p.set(fmt.Sprint(c)) }

// moved reports whether anything changed since the last call.
func (p *progress) moved() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := p.now != p.last
	p.last = p.now
	return moved
}

// show prints the progress of the shards until ctx ends.
func (r *run) show(ctx context.Context, d *deployed, p *progress) error {
	stream, err := d.apis(r.http)[0].WatchDeployment(ctx, connect.NewRequest(&dbv1.WatchDeploymentRequest{}))
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("watch the deployment: %w", err)
	}
	defer stream.Close() //nolint:errcheck // the stream is not used any more
	last := ""
	for stream.Receive() {
		now := stream.Msg()
		u, pr := now.GetUpgradeState(), now.GetProgress()
		if u == nil || pr == nil {
			continue
		}
		lag := "not known"
		if pr.MaxLagMillis != nil {
			lag = fmt.Sprintf("%d ms", pr.GetMaxLagMillis())
		}
		text := fmt.Sprintf("%s: ready %d/%d shards, copied %d of %d, lag %s, compared %d", d.name, len(u.GetReadyShards()), now.GetRingSize(),
			pr.GetCopied(), pr.GetTotal(), lag, pr.GetVerified())
		if pr.GetParked() > 0 {
			text += fmt.Sprintf(", parked %d", pr.GetParked())
		}
		if pr.GetLastError() != "" {
			text += ", last error: " + pr.GetLastError()
		}
		// A repeated text is no progress, and would keep a stuck upgrade alive.
		if text != last {
			r.note(text)
			p.set(text)
		}
		last = text
	}
	if err := stream.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch the deployment: %w", err)
	}
	return nil
}
