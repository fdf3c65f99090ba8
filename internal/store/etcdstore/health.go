package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/mod/semver"

	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/record"
)

var _ record.Monitor = (*Store)(nil)

// errFull stops bulk work, which could only wait. Errors of writes wrap it.
var errFull = errors.New("etcd is full and accepts no writes: " + etcdconn.MakeRoom)

// Health measures the duration of a linearizable read. Such a read waits for a majority and for the
// application of earlier writes, so it grows with etcd's load. Other values are unknown.
func (s *Store) Health(ctx context.Context) (record.Health, error) {
	start := time.Now()
	if _, _, err := s.get(ctx, "health", s.at.identity()); err != nil {
		return record.Health{}, err
	}
	took := time.Since(start)
	members, err := s.members(ctx)
	// A full etcd still answers reads fast, so check the alarm.
	if err == nil && slices.ContainsFunc(members, full) {
		err = errFull
	}
	if err != nil {
		return record.Health{}, fmt.Errorf("health: %w", err)
	}
	return record.Health{Lag: took}, nil
}

// full reports that a member has reached its quota. All members then refuse writes.
func full(m *clientv3.StatusResponse) bool {
	return slices.ContainsFunc(m.Errors, func(e string) bool { return strings.Contains(e, "NOSPACE") })
}

// sealing is an upper bound for the bytes that encryption and the form of a key add to a record.
const sealing = 128

// Survey asks the members that answer, and changes nothing. The disk space is etcd's quota. etcd
// before 3.6 does not report it.
func (s *Store) Survey(ctx context.Context) (record.Survey, error) {
	members, err := s.members(ctx)
	if err != nil {
		return record.Survey{}, fmt.Errorf("survey etcd: %w", err)
	}
	if err := s.free(ctx); err != nil { // a read-only plan does not call Check
		return record.Survey{}, err
	}
	// An identity has 32 digits. In the worst case a transaction compares a kind's gate for this
	// one record.
	id := strings.Repeat("0", 32)
	perRecord := slot{doc: s.at.records(id)}.weight(sealing) + s.weight(gates{id: record.Token{}}, nil)
	out := record.Survey{
		UUIDs: true, NoCPU: true,
		MaxDocument: s.bytes - perRecord, MaxGroup: s.most, GuardsCount: true, MaxBytes: s.bytes, PerRecord: perRecord,
		Raise:        "raise its --max-request-bytes or --max-txn-ops, and etcd.maxRequestBytes or etcd.maxTxnOps in the configuration",
		OplogProblem: "etcd does not report how long it keeps history: set its --auto-compaction-retention longer than a controller may be down",
	}
	for _, m := range members {
		// The oldest member limits the features of the cluster.
		if out.Server == "" || semver.Compare("v"+m.Version, "v"+out.Server) < 0 {
			out.Server = m.Version
		}
		if full(m) {
			return out, fmt.Errorf("survey etcd: %w", errFull)
		}
		// Report the member with the least space: when one is full, all refuse writes.
		if free := m.DbSizeQuota - m.DbSizeInUse; m.DbSizeQuota > 0 && (out.DiskTotal == 0 || free < out.DiskFree) {
			out.DiskTotal, out.DiskFree = m.DbSizeQuota, max(free, 0)
		}
	}
	out.Text = fmt.Sprintf("etcd %s, %d of %d endpoints answer", out.Server, len(members), len(s.conn.Endpoints()))
	return out, nil
}

// memberWait is the timeout for one member. A missing member must not use up the time for the
// others.
const memberWait = 2 * time.Second

// members asks all endpoints for their status. One answer is enough.
func (s *Store) members(ctx context.Context) (answers []*clientv3.StatusResponse, err error) {
	failed := errors.New("etcd has no endpoints")
	for _, endpoint := range s.conn.Endpoints() {
		asking, done := context.WithTimeout(ctx, memberWait)
		status, err := s.conn.Status(asking, endpoint)
		done()
		switch {
		case err == nil:
			answers = append(answers, status)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		// Only this member's timeout ended, so ask the next one.
		case errors.Is(err, context.DeadlineExceeded):
			failed = fmt.Errorf("%w: %s does not answer", record.ErrUnavailable, endpoint)
		default:
			failed = s.readError("status of "+endpoint, err)
		}
	}
	if len(answers) == 0 {
		return nil, failed
	}
	return answers, nil
}
