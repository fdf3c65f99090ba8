package memetcd

import (
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Backup is the state of the cluster at one moment, like a copy of its data directory.
type Backup struct {
	revision, compacted int64
	keys                []string
	history             map[string][]*mvccpb.KeyValue
	events              []*clientv3.Event
}

// Backup copies the whole state. The copy and the call of at happen at one moment: no request is
// partly done, and none ends before at returns.
func (s *Server) Backup(at func()) *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	at()
	return &Backup{s.revision, s.compacted, slices.Clone(s.keys), cloned(s.history), slices.Clone(s.events)}
}

// Restore sets the cluster to the state of a backup. Revisions go back, and later changes reuse the
// numbers. A watch that has seen higher revisions does not get the changes that reuse them. Restore
// calls at as Backup does. A backup may be restored several times.
func (s *Server) Restore(b *Backup, at func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at()
	s.revision, s.compacted = b.revision, b.compacted
	s.keys, s.history, s.events = slices.Clone(b.keys), cloned(b.history), slices.Clone(b.events)
	s.restores++
	s.wake()
}

// cloned copies the lists of a history. The copy shares the values, which are never modified.
func cloned(history map[string][]*mvccpb.KeyValue) map[string][]*mvccpb.KeyValue {
	out := maps.Clone(history)
	for key, versions := range out {
		out[key] = slices.Clone(versions)
	}
	return out
}
