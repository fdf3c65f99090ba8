package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/internal/etcdconn"
	"dbcontroller.dev/record"
)

var _ record.Monitor = (*Store)(nil)

// errFull: bulk work would only wait there.
var errFull = errors.New("etcd is full, and takes no writes: " + etcdconn.MakeRoom)

// Health measures how long a linearizable read takes: it waits for a majority, and for what
// was written before to be applied, so that it grows with all that etcd has to do. The rest is
// not known.
func (s *Store) Health(ctx context.Context) (record.Health, error) {
	start := time.Now()
	if _, _, err := s.get(ctx, "health", s.at.identity()); err != nil {
		return record.Health{}, err
	}
	took := time.Since(start)
	members, err := s.members(ctx)
	if err == nil && slices.ContainsFunc(members, full) {
		err = errFull
	}
	if err != nil {
		return record.Health{}, fmt.Errorf("health: %w", err)
	}
	return record.Health{Lag: took}, nil
}

// full reports that a member's quota is reached, at which all of them take no writes.
func full(m *clientv3.StatusResponse) bool {
	return slices.ContainsFunc(m.Errors, func(e string) bool { return strings.Contains(e, "NOSPACE") })
}

// sealing is more than encryption and the form of a key add to a record.
const sealing = 128

// Survey looks at the members that answer, and changes nothing. The disk is what etcd may take
// of it, its quota, which an etcd before 3.6 does not tell.
func (s *Store) Survey(ctx context.Context) (record.Survey, error) {
	members, err := s.members(ctx)
	if err != nil {
		return record.Survey{}, fmt.Errorf("survey etcd: %w", err)
	}
	if err := s.free(ctx); err != nil { // a plan that only reads does not Check
		return record.Survey{}, err
	}
	// An identity has 32 digits, and a kind may be one of which the gate is compared for this record
	// alone.
	id := strings.Repeat("0", 32)
	perRecord := slot{doc: s.at.records(id)}.weight(sealing) + s.weight(gates{id: record.Token{}}, nil)
	out := record.Survey{
		UUIDs: true, NoCPU: true,
		MaxDocument: s.bytes - perRecord, MaxGroup: s.most, GuardsCount: true, MaxBytes: s.bytes, PerRecord: perRecord,
		Raise:        "raise its --max-request-bytes or --max-txn-ops, and etcd.maxRequestBytes or etcd.maxTxnOps in the configuration",
		OplogProblem: "etcd does not tell how long it keeps history: see to it that its --auto-compaction-retention is longer than a controller may be away",
	}
	for _, m := range members {
		if out.Server == "" || m.Version < out.Server {
			out.Server = m.Version
		}
		if full(m) {
			return out, fmt.Errorf("survey etcd: %w", errFull)
		}
		if free := m.DbSizeQuota - m.DbSizeInUse; m.DbSizeQuota > 0 && (out.DiskTotal == 0 || free < out.DiskFree) {
			out.DiskTotal, out.DiskFree = m.DbSizeQuota, max(free, 0)
		}
	}
	out.Text = fmt.Sprintf("etcd %s, %d of %d endpoints answer", out.Server, len(members), len(s.conn.Endpoints()))
	return out, nil
}

// memberWait is how long a member is waited for. One that is away must not take the time that
// there is for the others.
const memberWait = 2 * time.Second

// members asks all endpoints how they are; one that answers is enough.
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
