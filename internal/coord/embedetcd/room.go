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
	// quota is the maximum size of the database in bytes. Above it etcd refuses all writes. The
	// writes within history need only a small part of it, because the journal's rate is limited.
	quota = 2 << 30
	// lookForAlarm is the interval of checks for a space alarm.
	lookForAlarm = 5 * time.Second
	// roomTimeout limits one attempt to make room. Rewriting a large file takes a while.
	roomTimeout = time.Minute
)

// keepRoom makes room whenever the quota is reached, until ctx ends. Otherwise etcd would refuse
// writes forever, even after a compaction, because an alarm stays until a client removes it. Here
// only this process can do that.
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

// makeRoom discards all history, returns the space and removes the alarm, if there is one. Watches
// that lag behind must list again.
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
		// The revision may have been compacted already, which is no reason to stop.
		if _, err := etcd.Server.Compact(ctx, &pb.CompactionRequest{Revision: rev, Physical: true}); err != nil && ctx.Err() != nil {
			return fmt.Errorf("compact: %w", err)
		}
	}
	// A compaction only frees pages inside the file. Defragmentation makes the file smaller.
	if err := etcd.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	after := etcd.Server.Backend().Size()
	// Removing the alarm now would let etcd raise it again at once.
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
