package proxy

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// clusters are two replica sets whose data is at one of them. A switch carries the data over, and not the numbers of
// retryable writes. Behind the fence a cluster answers for the writes that it has made, and makes no others.
type clusters struct {
	mu     sync.Mutex
	active string
	times  int                       // of both oplogs: each update has another one
	made   map[string]map[int64]int  // times a write was made, by session and number
	last   map[string]map[string]int // time of the last write, by cluster and session
	oplog  map[string]map[int]entry  // by cluster and time
}

// entry is one update in an oplog.
type entry struct {
	number int64
	before int // time of the session's update before it; 0: none
}

func (cs *clusters) serve(name string, s *server) {
	cs.last[name], cs.oplog[name] = map[string]int{}, map[int]entry{}
	s.on("update", func(c command) bsoncore.Document { return cs.update(s.t, name, c) })
	s.on("find", func(c command) bsoncore.Document { return cs.find(s.t, name, c) })
}

func (cs *clusters) update(t *testing.T, name string, c command) bsoncore.Document {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	at := cs.last[name][c.session]
	switch last := cs.oplog[name][at].number; {
	case c.number < last:
		return failure(codeTransactionTooOld, "a later one was made")
	case c.number == last:
		return doc(t, `{"n":1,"nModified":1,"retriedStmtId":0,"ok":1.0}`)
	case name != cs.active:
		return failure(codeNotOnView, "Namespace shop.orders is a view, not a collection")
	}
	cs.times++
	cs.oplog[name][cs.times], cs.last[name][c.session] = entry{c.number, at}, cs.times
	if cs.made[c.session] == nil {
		cs.made[c.session] = map[int64]int{}
	}
	cs.made[c.session][c.number]++
	return doc(t, `{"n":1,"nModified":1,"ok":1.0}`)
}

// find answers questions about config.transactions and the oplog.
func (cs *clusters) find(t *testing.T, name string, c command) bsoncore.Document {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	at := 0
	if c.collection == "transactions" {
		if v, err := c.msg.Body.LookupErr("filter", "_id", "$gte"); err == nil {
			id, _ := sessionOf(v.Document())
			at = cs.last[name][id]
		}
	} else if v, err := c.msg.Body.LookupErr("filter", "ts"); err == nil {
		_, i, _ := v.TimestampOK()
		at = int(i)
	}
	batch := bson.A{}
	if e, ok := cs.oplog[name][at]; ok {
		time := bson.Timestamp{T: 1, I: uint32(at)}
		one := bson.D{{Key: "txnNum", Value: e.number}, {Key: "lastWriteOpTime", Value: bson.D{{Key: "ts", Value: time}}}}
		if c.collection == "oplog.rs" {
			before := bson.Timestamp{}
			if e.before > 0 {
				before = bson.Timestamp{T: 1, I: uint32(e.before)}
			}
			one = bson.D{
				{Key: "op", Value: "u"}, {Key: "stmtId", Value: 0}, {Key: "txnNumber", Value: e.number}, {Key: "ts", Value: time},
				{Key: "prevOpTime", Value: bson.D{{Key: "ts", Value: before}}},
			}
		}
		batch = append(batch, one)
	}
	raw, err := bson.Marshal(bson.D{{Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: c.database + "." + c.collection}, {Key: "firstBatch", Value: batch}}}, {Key: "ok", Value: 1.0}})
	if err != nil {
		t.Error(err)
	}
	return raw
}

// Steps of a client and of controllers.
const (
	writeByOne   = 'w' // the next write, by the first proxy
	writeByTwo   = 'W'
	repeatByOne  = 'r' // the last write once more, because its answer was lost
	repeatByTwo  = 'R'
	flipped      = 'f' // the data moves to the other cluster, and both proxies know it
	flippedOnly  = 'F' // the same, and a proxy may not know it yet
	middle       = "wWrRfF"
	middleLength = 3
)

// schedules are all in which the data moves between a first write and the last repetition.
func schedules() (out []string) {
	all := []string{string(writeByOne)}
	for range middleLength {
		var next []string
		for _, s := range all {
			for _, step := range middle {
				next = append(next, s+string(step))
			}
		}
		all = next
	}
	for _, s := range all {
		if strings.ContainsAny(s, string(flipped)+string(flippedOnly)) {
			out = append(out, s+string(repeatByOne), s+string(repeatByTwo))
		}
	}
	return out
}

// explored runs schedules, each in a session of its own, until one makes a write twice or loses one. It returns what
// went wrong; empty: nothing.
func explored(t *testing.T, without func(d *deployed)) string {
	t.Helper()
	const first = 3 // the data has moved before
	w := newWorld(t, worldOptions{proxies: 2, epoch: first})
	cs := &clusters{active: "v1", made: map[string]map[int64]int{}, last: map[string]map[string]int{}, oplog: map[string]map[int]entry{}}
	for name, s := range w.at {
		cs.serve(name, s)
	}
	for _, p := range w.proxies {
		without(p.deployed[0])
	}
	epoch := int64(first)
	for i, schedule := range schedules() {
		var id [16]byte
		binary.BigEndian.PutUint64(id[8:], uint64(i+1))
		txn := int64(0)
		for n, step := range schedule {
			proxy := 0
			switch step {
			case flipped, flippedOnly:
				next := map[string]string{"v1": "v2", "v2": "v1"}[cs.active]
				cs.mu.Lock()
				cs.active = next
				cs.mu.Unlock()
				epoch++
				w.open(next, epoch)
				if step == flipped {
					w.await(w.proxies[0])
					w.await(w.proxies[1])
				}
				continue
			case writeByTwo, repeatByTwo:
				proxy = 1
			}
			if step == writeByOne || step == writeByTwo {
				txn++
			}
			reply := w.call(proxy, fmt.Sprintf(`{"update":"orders","updates":[{"q":{"_id":1},"u":{"$inc":{"n":1}}}],"txnNumber":{"$numberLong":"%d"},`+
				`"lsid":{"id":{"$binary":{"base64":"%s","subType":"04"}}},"$db":"shop"}`, txn, base64.StdEncoding.EncodeToString(id[:])))
			cs.mu.Lock()
			times := cs.made[fmt.Sprintf("%x", id)][txn]
			cs.mu.Unlock()
			if times != 1 || !succeeded(reply) || number(reply, "n") != 1 {
				return fmt.Sprintf("schedule %s, step %d: write %d was made %d times, reply %s", schedule, n, txn, times, json(t, reply))
			}
		}
	}
	return ""
}

// TestExploreRetriedWrites: in every short schedule of writes, lost answers and switches between two clusters, behind
// two proxies, each write is made once. Without the look into the former cluster one is made twice.
func TestExploreRetriedWrites(t *testing.T) {
	t.Parallel()
	if wrong := explored(t, func(*deployed) {}); wrong != "" {
		t.Error(wrong)
	}
	wrong := explored(t, func(d *deployed) { d.own = d.own[:1] })
	if !strings.Contains(wrong, "was made 2 times") {
		t.Errorf("without the look into the former cluster: %q", wrong)
	}
}
