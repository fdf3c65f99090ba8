package proxy

import (
	"sync"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// Each cluster has a clock of its own. A time of one cluster means nothing in another: a server refuses
// its signature, or waits for a time that never comes. So behind a proxy with several clusters clients
// never see $clusterTime. The times of operations stay, because causal sessions need them. A session's
// first command in another cluster loses its time and goes to the primary: there is everything that was
// acknowledged before the switch. A driver keeps the greatest time that it ever saw, so later commands
// may carry the foreign time as well: they get the session's latest time of their own cluster.

// times knows the last operation of each session.
type times struct {
	mu sync.Mutex
	at map[string]operation
}

// operation is where and when a session made its last operation.
type operation struct {
	cluster *upstream.Cluster
	time    uint64 // of the cluster's clock
}

// fit removes from a command what belongs to another cluster. It may change the wanted server.
func (p *Proxy) fit(c command, cluster *upstream.Cluster, want *upstream.Want, m message.Message) (message.Message, error) {
	if len(p.clusters()) < 2 {
		return m, nil
	}
	var err error
	if m.Body, err = without(m.Body, "$clusterTime"); err != nil {
		return m, err
	}
	concern, err := m.Body.LookupErr("readConcern")
	if err != nil {
		return m, nil
	}
	doc, ok := concern.DocumentOK()
	if !ok {
		return m, nil
	}
	v, err := doc.LookupErr("afterClusterTime")
	if err != nil {
		return m, nil
	}
	after, last := timestamp(v), p.times.of(c.session)
	if last.cluster == cluster && after <= last.time {
		return m, nil
	}
	if doc, err = without(doc, "afterClusterTime"); err != nil {
		return m, err
	}
	drop := []string{"readConcern"}
	if last.cluster == cluster {
		after := bsoncore.AppendTimestamp(nil, uint32(last.time>>32), uint32(last.time))
		if doc, err = with(doc, "afterClusterTime", bsoncore.Value{Type: bsoncore.TypeTimestamp, Data: after}); err != nil {
			return m, err
		}
	} else if want.At == "" {
		*want = upstream.Want{}
		drop = append(drop, "$readPreference")
	}
	if m.Body, err = without(m.Body, drop...); err != nil {
		return m, err
	}
	m.Body, err = with(m.Body, "readConcern", bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: doc})
	return m, err
}

// timestamp returns a time as a number; 0: it is none.
func timestamp(v bsoncore.Value) uint64 {
	t, i, ok := v.TimestampOK()
	if !ok {
		return 0
	}
	return uint64(t)<<32 | uint64(i)
}

// learn notes the cluster of a reply, and removes what only this cluster understands.
func (p *Proxy) learn(c command, cluster *upstream.Cluster, reply bsoncore.Document) (bsoncore.Document, error) {
	if len(p.clusters()) < 2 {
		return reply, nil
	}
	if v, err := reply.LookupErr("operationTime"); err == nil && c.session != "" {
		p.times.note(c.session, operation{cluster, timestamp(v)})
	}
	return without(reply, "$clusterTime")
}

func (t *times) of(session string) operation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at[session]
}

func (t *times) note(session string, last operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before := t.at[session]; before.cluster == last.cluster && before.time >= last.time {
		return
	}
	// A session that is forgotten reads from the primary once more.
	if t.at == nil || len(t.at) > mostSessions {
		t.at = map[string]operation{}
	}
	t.at[session] = last
}
