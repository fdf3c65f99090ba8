package proxy

import (
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// A switch renames collections at the primary. A secondary that lags has no such names yet, and finds nothing
// there. So at each new location the first read that a secondary may answer goes to the primary. Its reply
// has a time of the cluster that is not before the renames, and the reads after it carry this time: a server
// waits until it has everything up to it.

// settled is the time from which the servers of a cluster have the collections of a place.
type settled struct {
	mu       sync.Mutex
	epoch    int64 // of the place
	revision int64 // of the newest location when the time was asked for
	// times has a $clusterTime with its signature for each user. A server signs it only for those who must not
	// advance its clock, and refuses others' times from them.
	times map[*user]bsoncore.Document
}

// at returns the time for a place; nil: there is none yet.
func (s *settled) at(u *user, at place) bsoncore.Document {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != at.epoch || s.revision != at.revision {
		return nil
	}
	return s.times[u]
}

// note keeps the time in a reply of the primary at a place, unless there is one.
func (s *settled) note(u *user, at place, time bsoncore.Document) {
	if time == nil || s.at(u, at) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == nil || s.epoch != at.epoch || s.revision != at.revision {
		s.epoch, s.revision, s.times = at.epoch, at.revision, map[*user]bsoncore.Document{}
	}
	s.times[u] = slices.Clone(time) // the reply is large
}

// lacks are the reads that find nothing, without an error, where a collection has no name.
var lacks = []string{"find", "aggregate", "count", "distinct"}

// settle returns a read that finds the collections of a place by their names, and the server for it.
func (d *deployed) settle(at place, c command, want upstream.Want, m message.Message) (upstream.Want, message.Message, error) {
	if want.Mode == upstream.Primary || !slices.Contains(lacks, c.verb) {
		return want, m, nil
	}
	var err error
	time := d.settled.at(c.user, at)
	if time == nil {
		m.Body, err = without(m.Body, "$readPreference")
		return upstream.Want{}, m, err
	}
	m.Body, err = after(m.Body, time)
	return want, m, err
}

// after returns a command that a server executes when it has everything up to a time.
func after(body, time bsoncore.Document) (bsoncore.Document, error) {
	at, err := time.LookupErr("clusterTime")
	if err != nil {
		return nil, err
	}
	concern := bsoncore.NewDocumentBuilder().Build()
	if v, err := body.LookupErr("readConcern"); err == nil {
		var ok bool
		if concern, ok = v.DocumentOK(); !ok {
			return body, nil // the server refuses it
		}
	}
	if own, err := concern.LookupErr("afterClusterTime"); err == nil && !earlier(own, at) {
		return body, nil
	}
	drop := []string{"afterClusterTime"}
	switch level, _ := text(concern, "level"); level {
	case "linearizable": // only the primary serves it
		return body, nil
	case "available":
		drop = append(drop, "level") // it takes no time, and local finds at least as much
	}
	if concern, err = without(concern, drop...); err != nil {
		return nil, err
	}
	if concern, err = with(concern, "afterClusterTime", at); err != nil {
		return nil, err
	}
	drop = []string{"readConcern"}
	// A server refuses a time that is later than the latest one that it knows, and learns of later ones so.
	own, err := body.LookupErr("$clusterTime", "clusterTime")
	gossip := err != nil || earlier(own, at)
	if gossip {
		drop = append(drop, "$clusterTime")
	}
	if body, err = without(body, drop...); err != nil {
		return nil, err
	}
	if gossip {
		if body, err = with(body, "$clusterTime", bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: time}); err != nil {
			return nil, err
		}
	}
	return with(body, "readConcern", bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: concern})
}

// earlier reports whether a value is no time, or an earlier one than another.
func earlier(a, b bsoncore.Value) bool {
	at, ai, ok := a.TimestampOK()
	bt, bi, _ := b.TimestampOK()
	return !ok || at < bt || at == bt && ai < bi
}
