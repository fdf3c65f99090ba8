package mongostore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

var _ record.Monitor = (*Namespace)(nil)

// gauges holds the counters of the last measurement, from which Health computes averages.
type gauges struct {
	mu    sync.Mutex
	cores int64 // 0: not known yet
	last  sample
	lag   lag
}

// sample holds counters of the server since its start, in microseconds.
type sample struct {
	at     time.Time
	server string // host and process id
	cpu    int64
	busy   [2]int64 // operations that ran or waited to run: reads, writes
}

// unwanted lists the large sections of serverStatus that nothing here reads. The server offers no
// way to request only some sections.
var unwanted = []string{
	"asserts", "connections", "electionMetrics", "indexStats", "locks", "logicalSessionRecordCache", "metrics", "network",
	"opLatencies", "opWorkingTime", "readConcernCounters", "readPreferenceCounters", "security", "spillWiredTiger",
	"tcmalloc", "transactions", "twoPhaseCommitCoordinator",
}

// Health measures the primary, which takes about a millisecond of its time. CPU is that of its
// process, and Queue the average of operations that ran or waited. Both cover the time since the
// last call; the first call returns 0. Lag is how long a majority has lacked an operation that an
// earlier call found at the primary.
//
// A sharded cluster hides its members. There Lag is how long a majority write takes, and the rest
// is 0.
func (n *Namespace) Health(ctx context.Context) (record.Health, error) {
	mongos, err := n.IsMongos(ctx)
	if err != nil {
		return record.Health{}, fmt.Errorf("health: %w", err)
	}
	if mongos {
		start := time.Now()
		if _, err := n.MajorityNow(ctx); err != nil {
			return record.Health{}, fmt.Errorf("health: %w", err)
		}
		return record.Health{Lag: time.Since(start)}, nil
	}
	cmd := bson.D{{Key: "serverStatus", Value: 1}}
	for _, section := range unwanted {
		cmd = append(cmd, bson.E{Key: section, Value: 0})
	}
	status, err := n.measure(ctx, cmd)
	if err != nil {
		return record.Health{}, err
	}
	members, err := n.measure(ctx, bson.D{{Key: "replSetGetStatus", Value: 1}})
	if err != nil {
		return record.Health{}, err
	}
	// One caller at a time, or two would share one interval.
	n.health.mu.Lock()
	defer n.health.mu.Unlock()
	// The number of processors stays the same while the server runs.
	if n.health.cores == 0 {
		host, err := n.measure(ctx, bson.D{{Key: "hostInfo", Value: 1}})
		if err != nil {
			return record.Health{}, err
		}
		if n.health.cores, _ = rawdoc.Lookup(host, "system", "numCoresAvailableToProcess").AsInt64OK(); n.health.cores <= 0 {
			n.health.cores, _ = rawdoc.Lookup(host, "system", "numCores").AsInt64OK()
		}
	}
	h := cacheHealth(status)
	now := sampleOf(status, time.Now())
	if now.server != n.health.last.server {
		n.health.lag = lag{} // a restored set may count its terms anew
	}
	h.Lag = n.health.lag.look(members)
	h.CPU, h.Queue = now.since(n.health.last, n.health.cores, tickets(status))
	n.health.last = now
	return h, nil
}

// measure runs a server command that returns statistics.
func (n *Namespace) measure(ctx context.Context, cmd bson.D) (bson.Raw, error) {
	raw, err := n.Admin().RunCommand(ctx, cmd).Raw()
	if conn.HasCode(err, conn.CodeUnauthorized) {
		return nil, fmt.Errorf("not authorized to run %s: grant the role clusterMonitor on admin", cmd[0].Key)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd[0].Key, err)
	}
	return raw, nil
}

func cacheHealth(status bson.Raw) (h record.Health) {
	cache := func(name string) float64 {
		v, _ := rawdoc.Lookup(status, "wiredTiger", "cache", name).AsInt64OK()
		return float64(v)
	}
	if most := cache("maximum bytes configured"); most > 0 {
		h.CacheUsed = cache("bytes currently in the cache") / most
		h.CacheDirty = cache("tracked dirty bytes in the cache") / most
	}
	return h
}

var queues = [2]string{"read", "write"}

// tickets returns how many reads and writes may run at once.
func tickets(status bson.Raw) (most [2]int64) {
	for i, q := range queues {
		most[i], _ = rawdoc.Lookup(status, "queues", "execution", q, "totalTickets").AsInt64OK()
	}
	return most
}

func sampleOf(status bson.Raw, at time.Time) sample {
	count := func(path ...string) int64 {
		v, _ := rawdoc.Lookup(status, path...).AsInt64OK()
		return v
	}
	host, _ := status.Lookup("host").StringValueOK()
	s := sample{at: at, server: fmt.Sprint(host, count("pid"))}
	s.cpu = count("extra_info", "user_time_us") + count("extra_info", "system_time_us")
	for i, q := range queues {
		s.busy[i] = count("queues", "execution", q, "normalPriority", "totalTimeProcessingMicros") +
			count("queues", "execution", q, "normalPriority", "totalTimeQueuedMicros")
	}
	return s
}

// since computes averages since an earlier sample. It returns 0 if last is from another process or
// empty.
func (s sample) since(last sample, cores int64, most [2]int64) (cpu, queue float64) {
	span := float64(s.at.Sub(last.at).Microseconds())
	if last.server != s.server || span <= 0 {
		return 0, 0
	}
	if cores > 0 {
		cpu = max(0, float64(s.cpu-last.cpu)/span/float64(cores))
	}
	for i, n := range most {
		if n > 0 {
			queue = max(queue, float64(s.busy[i]-last.busy[i])/span/float64(n))
		}
	}
	return cpu, queue
}
