package mongostore

import (
	"cmp"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// optime is the place of an operation in the oplog of a replica set. Of two, that of the
// later term is later: what an earlier primary alone had is rolled back.
type optime struct {
	term int64
	ts   bson.Timestamp
}

func (o optime) after(p optime) bool {
	return cmp.Or(cmp.Compare(o.term, p.term), o.ts.Compare(p.ts)) > 0
}

// lag remembers operations that the primary had at a look and a majority had not. How far
// their times are apart says nothing of a quiet set: an operation a day (or a no-op every
// 10 s) makes the majority a day behind for the moment that it takes to reach it. What says
// it is for how long the majority has lacked one and the same operation.
type lag struct {
	lacked []lacked // oldest first
}

type lacked struct {
	op      optime
	applied time.Time // by the primary's clock, when it was written
}

// lagShare is the share of a lag that may lie between two operations that are remembered: a
// lag of hours is told as exactly as it has to be, and remembered in a few hundred.
const lagShare = 16

// look returns for how long a majority has lacked something, as a replSetGetStatus of the
// primary has it; 0 if that does not tell. A lag is seen in full after as many seconds as it
// has: a first look shows only the primary's last operation.
func (l *lag) look(status bson.Raw) time.Duration {
	applied, ok := optimeOf(status, "appliedOpTime")
	common, known := optimeOf(status, "lastCommittedOpTime")
	at, timed := status.Lookup("optimes", "lastAppliedWallTime").TimeOK()
	now, dated := status.Lookup("date").TimeOK()
	if !ok || !known || !timed || !dated {
		l.lacked = nil
		return 0
	}
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
	o.term, ok = status.Lookup("optimes", name, "t").AsInt64OK()
	o.ts.T, o.ts.I, known = status.Lookup("optimes", name, "ts").TimestampOK()
	return o, ok && known
}
