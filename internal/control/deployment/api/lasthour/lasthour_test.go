package lasthour

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// TestRecorder keeps an hour of what it has read, and nothing of the times without an answer or
// without a sync.
func TestRecorder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lag := int64(7)
		reads := 0
		r := New(func(context.Context) (*pb.Progress, error) {
			switch reads++; reads {
			case 2:
				return nil, errors.New("no answer")
			case 3:
				return nil, nil
			}
			return &pb.Progress{Rate: float64(reads), MaxLagMillis: &lag, Shards: []*pb.ShardProgress{{Pace: "paused"}, {}, {Pace: "a rate"}}}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		begun := time.Now().Unix()
		time.Sleep(4*every - time.Second)
		got := r.All()
		if len(got) != 2 || got[0].Rate != 1 || got[1].Rate != 4 || got[0].At != begun || got[1].At != begun+30 || got[0].GetMaxLagMillis() != 7 || got[0].HeldBack != 2 {
			t.Errorf("after four readings, of which one failed and one found no sync: %v", got)
		}
		time.Sleep(2 * kept)
		if got, most := r.All(), int(kept/every)+1; len(got) > most || got[0].At < time.Now().Add(-kept-every).Unix() {
			t.Errorf("after two hours there are %d samples, the first %d s old; want %d at most", len(got), time.Now().Unix()-got[0].At, most)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
