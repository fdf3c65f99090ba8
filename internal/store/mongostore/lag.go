package mongostore

import (
	"cmp"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
)

// optime is the place of an operation in the oplog of a replica set. An operation of a later term
// is later, because operations that only an earlier primary had are rolled back.
type optime struct {
	term int64
	ts   bson.Timestamp
}

func (o optime) after(p optime) bool {
	return cmp.Or(cmp.Compare(o.term, p.term), o.ts.Compare(p.ts)) > 0
}

// lag remembers operations that the primary had at a measurement and a majority had not. The
// difference of their times does not measure a lag. In a set with one operation a day (or a no-op
// every 10 s), a majority would be a day behind for the moment of replication. The measure is how
// long the majority has lacked the same operation.
type lag struct {
	lacked []lacked // operations, oldest first
}

type lacked struct {
	op      optime
	applied time.Time // by the primary's clock, when the operation was written
}

// lagShare limits the remembered operations: the next one is at least this part of the lag later. A
// lag of hours is measured precisely enough with a few hundred operations.
const lagShare = 16

// look returns how long a majority has lacked an operation, from the primary's replSetGetStatus. It
// returns 0 if the status does not show it. A first look knows only the primary's last operation,
// so the full lag of n seconds shows after n seconds.
func (l *lag) look(status bson.Raw) time.Duration {
	applied, ok := optimeOf(status, "appliedOpTime")
	common, known := optimeOf(status, "lastCommittedOpTime")
	at, timed := rawdoc.Lookup(status, "optimes", "lastAppliedWallTime").TimeOK()
	now, dated := status.Lookup("date").TimeOK()
	// Without all four values the lag is unknown, and old ones must not be mixed in.
	if !ok || !known || !timed || !dated {
		l.lacked = nil
		return 0
	}
	// A majority has these now.
	for len(l.lacked) > 0 && !l.lacked[0].op.after(common) {
		l.lacked = l.lacked[1:]
	}
	if n := len(l.lacked); applied.after(common) &&
		(n == 0 || at.Sub(l.lacked[n-1].applied) > l.lacked[n-1].applied.Sub(l.lacked[0].applied)/lagShare) {
		l.lacked = append(l.lacked, lacked{op: applied, applied: at})
	}
	if len(l.lacked) == 0 {
		return 0
	}
	return max(0, now.Sub(l.lacked[0].applied))
}

func optimeOf(status bson.Raw, name string) (o optime, ok bool) {
	var known bool
	o.term, ok = rawdoc.Lookup(status, "optimes", name, "t").AsInt64OK()
	o.ts.T, o.ts.I, known = rawdoc.Lookup(status, "optimes", name, "ts").TimestampOK()
	return o, ok && known
}
