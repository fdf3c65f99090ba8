// Package lasthour keeps samples of a sync's progress for the charts of operators.
//
// A Recorder reads the progress every few seconds, and keeps what it has read for an hour, in the
// memory of its process. Other processes have samples of their own, and a new process has none.
// Begin to read at Recorder.Run.
//
// It is not for users and may change with any version.
package lasthour

import (
	"context"
	"sync"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

const (
	// every is the time between two samples. A reading lists the progress of all shards.
	every = 10 * time.Second
	// kept is how long a sample is kept.
	kept = time.Hour
)

// Read returns the present progress; nil: there is none to keep.
type Read func(ctx context.Context) (*pb.Progress, error)

// Recorder keeps the samples of the last hour. Its methods may be called concurrently.
type Recorder struct {
	read Read

	mu      sync.Mutex
	samples []*pb.Sample // the oldest first; each is immutable
}

// New returns a Recorder without samples.
func New(read Read) *Recorder { return &Recorder{read: read} }

// Run takes samples until ctx ends. A failed reading leaves a gap.
func (r *Recorder) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, every)
		p, err := r.read(bounded)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now := time.Now()
		if err != nil {
			p = nil
		}
		r.add(now, p)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// add adds a sample of the progress, if there is any, and drops the samples that are too old.
func (r *Recorder) add(now time.Time, p *pb.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p != nil {
		s := &pb.Sample{At: now.Unix(), Rate: p.Rate, MaxLagMillis: p.MaxLagMillis}
		for _, shard := range p.Shards {
			if shard.Pace != "" {
				s.HeldBack++
			}
		}
		r.samples = append(r.samples, s)
	}
	old := 0
	for old < len(r.samples) && r.samples[old].At < now.Add(-kept).Unix() {
		old++
	}
	r.samples = r.samples[old:]
}

// All returns the samples, the oldest first. The caller must not modify them.
func (r *Recorder) All() []*pb.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*pb.Sample(nil), r.samples...)
}
