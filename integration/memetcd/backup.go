package memetcd

import (
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Backup is the state of the cluster at one moment, as a copy of its data folder is.
type Backup struct {
	revision, compacted int64
	keys                []string
	history             map[string][]*mvccpb.KeyValue
	events              []*clientv3.Event
}

// Backup copies everything. at is called at the moment of the copy: no request is half done then,
// and none ends before it returns.
func (s *Server) Backup(at func()) *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	at()
	return &Backup{s.revision, s.compacted, slices.Clone(s.keys), cloned(s.history), slices.Clone(s.events)}
}

// Restore gives the cluster the state of a backup. Its revisions go back, and come again with other
// changes behind them. A watch that has come further is told of none of these. at is called as by
// Backup. A backup may be restored several times.
func (s *Server) Restore(b *Backup, at func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at()
	s.revision, s.compacted = b.revision, b.compacted
	s.keys, s.history, s.events = slices.Clone(b.keys), cloned(b.history), slices.Clone(b.events)
	s.restores++
	s.wake()
}

// cloned shares the values, which are never modified.
func cloned(history map[string][]*mvccpb.KeyValue) map[string][]*mvccpb.KeyValue {
	out := maps.Clone(history)
	for key, versions := range out {
		out[key] = slices.Clone(versions)
	}
	return out
}
