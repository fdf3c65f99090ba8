package embedetcd

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	// quota is what the database may take before etcd refuses all writes. What is written
	// within history is a small part of it: the journal's rate is bounded.
	quota = 2 << 30
	// lookForAlarm is how often the server checks whether it refuses writes for want of
	// room.
	lookForAlarm = 5 * time.Second
	// roomTimeout bounds one attempt to make room; a large file takes a while to write anew.
	roomTimeout = time.Minute
)

// keepRoom makes room whenever the quota was reached, until ctx ends. etcd would refuse
// writes for good otherwise, whatever it forgets meanwhile: an alarm stays until somebody
// takes it away. Nobody but this process can here.
func keepRoom(ctx context.Context, etcd *embed.Etcd, log *zap.Logger) {
	look := time.NewTicker(lookForAlarm)
	defer look.Stop()
	for {
		if err := makeRoom(ctx, etcd, log); err != nil && ctx.Err() == nil {
			log.Error("embedded etcd is out of space and refuses writes: no upgrade can switch or abort; room is made again soon", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// makeRoom forgets all history, gives the space back and takes the alarm away, if there is
// one. Watches that lag behind list anew.
func makeRoom(ctx context.Context, etcd *embed.Etcd, log *zap.Logger) error {
	var full []*pb.AlarmMember
	for _, alarm := range etcd.Server.Alarms() {
		if alarm.Alarm == pb.AlarmType_NOSPACE {
			full = append(full, alarm)
		}
	}
	if len(full) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	before := etcd.Server.Backend().Size()
	if rev := etcd.Server.KV().Rev(); rev > etcd.Server.KV().FirstRev() {
		// One that was compacted already is no reason to stop.
		if _, err := etcd.Server.Compact(ctx, &pb.CompactionRequest{Revision: rev, Physical: true}); err != nil && ctx.Err() != nil {
			return fmt.Errorf("compact: %w", err)
		}
	}
	if err := etcd.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	after := etcd.Server.Backend().Size()
	if after >= etcd.Config().QuotaBackendBytes {
		return fmt.Errorf("%d bytes are in use without any history, %d are allowed", after, etcd.Config().QuotaBackendBytes)
	}
	for _, alarm := range full {
		req := &pb.AlarmRequest{MemberID: alarm.MemberID, Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE}
		if _, err := etcd.Server.Alarm(ctx, req); err != nil {
			return fmt.Errorf("take the alarm away: %w", err)
		}
	}
	log.Warn("embedded etcd was out of space and has made room", zap.Int64("bytes before", before), zap.Int64("bytes now", after))
	return nil
}
